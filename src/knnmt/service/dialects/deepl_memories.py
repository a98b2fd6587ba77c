"""DeepL's translation memories, which are the domains. A memory that is sent becomes a domain."""

from __future__ import annotations

import asyncio
import re
from itertools import count, islice
from pathlib import Path, PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.background import BackgroundTask

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.manifest import read_manifest
from knnmt.datastore.store import Datastore
from knnmt.service.access import Caller
from knnmt.service.dialects.deepl import ERRORS, TheDeepLCaller, domain_numbered, memory_id
from knnmt.service.dialects.directions import short
from knnmt.service.dialects.speaking import BAD_REQUEST, InPath, route_with_errors
from knnmt.service.domains import Domain
from knnmt.service.exchanges import Exchange
from knnmt.service.http.requests import TheService, needs
from knnmt.service.problems import Problem
from knnmt.service.routes import memories as memories_route
from knnmt.service.service import Service, shielded

router = APIRouter(tags=["DeepL"], route_class=route_with_errors(ERRORS), responses=BAD_REQUEST)
_TMX = "application/x-tmx+xml"
_MAX_PAGE = 100  # segments
_MAX_PAGE_OF_MEMORIES = 25


class MemoryAnswer(BaseModel):
    """A translation memory."""

    translation_memory_id: str
    name: str
    source_language: str
    target_languages: list[str]
    segment_count: int


class MemoriesAnswer(BaseModel):
    """Translation memories. total_count: number on all pages"""

    translation_memories: list[MemoryAnswer]
    total_count: int


class TargetAnswer(BaseModel):
    """The translation of a segment."""

    target_segment_id: str
    target_language: str
    target_text: str


class SegmentAnswer(BaseModel):
    """A segment."""

    source_segment_id: str
    source_text: str
    targets: list[TargetAnswer]


class SegmentsAnswer(BaseModel):
    """A page of segments."""

    segments: list[SegmentAnswer]
    segment_count: int
    next_page_cursor: str | None = None


@router.get("/v3/translation_memories", response_model=MemoriesAnswer)
async def memories(
    service: TheService,
    caller: TheDeepLCaller,
    page: Annotated[int, Query(ge=0, le=100_000)] = 0,
    page_size: Annotated[int, Query(ge=1, le=_MAX_PAGE_OF_MEMORIES)] = _MAX_PAGE_OF_MEMORIES,
) -> Response:
    """The domains that the key may use, without the model alone."""
    caller.require("translate")
    visible = [each for each in service.domains if each.store is not None and caller.sees(each.name)]
    some = visible[page * page_size : (page + 1) * page_size]
    answer = await asyncio.to_thread(lambda: [_as_json(each) for each in some])
    return JSONResponse({"translation_memories": answer, "total_count": len(visible)})


@router.get("/v3/translation_memories/{memory}", response_model=MemoryAnswer)
async def one(memory: InPath, service: TheService, caller: TheDeepLCaller) -> Response:
    """One translation memory."""
    return JSONResponse(await asyncio.to_thread(_as_json, _visible(service, caller, memory)))


@router.delete("/v3/translation_memories/{memory}", status_code=204)
async def delete(memory: InPath, service: TheService, caller: TheDeepLCaller) -> Response:
    """Delete a domain that was made by a request, with everything in it. The key needs the role admin."""
    domain = _visible(service, caller, memory)
    caller.require("admin", domain.name)
    await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(service.delete, domain.name)))
    return Response(status_code=204)


@router.get(
    "/v3/translation_memories/{memory}/segments", response_model=SegmentsAnswer, response_model_exclude_none=True
)
async def segments(
    memory: InPath,
    service: TheService,
    caller: TheDeepLCaller,
    page_size: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 50,
    page_cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,12}$")] = None,
    filter_text: Annotated[str | None, Query(min_length=2, max_length=1_000)] = None,
    filter_case_sensitive: bool = False,
) -> Response:
    """The segments of a memory, page by page, in the order in which they were stored."""
    domain = _visible(service, caller, memory)
    first = int(page_cursor or 0)

    def page() -> dict[str, Any]:
        store = Datastore.open(domain.required_store(), guarded=True)
        languages, count = store.manifest.target_language, store.manifest.live_sentences
        units = enumerate(store.units())
        wanted = (
            (number, pair)
            for number, pair in units
            if number >= first and _has(pair, filter_text, filter_case_sensitive)
        )
        with store.reading():
            found = list(islice(wanted, page_size + 1))
        answer: dict[str, Any] = {
            "segments": [
                {
                    "source_segment_id": str(number),
                    "source_text": pair.source,
                    "targets": [
                        {"target_segment_id": str(number), "target_language": languages, "target_text": pair.target}
                    ],
                }
                for number, pair in found[:page_size]
            ],
            "segment_count": count,
        }
        return {**answer, "next_page_cursor": str(found[page_size][0])} if len(found) > page_size else answer

    return JSONResponse(
        await service.until(asyncio.wrap_future(service.searches.submit(caller.client, 1.0, page)), None)
    )


# Sending and taking ---------------------------------------------------------------------------------------------------


class JobAnswer(BaseModel):
    """The import or export of a memory."""

    model_config = ConfigDict(extra="allow")

    job_id: str


class FileBody(BaseModel):
    """A memory that will be sent."""

    model_config = ConfigDict(extra="ignore")

    file_name: str = Field(min_length=1, max_length=200, examples=["projekt.tmx"])
    content_length: int = Field(gt=0)


class ImportParameters(BaseModel):
    """Parameters of an import: the name of the memory."""

    model_config = ConfigDict(extra="ignore")

    display_name: str | None = Field(default=None, max_length=200)


