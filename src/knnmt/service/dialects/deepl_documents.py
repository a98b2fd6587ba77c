"""DeepL's documents: send, poll, and download once. The formats are those that `knnmt translate` writes back."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from knnmt.service.background import State
from knnmt.service.dialects.deepl import (
    ERRORS,
    LanguagesOfTexts,
    TheDeepLCaller,
    domain_of,
    glossary_of,
    required_languages,
)
from knnmt.service.dialects.speaking import (
    BAD_REQUEST,
    FORM,
    JSON,
    MULTIPART,
    InPath,
    Parameters,
    file_of,
    read,
    route_with_errors,
    with_body,
)
from knnmt.service.documents import DocumentWork
from knnmt.service.http.requests import TheService
from knnmt.service.problems import Problem

router = APIRouter(tags=["DeepL"], route_class=route_with_errors(ERRORS), responses=BAD_REQUEST)


_STATUSES: dict[State, str] = {
    "waiting": "queued",
    "running": "translating",
    "done": "done",
    "failed": "error",
    "cancelled": "error",
}


class DocumentParameters(LanguagesOfTexts):
    """A document to translate, as the part `file` of a form."""

    file: Any = Field(json_schema_extra={"type": "string", "format": "binary"})
    filename: str | None = Field(default=None, max_length=1_000)
    output_format: str | None = Field(
        default=None, max_length=20, description="Only the document's own format; others fail with an error."
    )


class KeyParameters(Parameters):
    """The key of a document."""

    document_key: str = Field(max_length=100)


class HandleAnswer(BaseModel):
    """The id and key of a document."""

    document_id: str
    document_key: str


class StatusAnswer(BaseModel):
    """The state of a document."""

    document_id: str
    status: str
    billed_characters: int | None = None
    error_message: str | None = None


@router.post("/v2/document", response_model=HandleAnswer, openapi_extra=with_body(DocumentParameters, MULTIPART))
async def send(request: Request, service: TheService, caller: TheDeepLCaller) -> Response:
    """Send a document. Its content and the ending of its name tell the format."""
    caller.require("translate")
    form = await read(request, DocumentParameters, files=1)
    file = file_of(form.file, "file")
    domain = domain_of(request, service, caller, form)
    direction = required_languages(service, domain, form)
    name = form.filename or file.filename or "document"
    if form.output_format and not name.lower().endswith(f".{form.output_format.lower()}"):
        raise Problem(422, "invalid_request", "a document comes back in its own format: leave output_format out")
    work = DocumentWork(
        domain=domain,
        client=caller.client,
        languages=(direction.source, direction.target),
        model_languages=direction.model_languages,
        glossary=await glossary_of(service, caller, form, direction),
        settings=form.settings(),
    )
    sent = await asyncio.to_thread(service.documents.send, name, file.file, caller.name, work)
    return JSONResponse({"document_id": sent.id, "document_key": sent.key})


@router.post(
    "/v2/document/{document_id}",
    response_model=StatusAnswer,
    response_model_exclude_none=True,
    openapi_extra=with_body(KeyParameters, JSON, FORM),
)
async def status(document_id: InPath, request: Request, service: TheService, caller: TheDeepLCaller) -> Response:
    """The state of a document."""
    caller.require("translate")
    sent = service.documents.of(document_id, (await read(request, KeyParameters)).document_key, caller)
    answer: dict[str, Any] = {"document_id": sent.id, "status": _STATUSES[sent.state]}
    if sent.state == "done":
        answer["billed_characters"] = sent.characters
    if sent.state == "failed":
        answer["error_message"] = sent.message
    return JSONResponse(answer)


@router.post(
    "/v2/document/{document_id}/result",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
    openapi_extra=with_body(KeyParameters, JSON, FORM),
)
async def result(document_id: InPath, request: Request, service: TheService, caller: TheDeepLCaller) -> Response:
    """Download the translation of a document. The service then deletes it."""
    caller.require("translate")
    sent = service.documents.of(document_id, (await read(request, KeyParameters)).document_key, caller)
    content = await asyncio.to_thread(service.documents.take, sent)
    service.usage.count(caller.name, sent.characters)
    return Response(content, media_type="application/octet-stream")
