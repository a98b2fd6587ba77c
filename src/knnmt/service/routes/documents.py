"""`POST /v1/documents`: send a document, and download its translation later."""

from __future__ import annotations

import asyncio
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from knnmt.service.access import Caller
from knnmt.service.documents import DocumentWork, SentDocument
from knnmt.service.http.answer_shapes import DocumentAnswer, UnitsAnswer
from knnmt.service.http.requests import TheCaller, TheService, glossary_of, receive_file, requested_domain
from knnmt.service.http.setting_shapes import settings_in_query
from knnmt.service.problems import Problem
from knnmt.service.service import Service
from knnmt.translator.settings import TranslationSettings

router = APIRouter(tags=["documents"])
_IN_MEMORY = 1 << 20  # bytes of a document in memory before it goes to disk
_SECRET = 32  # characters: the first half of an id names the document, the second half is its secret
_BYTES: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_DOCUMENT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The document: PO, XLIFF, TMX, DOCX, HTML, Markdown, subtitles and so on.",
        "content": _BYTES,
    }
}


@router.post(
    "/v1/documents",
    response_model=DocumentAnswer,
    response_model_exclude_none=True,
    status_code=202,
    openapi_extra=_DOCUMENT,
)
async def send(
    request: Request,
    service: TheService,
    caller: TheCaller,
    settings: Annotated[TranslationSettings, Depends(settings_in_query("documents"))],
    name: Annotated[
        str,
        Query(description="The ending tells the format if the content does not.", max_length=200),
    ] = "document",
    domain: Annotated[str | None, Query(description="By default the service's.", max_length=64)] = None,
    source_language: Annotated[str | None, Query(description="For models of many languages.", max_length=35)] = None,
    target_language: Annotated[str | None, Query(description="For models of many languages.", max_length=35)] = None,
    term: Annotated[
        list[str] | None,
        Query(description="A term of a glossary as `term=translation`; may be repeated.", max_length=1_000),
    ] = None,
    glossary_id: Annotated[
        str | None, Query(description="A glossary that was sent before; `term` takes precedence.", max_length=80)
    ] = None,
    review: Annotated[
        bool, Query(description="Write into the document where its translations came from, if its format can say it.")
    ] = False,
    ignore_stated_languages: Annotated[
        bool, Query(description="Translate the document in the domain's direction, whatever languages it states.")
    ] = False,
) -> Response:
    """Translate what is missing in a document. The answer has an id, for the same key."""
    answer = source_language, target_language
    chosen = requested_domain(request, service, caller, domain, languages=answer)
    await asyncio.to_thread(service.translator.between, answer)  # raises for languages that no model has
    known = await asyncio.to_thread(service.describe, chosen)
    languages = (
        source_language or _text(known["source_language"]),
        target_language or _text(known["target_language"]),
    )
    glossary, glossary_languages = await glossary_of(service, caller, _terms(term or []), glossary_id, languages)
    if glossary_id is not None and None in languages:  # nothing else says what to translate between
        answer = languages = glossary_languages
    work = DocumentWork(
        domain=chosen,
        client=caller.client,
        languages=languages,
        model_languages=answer,
        settings=settings,
        glossary=glossary,
        with_remarks=review,
        ignore_stated=ignore_stated_languages,
    )
    with SpooledTemporaryFile(_IN_MEMORY) as received:
        await receive_file(request, "a document", received.write)
        received.seek(0)
        sent = await asyncio.to_thread(service.documents.send, name, received, caller.name, work)
    return JSONResponse(_as_json(sent), status_code=202, headers={"Location": f"/v1/documents/{_id(sent)}"})


@router.get("/v1/documents/{document}", response_model=DocumentAnswer, response_model_exclude_none=True)
async def document(document: str, service: TheService, caller: TheCaller) -> Response:
    """The state of a document."""
    return JSONResponse(_as_json(_visible(service, caller, document)))


@router.get("/v1/documents/{document}/units", response_model=UnitsAnswer, response_model_exclude_none=True)
async def units(
    document: str,
    service: TheService,
    caller: TheCaller,
    first: Annotated[int, Query(ge=0, le=10_000_000, description="The number of the first row, from 0.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000, description="The number of rows.")] = 1_000,
) -> Response:
    """The units of a translated document, those to look at first at the beginning, until it is downloaded."""
    sent = _visible(service, caller, document)
    rows, total = await asyncio.to_thread(service.documents.units, sent, first, limit)
    languages = zip(("source_language", "target_language"), sent.work.languages, strict=True)
    return JSONResponse({"units": rows, "of": total} | {name: tag for name, tag in languages if tag is not None})


@router.get(
    "/v1/documents/{document}/content",
    response_class=Response,
    responses={200: {"content": _BYTES}},
)
async def content(document: str, service: TheService, caller: TheCaller) -> Response:
    """Download the translation of a document. The service then deletes it."""
    sent = _visible(service, caller, document)
    made = await asyncio.to_thread(service.documents.take, sent)
    name = sent.download_name or sent.name
    headers = {  # a browser must save it as a file, whatever its type
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(made, media_type="application/octet-stream", headers=headers)


@router.delete("/v1/documents/{document}", status_code=204)
async def delete(document: str, service: TheService, caller: TheCaller) -> Response:
    """Cancel and delete a document."""
    await asyncio.to_thread(service.documents.forget, _visible(service, caller, document))
    return Response(status_code=204)


def _visible(service: Service, caller: Caller, document: str) -> SentDocument:
    caller.require("translate")
    return service.documents.of(document[:_SECRET], document[_SECRET:], caller)


def _id(sent: SentDocument) -> str:
    return sent.id + sent.key


def _as_json(sent: SentDocument) -> dict[str, Any]:
    answer = {
        "id": _id(sent),
        "domain": sent.work.domain.name,
        "name": sent.name,
        "download_name": sent.download_name,
        "state": sent.state,
        "done": sent.done,
        "of": sent.of,
        "message": sent.message,
    }
    return {name: value for name, value in answer.items() if value is not None}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _terms(written: list[str]) -> list[tuple[str, str]]:
    found = []
    for each in written:
        source, sign, target = (part.strip() for part in each.partition("="))
        if not (source and sign and target):
            raise Problem(422, "invalid_request", f"term: expected term=translation, found {each[:80]!r}")
        found.append((source, target))
    return found