class ImportBody(BaseModel):
    """A memory that will be sent, and its name."""

    model_config = ConfigDict(extra="ignore")

    source_file: FileBody
    parameters: ImportParameters = Field(default_factory=ImportParameters)


class ImportAnswer(JobAnswer):
    """The address to send a memory to."""

    upload_url: str


@router.post("/v3/translation_memories/import", response_model=ImportAnswer, status_code=201)
@needs("admin")
async def announce(body: ImportBody, request: Request, service: TheService, caller: TheDeepLCaller) -> Response:
    """Announce a memory that becomes a domain with its name. The key needs the role admin."""
    most = service.config.limits.upload_bytes
    if body.source_file.content_length > most:
        raise Problem(413, "too_large", f"a memory may have at most {most:,} bytes")
    wanted = _plain_name(body.parameters.display_name or PurePath(body.source_file.file_name).stem)
    caller.require("admin", wanted)
    name = _free_name(service, wanted)
    caller.require("admin", name)
    service.domains.place_of_new(name)  # if no domain can be made, fail before anything is sent
    file_name = body.source_file.file_name
    begun = await asyncio.to_thread(service.exchanges.begin, "import", caller.name, name, file_name)
    place = request.url_for("upload", token=begun.token)
    return JSONResponse({"job_id": begun.id, "upload_url": str(place)}, status_code=201)


@router.put(
    "/v3/translation_memories/files/{token}",
    response_model=None,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/xml": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload(token: InPath, request: Request, service: TheService) -> Response:
    """Send a memory that was announced. Whoever has the address may: clients send no key here."""
    announced = service.exchanges.with_token(token, "import")
    service.access.holder(announced.by).require("admin", announced.domain)
    options: dict[str, object] = {"format": None, "skip_malformed": False, "unfinished": False}
    with service.exchanges.receiving(announced.id):
        made = await memories_route.begun(
            request, service, announced.file_name, domain=announced.domain, by=announced.by, **options
        )
        await asyncio.to_thread(service.exchanges.sent, announced.id, made.id)
    return JSONResponse(None)


def _plain_name(wanted: str) -> str:
    """A name that a domain can have, made of what a person calls it."""
    return re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")[:50] or "memory"


def _free_name(service: Service, wanted: str) -> str:
    """A name that no other domain has."""
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    return next(name for name in names if not service.domains.has(name))


@router.post(
    "/v3/translation_memories/{memory}/export", response_model=JobAnswer, status_code=202, response_class=JSONResponse
)
async def export(memory: InPath, service: TheService, caller: TheDeepLCaller) -> Response:
    """Export a memory as TMX. It is written during the download, so there is nothing to wait for."""
    domain = _visible(service, caller, memory)
    job = await asyncio.to_thread(service.exchanges.begin, "export", caller.name, domain.name)
    return JSONResponse({"job_id": job.id, "parameters": {"translation_memory_id": memory_id(domain)}}, status_code=202)


@router.get("/v3/translation_memories/jobs/{job_id}", response_model=JobAnswer, response_class=JSONResponse)
async def job(job_id: InPath, request: Request, service: TheService, caller: TheDeepLCaller) -> Response:
    """The state of an import or export."""
    caller.require("translate")
    found = service.exchanges.of(job_id)
    if not (found.by == caller.name and caller.sees(found.domain)):
        raise Problem(404, "unknown_job", "there is no such job")
    return JSONResponse(
        {
            "job_id": found.id,
            "operation": found.operation,
            "product": "translation_memory",
            "results": [_result(request, service, found)],
        }
    )


def _result(request: Request, service: Service, job: Exchange) -> dict[str, Any]:
    if job.operation == "import":
        if job.job is None:
            return {"status": "awaiting_input"}
        made = service.jobs.of(job.job)
        if made.state in ("failed", "cancelled"):
            return {"status": "failed", "error": {"message": made.message or "it was cancelled"}}
        if made.state != "done":
            return {"status": "processing"}
        return {"status": "completed", "translation_memory_id": memory_id(service.domains.of(job.domain))}
    number = memory_id(service.domains.of(job.domain))
    place = request.url_for("download", token=job.token)
    return {"status": "completed", "translation_memory_id": number, "download_url": str(place)}


@router.get(
    "/v3/translation_memories/files/{token}",
    response_class=Response,
    responses={200: {"content": {_TMX: {"schema": {"type": "string"}}}}},
)
async def download(token: InPath, service: TheService) -> Response:
    """Download a memory as TMX. Whoever has the address may: clients send no key here."""
    body = service.exchanges.with_token(token, "export")
    caller = service.access.holder(body.by)
    caller.require("translate", body.domain)
    domain = service.domains.of(body.domain)

    def written() -> Path:
        place = service.scratch.file(".tmx")
        store = Datastore.open(domain.required_store(), guarded=True)
        with store.reading():
            store.export(place)
        return place

    place = await shielded(service.searches.submit(caller.client, 1.0, written))
    return FileResponse(place, media_type=_TMX, filename=f"{domain.name}.tmx", background=BackgroundTask(place.unlink))


def _has(pair: SegmentPair, text: str | None, by_case: bool) -> bool:
    if text is None:
        return True
    sides = (pair.source, pair.target)
    return any(text in side for side in sides) if by_case else any(text.lower() in side.lower() for side in sides)


def _visible(service: Service, caller: Caller, number: str) -> Domain:
    caller.require("translate")
    return domain_numbered(service, caller, number)


def _as_json(domain: Domain) -> dict[str, Any]:
    manifest = read_manifest(domain.required_store())
    return {
        "translation_memory_id": memory_id(domain),
        "name": domain.name,
        "source_language": short(manifest.source_language),
        "target_languages": [short(manifest.target_language)],
        "segment_count": manifest.live_sentences,
    }
