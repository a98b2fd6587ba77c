"""`POST /v1/domains/{domain}/memories`: make a domain from a memory, or add it to one. `/v1/jobs`: the progress."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from knnmt.engine.model_choice import choose_model
from knnmt.service.access import Caller
from knnmt.service.config import require_name
from knnmt.service.http.answer_shapes import JobAnswer, JobsAnswer
from knnmt.service.http.requests import TheCaller, TheService, receive_file
from knnmt.service.job_records import Job
from knnmt.service.problems import Problem
from knnmt.service.service import Service

router = APIRouter(tags=["memories"])
SourceOfMemory = Annotated[
    str | None,
    Query(description="The source language of the memory; by default as it states or looks.", max_length=35),
]
TargetOfMemory = Annotated[str | None, Query(description="The target language of the memory.", max_length=35)]
_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f]+")
_MEMORY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The memory: TMX, XLIFF, PO, TSV, CSV or a Qt catalog, also compressed.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "/v1/domains/{domain}/memories",
    response_model=JobAnswer,
    response_model_exclude_none=True,
    status_code=202,
    openapi_extra=_MEMORY,
)
async def send(
    domain: str,
    request: Request,
    service: TheService,
    caller: TheCaller,
    name: Annotated[
        str,
        Query(
            description="The name of the memory, which becomes part of the origins.",
            max_length=200,
            examples=["projekt.tmx"],
        ),
    ] = "memory",
    file_format: Annotated[
        Literal["tsv", "csv", "tmx", "xliff", "po"] | None,
        Query(alias="format", description="By default, content and name tell the format."),
    ] = None,
    source_language: SourceOfMemory = None,
    target_language: TargetOfMemory = None,
    skip_malformed: Annotated[bool, Query(description="Leave malformed units out instead of failing.")] = False,
    unfinished: Annotated[
        bool, Query(description="Take XLIFF units not marked as translated, and fuzzy PO entries, too.")
    ] = False,
) -> Response:
    """Make a domain from a memory, or add the memory to an existing domain. The answer is a job that is not yet done.

    Pairs that the domain already holds, of the same name and unit, are not added again.
    """
    caller.require("write" if service.domains.has(domain) else "admin", domain)
    require_name(domain)
    if service.domains.has(domain):
        service.domains.of(domain).required_store()
    require_languages(service, source_language, target_language)
    options = {
        "format": file_format,
        "source_language": source_language,
        "target_language": target_language,
        "skip_malformed": skip_malformed,
        "unfinished": unfinished,
    }
    job = await begun(request, service, name, domain=domain, by=caller.name, **options)
    return JSONResponse(_as_json(job), status_code=202, headers={"Location": f"/v1/jobs/{job.id}"})


def require_languages(service: Service, source: str | None, target: str | None) -> None:
    """Raise an error if no model of the service translates between two languages."""
    if service.translator.chooses_model and (source is not None or target is not None):
        choose_model(source, target, "the memory", "")


async def begun(request: Request, service: Service, name: str, **options: Any) -> Job:
    """Start a job with a memory, which is the body of a request."""
    if not _PLAIN.fullmatch(name):
        raise Problem(422, "invalid_request", "name: expected the name of a file, found slashes or control characters")
    incoming = await asyncio.to_thread(service.jobs.receive, name)
    try:
        await receive_file(request, "a memory", incoming.write)
        return await asyncio.to_thread(incoming.begin, **options)
    finally:
        await asyncio.to_thread(incoming.close)


@router.get("/v1/jobs", response_model=JobsAnswer, response_model_exclude_none=True)
async def jobs(service: TheService, caller: TheCaller) -> Response:
    """The jobs of domains that the caller may use, the oldest first. Of finished jobs, the last 100 are listed."""
    caller.require("translate")
    return JSONResponse({"jobs": [_as_json(job) for job in service.jobs if caller.sees(job.domain)]})


@router.get("/v1/jobs/{job}", response_model=JobAnswer, response_model_exclude_none=True)
async def job(job: str, service: TheService, caller: TheCaller) -> Response:
    """The state of a job."""
    return JSONResponse(_as_json(_visible(service, caller, job)))


@router.delete("/v1/jobs/{job}", response_model=JobAnswer, response_model_exclude_none=True)
async def cancel(job: str, service: TheService, caller: TheCaller) -> Response:
    """Cancel a job. A finished job stays as it is."""
    caller.require("write", _visible(service, caller, job).domain)
    return JSONResponse(_as_json(await asyncio.to_thread(service.jobs.cancel, job)))


def _visible(service: Service, caller: Caller, number: str) -> Job:
    caller.require("translate")
    return service.jobs.of(number, caller.sees)


def _as_json(job: Job) -> dict[str, Any]:
    """A job, as in the answer."""
    hidden = ("file", "attempts", "format", "source_language", "target_language", "skip_malformed", "unfinished")
    answer = {"id": job.id, "domain": job.domain} | {
        name: value for name, value in asdict(job).items() if name not in hidden and value is not None
    }
    if job.state != "running":
        del answer["stage"]
    return answer
