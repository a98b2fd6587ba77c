"""LibreTranslate's dialect: texts, pages, files, languages, and suggestions, which the domain learns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import PurePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, FailFast, Field

from knnmt.corpus.language_guess import guess_of
from knnmt.corpus.languages import normalise
from knnmt.documents.opening import usual_endings
from knnmt.service.config import BASE
from knnmt.service.dialects import directions
from knnmt.service.dialects.directions import name_of, required_direction
from knnmt.service.dialects.speaking import (
    BAD_REQUEST,
    FORM,
    JSON,
    MULTIPART,
    InPath,
    Parameters,
    SettingsParameters,
    caller_with,
    errors_as,
    file_of,
    read,
    route_with_errors,
    with_body,
    with_query,
)
from knnmt.service.dialects.texts import NEVER_TRANSLATED, TextWork, learn, translated
from knnmt.service.documents import DocumentWork
from knnmt.service.domains import Domain
from knnmt.service.http.requests import TheService, authenticate, bearer, requested_domain, require_whole_address
from knnmt.service.problems import Problem
from knnmt.service.service import Service
from knnmt.translator.settings import TranslationSettings

_ERRORS = errors_as({401: 403, 422: 400, 409: 400, 507: 500}, error="message")
router = APIRouter(tags=["LibreTranslate"], route_class=route_with_errors(_ERRORS), responses=BAD_REQUEST)
_PROBE = ("test", "en", "de")  # Weblate sends this before it saves its settings, whatever its languages
_SURE = 100.0


class KeyParameters(Parameters):
    """The parameters of every request."""

    api_key: str | None = Field(default=None, max_length=200)


class LanguagesParameters(KeyParameters):
    """The languages of a request."""

    source: str = Field(max_length=35, examples=["de", "auto"])
    target: str = Field(max_length=35, examples=["en"])

    @property
    def stated(self) -> str | None:
        """The source language; None if the service is to detect it."""
        return _stated(self.source)


class _InUnion(FailFast):
    """pydantic's `FailFast`, which a union can hold because it has a hash."""

    __hash__ = object.__hash__


class TranslateParameters(LanguagesParameters, SettingsParameters):
    """A text or several."""

    q: str | Annotated[list[str], _InUnion()] = Field(examples=["Die Datei wurde gelöscht."])
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(default=0, ge=0, description="Other translations of each text.")

    @property
    def texts(self) -> list[str]:
        """All of them."""
        return self.q if isinstance(self.q, list) else [self.q]


class DetectParameters(KeyParameters):
    """A text whose language is to be detected."""

    q: str


class SuggestParameters(LanguagesParameters):
    """A text and a better translation of it."""

    q: str = Field(min_length=1)
    s: str = Field(min_length=1)


class FileParameters(SettingsParameters):
    """A document and its languages."""

    source: str = Field(max_length=35, examples=["de", "auto"])
    target: str = Field(max_length=35, examples=["en"])
    file: Any = Field(json_schema_extra={"type": "string", "format": "binary"})


class DetectedAnswer(BaseModel):
    """A possible language of a text. confidence: in percent"""

    confidence: float
    language: str


class TranslateAnswer(BaseModel):
    """Translations; lists where a list was sent."""

    translatedText: str | list[str]  # noqa: N815 - the dialect's
    detectedLanguage: DetectedAnswer | list[DetectedAnswer] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class LanguageAnswer(BaseModel):
    """A source language with its target languages."""

    code: str
    name: str
    targets: list[str]


class SettingsAnswer(BaseModel):
    """What the service offers."""

    model_config = ConfigDict(extra="allow")

    charLimit: int  # noqa: N815
    keyRequired: bool  # noqa: N815
    suggestions: bool


class FileAnswer(BaseModel):
    """Where to download a translated document."""

    translatedFileUrl: str  # noqa: N815


class SuccessAnswer(BaseModel):
    """A confirmation."""

    success: bool


_ANSWERING: dict[str, Any] = {"response_model": TranslateAnswer, "response_model_exclude_none": True}


