"""Apertium APy's dialect, below `/apy`. OmegaT has a client for it built in, and Weblate has one, too."""

from __future__ import annotations

import json
import re
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from knnmt.service.dialects import directions
from knnmt.service.dialects.directions import required_direction
from knnmt.service.dialects.speaking import (
    BAD_REQUEST,
    FORM,
    Parameters,
    SettingsParameters,
    caller_with,
    errors_as,
    read,
    route_with_errors,
    with_body,
    with_query,
)
from knnmt.service.dialects.texts import NEVER_TRANSLATED, TextWork, translated
from knnmt.service.http.requests import TheService, requested_domain
from knnmt.service.problems import Problem
from knnmt.service.service import Service

_ERRORS = errors_as({401: 403, 422: 400, 409: 400}, explanation="message", responseDetails="message")
_SHORT_ESCAPE = re.compile(r'\\(u[0-9a-f]{4}|["\\bfnrt])')
router = APIRouter(prefix="/apy", tags=["Apertium"], route_class=route_with_errors(_ERRORS), responses=BAD_REQUEST)


class KeyParameters(Parameters):
    """The parameters of every request."""

    key: str | None = Field(default=None, max_length=200)


class TranslateParameters(KeyParameters, SettingsParameters):
    """A text. Other parameters are accepted and have no effect."""

    q: str = Field(examples=["Die Datei wurde gelöscht."])
    langpair: str = Field(max_length=80, examples=["deu|eng"])
    format: str = Field(
        default="txt", max_length=20, description="html; every other format, such as OmegaT's own, is treated as text."
    )


class PairAnswer(BaseModel):
    """A pair of languages."""

    sourceLanguage: str  # noqa: N815
    targetLanguage: str  # noqa: N815


class PairsAnswer(BaseModel):
    """Pairs of languages."""

    responseData: list[PairAnswer]  # noqa: N815
    responseDetails: None = None  # noqa: N815
    responseStatus: int  # noqa: N815


class TextAnswer(BaseModel):
    """A translated text."""

    translatedText: str  # noqa: N815


class TranslateAnswer(BaseModel):
    """A translation."""

    responseData: TextAnswer  # noqa: N815
    responseDetails: None = None  # noqa: N815
    responseStatus: int  # noqa: N815


@router.get("/listPairs", response_model=PairsAnswer, openapi_extra=with_query(KeyParameters))
async def pairs(request: Request, service: TheService) -> Response:
    """The pairs of languages of the domain."""
    caller = caller_with(service, request, (await read(request, KeyParameters)).key)
    domain = requested_domain(request, service, caller, None)
    found = directions.pairs(service, domain)
    return _answer([{"sourceLanguage": source, "targetLanguage": target} for source, target in found])


@router.get("/translate", response_model=TranslateAnswer, openapi_extra=with_query(TranslateParameters))
async def translate_by_address(request: Request, service: TheService) -> Response:
    """Translate a text."""
    return await _translate(request, service)


@router.post("/translate", response_model=TranslateAnswer, openapi_extra=with_body(TranslateParameters, FORM))
async def translate(request: Request, service: TheService) -> Response:
    """Translate a text."""
    return await _translate(request, service)


async def _translate(request: Request, service: Service) -> Response:
    form = await read(request, TranslateParameters)
    caller = caller_with(service, request, form.key)
    languages = form.langpair.split("|")
    if len(languages) != 2:
        raise Problem(422, "invalid_request", "langpair: expected two languages separated by |, such as deu|eng")
    domain = requested_domain(request, service, caller, None, languages=(languages[0], languages[1]))
    is_page = form.format == "html"
    work = TextWork(
        direction=required_direction(service, domain, *languages),
        settings=form.settings(),
        markup=is_page,
        ignored=NEVER_TRANSLATED if is_page else (),
        one_line=is_page,
    )
    [made] = await translated(request, service, caller, domain, [form.q], work)
    return _answer({"translatedText": made.text})


def _answer(data: Any) -> Response:
    """The answer in the spelling of JSON that OmegaT 3.6 finds, which does not parse it.

    It takes what stands between `{"translatedText": "` and `"}`, and of the escapes it knows `\\"` and `\\u005c` only.
    """
    answer = json.dumps({"responseData": data, "responseDetails": None, "responseStatus": 200})
    return Response(_SHORT_ESCAPE.sub(_long_escape, answer), media_type="application/json")


def _long_escape(escape: re.Match[str]) -> str:
    if escape[1].startswith("u"):
        return escape[0]
    character = json.loads('"' + escape[0] + '"')
    return f"\\u{ord(character):04x}"
