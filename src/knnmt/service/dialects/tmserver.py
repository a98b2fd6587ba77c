"""tmserver's dialect, below `/tmserver`: the matches of a memory for Virtaal and Weblate."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from knnmt.service.dialects import directions
from knnmt.service.dialects.speaking import BAD_REQUEST, InPath, caller_with, errors_as, route_with_errors
from knnmt.service.domains import Domain
from knnmt.service.http.requests import TheService, requested_domain, require_texts
from knnmt.service.service import Service

_ERRORS = errors_as({401: 403, 422: 400, 409: 400})
router = APIRouter(prefix="/tmserver", tags=["tmserver"], route_class=route_with_errors(_ERRORS), responses=BAD_REQUEST)
_MIN_SCORE, _MAX_MATCHES = 50, 5  # lowest score of a match in percent; matches of a text


class LanguagesAnswer(BaseModel):
    """Languages of both sides."""

    sourceLanguages: list[str]  # noqa: N815
    targetLanguages: list[str]  # noqa: N815


class MatchAnswer(BaseModel):
    """A segment of the memory. quality: the similarity of its source, in percent"""

    source: str
    target: str
    quality: int


@router.get("/languages/", response_model=LanguagesAnswer)
async def languages(request: Request, service: TheService) -> Response:
    """The languages of the domain."""
    domain = _requested_domain(request, service)
    pairs = list(directions.pairs(service, domain))
    sides = [sorted({pair[side] for pair in pairs}) for side in (0, 1)]
    return JSONResponse({"sourceLanguages": sides[0], "targetLanguages": sides[1]})


@router.get("/{source}/{target}/unit/{text:path}", response_model=list[MatchAnswer])
async def matches(
    source: InPath, target: InPath, text: Annotated[str, Path(max_length=20_000)], request: Request, service: TheService
) -> Response:
    """The segments with the most similar sources, the best first; none for languages that the domain lacks."""
    caller = caller_with(service, request, request.query_params.get("key"))
    domain = requested_domain(request, service, caller, None, languages=(source, target))
    store = domain.required_store()
    if directions.direction(service, domain, source, target) is None:
        return JSONResponse([])  # Weblate tries English to German before it saves its settings, whatever its languages
    require_texts([text], service.config.limits)

    def found() -> list[dict[str, Any]]:
        with service.translator.for_store(store).memories.using(store) as memory:
            near = memory.matcher.matches(text, _MIN_SCORE, _MAX_MATCHES)
        return [{"source": each.source, "target": each.target, "quality": each.score} for each in near]

    looking = service.matches.submit(caller.client, len(text), found)
    return JSONResponse(await service.until(asyncio.wrap_future(looking), None))


def _requested_domain(request: Request, service: Service) -> Domain:
    caller = caller_with(service, request, request.query_params.get("key"))
    return requested_domain(request, service, caller, None)