@router.get("/translate", openapi_extra=with_query(TranslateParameters), **_ANSWERING)
async def translate_by_address(request: Request, service: TheService) -> Response:
    """Translate texts. LibreTranslate itself accepts no GET, but some tools send it."""
    return await _translate(request, service)


@router.post("/translate", openapi_extra=with_body(TranslateParameters, JSON, FORM), **_ANSWERING)
async def translate(request: Request, service: TheService) -> Response:
    """Translate texts."""
    return await _translate(request, service)


async def _translate(request: Request, service: Service) -> Response:
    require_whole_address(request, service)  # checked first: clients of other dialects reach this route by mistake
    form = await read(request, TranslateParameters)
    caller = caller_with(service, request, form.api_key)
    domain = requested_domain(request, service, caller, None, languages=(form.stated, form.target))
    in_its_shape: Callable[[list[Any]], Any] = (lambda each: each) if isinstance(form.q, list) else lambda each: each[0]
    if _is_probe(form) and directions.direction(service, domain, form.stated, form.target) is None:
        return JSONResponse({"translatedText": form.q})
    most = service.config.limits.beam - 1
    if form.alternatives > most:
        raise Problem(422, "invalid_request", f"Invalid request: alternatives parameter must be <= {most}")
    direction = required_direction(service, domain, form.stated, form.target)
    is_page = form.format == "html"
    work = TextWork(
        direction=direction,
        settings=_settings(service, form),
        markup=is_page,
        ignored=NEVER_TRANSLATED if is_page else (),
        one_line=is_page,
    )
    made = await translated(request, service, caller, domain, form.texts, work)
    answer: dict[str, Any] = {"translatedText": in_its_shape([each.text for each in made])}
    if form.stated is None:
        answer["detectedLanguage"] = in_its_shape(
            await service.text_threads.each(
                caller.client, form.texts, lambda text: _detected(text, direction.source), len
            )
        )
    if form.alternatives:
        answer["alternatives"] = in_its_shape(
            [[other.text for other in each.translation.alternatives] for each in made]
            if not is_page
            else [[] for _ in made]
        )
    return JSONResponse(answer)


def _settings(service: Service, form: TranslateParameters) -> TranslationSettings:
    """The settings of a request, with a beam that is wide enough for the alternatives."""
    settings = form.settings()
    if not form.alternatives:
        return settings
    count = form.alternatives + 1
    usual: Any = settings.over(service.translator.settings).resolved()
    return TranslationSettings(n_best=count, beam=max(count, usual.beam)).over(settings)


def _detected(text: str, taken: str | None) -> dict[str, Any]:
    """The stated or guessed language of a text, with the confidence of the guess."""
    guessed = guess_of(text)
    sure = guessed is not None and (taken is None or guessed[0] == taken)
    share = guessed[1] if guessed is not None and sure else 0.0
    return {"confidence": round(share * _SURE, 1), "language": taken or (guessed[0] if guessed else "en")}


@router.post("/detect", response_model=list[DetectedAnswer], openapi_extra=with_body(DetectParameters, JSON, FORM))
async def detect(request: Request, service: TheService) -> Response:
    """Detect the language of a text. For a short text the guess is weak."""
    form = await read(request, DetectParameters)
    caller = caller_with(service, request, form.api_key)
    domain = requested_domain(request, service, caller, None)
    guessed = guess_of(form.q)
    own = next((source for source, _ in directions.pairs(service, domain)), "en")
    language, share = (own, 0.0) if guessed is None else guessed
    return JSONResponse([{"confidence": round(share * _SURE, 1), "language": language}])


@router.get("/languages", response_model=list[LanguageAnswer], openapi_extra=with_query(KeyParameters))
async def languages(request: Request, service: TheService) -> Response:
    """The languages of the domain. Weblate asks without its key, and gets those of the model."""
    form = await read(request, KeyParameters)
    domain = _told_to_everybody(request, service)
    if form.api_key or bearer(request):
        caller = caller_with(service, request, form.api_key)
        domain = requested_domain(request, service, caller, None)
    targets: dict[str, list[str]] = {}
    for source, target in directions.pairs(service, domain):
        targets.setdefault(source, []).append(target)
        targets.setdefault(target, [])
    return JSONResponse([{"code": tag, "name": name_of(tag), "targets": into} for tag, into in sorted(targets.items())])


