"""`/v1/glossaries`: send a file of terms, which requests can then name; list and delete glossaries."""

from __future__ import annotations

import asyncio
import re
from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from knnmt.corpus.languages import is_tag
from knnmt.service.glossaries import Dictionary, StoredGlossary, read_dictionary
from knnmt.service.http.answer_shapes import GlossariesAnswer, GlossaryAnswer, SentGlossaryAnswer
from knnmt.service.http.requests import TheCaller, TheService, receive_file
from knnmt.service.problems import Problem

router = APIRouter(tags=["glossaries"])
_ENDINGS = re.compile(r"(\.[a-z0-9]{1,10}){0,2}")
_Tag = Annotated[str | None, Query(max_length=35, description="Required.", examples=["de"])]
_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The terms: TSV or CSV with a term and its translation in two columns, TBX, or any memory.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("/v1/glossaries", response_model=SentGlossaryAnswer, status_code=201, openapi_extra=_FILE)
async def send(
    request: Request,
    service: TheService,
    caller: TheCaller,
    source_language: _Tag = None,
    target_language: _Tag = None,
    name: Annotated[
        str, Query(description="The ending tells the format if the content does not.", min_length=1, max_length=200)
    ] = "glossary",
) -> Response:
    """Make a glossary of a file. Requests that name its `id` use it; only the same key sees it."""
    caller.require("write")
    languages = _required(source_language), _required(target_language)
    endings = "".join(PurePath(name).suffixes[-2:]).lower()
    file = service.scratch.file(endings if _ENDINGS.fullmatch(endings) else "")
    try:
        with file.open("xb") as received:
            await receive_file(request, "a glossary", received.write)
        size = file.stat().st_size

        def read() -> tuple[Dictionary, int]:
            return read_dictionary(file, name, languages, service.config.limits.document_bytes)

        dictionary, left_out = await service.text_threads.run(caller.client, size, read)
    finally:
        file.unlink(missing_ok=True)
    made = await asyncio.to_thread(service.glossaries.make, name, (dictionary,), caller)
    return JSONResponse({**_as_json(made), "left_out": left_out}, status_code=201)


@router.get("/v1/glossaries", response_model=GlossariesAnswer)
async def glossaries(service: TheService, caller: TheCaller) -> Response:
    """The glossaries of the key, the oldest first; those that tools sent, too."""
    caller.require("translate")
    return JSONResponse({"glossaries": [_as_json(each) for each in service.glossaries.seen_by(caller)]})


@router.get("/v1/glossaries/{glossary}", response_model=GlossaryAnswer)
async def glossary(glossary: str, service: TheService, caller: TheCaller) -> Response:
    """One glossary."""
    caller.require("translate")
    return JSONResponse(_as_json(service.glossaries.of(glossary, caller)))


@router.delete("/v1/glossaries/{glossary}", status_code=204)
async def delete(glossary: str, service: TheService, caller: TheCaller) -> Response:
    """Delete a glossary."""
    caller.require("write")
    await asyncio.to_thread(service.glossaries.delete, service.glossaries.of(glossary, caller))
    return Response(status_code=204)


def _required(tag: str | None) -> str:
    if tag is None:
        raise Problem(422, "invalid_request", "a glossary needs source_language and target_language")
    if not is_tag(tag):
        raise Problem(422, "invalid_request", f"expected a language tag, such as de, found {tag[:40]!r}")
    return tag


def _as_json(glossary: StoredGlossary) -> dict[str, Any]:
    return {
        "id": glossary.id,
        "name": glossary.name,
        "by": glossary.by,
        "created": glossary.created,
        "dictionaries": [
            {"source_language": each.source, "target_language": each.target, "terms": len(each.terms)}
            for each in glossary.dictionaries
        ],
    }