@router.get("/frontend/settings", response_model=SettingsAnswer)
async def settings(request: Request, service: TheService) -> Response:
    """What the service offers. This needs no key."""
    domain = _told_to_everybody(request, service)
    direction = directions.direction(service, domain, None, None)
    source, target = (direction.source or "de", direction.target or "en") if direction is not None else ("de", "en")
    limits = service.config.limits
    return JSONResponse(
        {
            "charLimit": limits.text_characters,
            "frontendTimeout": 500,
            "apiKeys": not service.access.is_open,
            "keyRequired": not service.access.is_open,
            "suggestions": domain.store is not None and service.access.is_open,
            "filesTranslation": True,
            "supportedFilesFormat": usual_endings(),
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
        }
    )


@router.post("/suggest", response_model=SuccessAnswer, openapi_extra=with_body(SuggestParameters, JSON, FORM))
async def suggest(request: Request, service: TheService) -> Response:
    """Learn a better translation; the next request uses it. If the service has keys, the key needs the role write."""
    form = await read(request, SuggestParameters)
    caller = caller_with(service, request, form.api_key)
    if not caller.may("write"):
        raise Problem(403, "forbidden", "Suggestions are disabled on this server.")
    domain = requested_domain(request, service, caller, None, "write", (form.stated, form.target))
    required_direction(service, domain, form.stated, form.target)
    await learn(service, caller, domain, [(form.q, form.s)])
    return JSONResponse({"success": True})


@router.post(
    "/translate_file",
    response_model=FileAnswer,
    openapi_extra={**with_query(KeyParameters), **with_body(FileParameters, MULTIPART)},
)
async def translate_file(request: Request, service: TheService) -> Response:
    """Translate a document of any format that `knnmt translate` writes back.

    A key must be in the header or in the address, because the form is not read without one.
    """
    caller = caller_with(service, request, request.query_params.get("api_key"))
    requested_domain(request, service, caller, None)
    form = await read(request, FileParameters, files=1)
    domain = requested_domain(request, service, caller, None, languages=(_stated(form.source), form.target))
    file = file_of(form.file, "file")
    direction = required_direction(service, domain, _stated(form.source), form.target)
    name = file.filename or "document"
    work = DocumentWork(
        domain=domain,
        client=caller.client,
        languages=(direction.source, direction.target),
        model_languages=direction.model_languages,
        settings=form.settings(),
    )
    sent = await asyncio.to_thread(service.documents.send, name, file.file, caller.name, work)
    sent = await asyncio.wrap_future(service.documents.over(sent))
    if sent.state != "done":
        service.documents.forget(sent)
        raise Problem(422, "failed", sent.message or "the document was cancelled")
    ending = PurePath(sent.source.name).suffix
    place = request.url_for("download_file", name=f"{sent.id}{sent.key}{ending}")
    return JSONResponse({"translatedFileUrl": str(place)})


@router.get(
    "/download_file/{name}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def download_file(name: InPath, service: TheService) -> Response:
    """Download a translated document, once. Whoever has the address may."""
    token = PurePath(name).stem
    sent = service.documents.of(token[:32], token[32:])
    service.access.holder(sent.by).require("translate", sent.work.domain.name)
    content = await asyncio.to_thread(service.documents.take, sent)
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": "attachment"})


def _stated(source: str) -> str | None:
    return None if normalise(source) == "auto" else source


def _told_to_everybody(request: Request, service: Service) -> Domain:
    """The requested domain; if the service has keys, the model alone, because the names of the domains are secret."""
    if not service.access.is_open:
        return service.domains.of(BASE)
    return requested_domain(request, service, authenticate(request, service, None), None)


def _is_probe(form: TranslateParameters) -> bool:
    return (*form.texts, normalise(form.source), normalise(form.target)) == _PROBE
