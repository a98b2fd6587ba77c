"""`/v1/domains`: list, make and delete domains, and change the segments in them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from knnmt.adapting.build import build
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import matching
from knnmt.documents.memory_languages import model_for
from knnmt.errors import KnnmtError
from knnmt.service.access import Caller
from knnmt.service.domains import Domain
from knnmt.service.http.answer_shapes import DomainAnswer, DomainsAnswer, RemovedAnswer, SegmentsAnswer, StoredAnswer
from knnmt.service.http.request_shapes import DomainBody, SegmentBody, SegmentsBody
from knnmt.service.http.requests import CallerFirst, TheCaller, TheService, needs
from knnmt.service.problems import Problem
from knnmt.service.service import Service, shielded
from knnmt.service.writing import WriteResult

router = APIRouter(tags=["domains"], route_class=CallerFirst)
_SourceAsked = Annotated[str | None, Query(description="The whole source text.", min_length=1, max_length=20_000)]


@router.get("/v1/domains", response_model=DomainsAnswer, response_model_exclude_none=True)
async def domains(service: TheService, caller: TheCaller) -> Response:
    """The domains that the caller may use."""
    caller.require("translate")
    visible = [each for each in service.domains if caller.sees(each.name)]
    return JSONResponse({"domains": await asyncio.to_thread(_described, service, visible)})


def _described(service: Service, domains: Sequence[Domain]) -> list[dict[str, object]]:
    found = []
    for each in domains:
        try:
            found.append(service.describe(each))
        except KnnmtError as error:
            if service.domains.deleted_in(error) is None:
                raise
    return found


@router.get("/v1/domains/{domain}", response_model=DomainAnswer, response_model_exclude_none=True)
async def domain(domain: str, service: TheService, caller: TheCaller) -> Response:
    """One domain."""
    caller.require("translate", domain)
    return JSONResponse(await asyncio.to_thread(service.describe, service.domains.of(domain)))


@router.post("/v1/domains", response_model=DomainAnswer, response_model_exclude_none=True, status_code=201)
@needs("admin")
async def make(body: DomainBody, service: TheService, caller: TheCaller) -> Response:
    """Make a domain from some pairs. For a whole memory, send it as a file."""
    caller.require("admin", body.name)
    place = service.domains.place_of_new(body.name)
    pairs = segment_pairs(service, caller, body.segments)
    making = asyncio.to_thread(_made, service, body, place, pairs)
    made = await asyncio.shield(asyncio.ensure_future(making))
    return JSONResponse(made, status_code=201)


def _made(service: Service, body: DomainBody, place: Path, pairs: Sequence[SegmentPair]) -> dict[str, object]:
    by = service.translator
    if by.chooses_model:
        choice, _ = model_for(pairs, body.source_language, body.target_language)
        by = by.between((choice.source, choice.target))
    config = BuildConfig(body.source_language or "", body.target_language or "")
    build(pairs, place, config, model=by.engine)
    return service.describe(service.domains.take_in(body.name))


@router.delete("/v1/domains/{domain}", status_code=204)
async def delete(domain: str, service: TheService, caller: TheCaller) -> Response:
    """Delete a domain that was made by a request, with everything in it."""
    caller.require("admin", domain)
    await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(service.delete, domain)))
    return Response(status_code=204)


# Segments -------------------------------------------------------------------------------------------------------------


@router.get("/v1/domains/{domain}/segments", response_model=SegmentsAnswer, tags=["segments"])
async def held(
    domain: str,
    service: TheService,
    caller: TheCaller,
    source: Annotated[str, Query(description="The whole source text.", min_length=1, max_length=20_000)],
) -> Response:
    """The pairs of a domain with this source text."""
    caller.require("translate", domain)
    store = service.domains.of(domain).required_store()

    def found() -> list[SegmentPair]:
        with service.translator.for_store(store).memories.using(store) as memory:
            return memory.opened.sources.pairs_of(source)

    pairs = await asyncio.to_thread(found)
    return JSONResponse({"domain": domain, "segments": [asdict(pair) for pair in pairs]})


@router.post("/v1/domains/{domain}/segments", response_model=StoredAnswer, status_code=201, tags=["segments"])
@needs("write")
async def add(domain: str, body: SegmentsBody, service: TheService, caller: TheCaller) -> Response:
    """Add pairs to a domain. When this is answered, they are stored, and the next request uses them."""
    store = service.domains.of(domain).required_store()
    pairs = segment_pairs(service, caller, body.segments)
    written = await shielded(await asyncio.to_thread(service.writers.of(store).put, "add", pairs))
    return _stored(domain, written, len(pairs), 201)


@router.put("/v1/domains/{domain}/segments", response_model=StoredAnswer, tags=["segments"])
@needs("write")
async def replace(domain: str, body: SegmentsBody, service: TheService, caller: TheCaller) -> Response:
    """Correct a domain: pairs replace what it holds for their sources; pairs with new sources are added."""
    known = service.domains.of(domain)
    known.required_store()
    pairs = segment_pairs(service, caller, body.segments)
    written = await service.correct(known, caller.name, pairs)
    return _stored(domain, written, len(pairs), 200)


def _stored(domain: str, written: WriteResult, count: int, status: int) -> Response:
    content = {"domain": domain, "generation": written.generation, "segments": written.segments, "stored": count}
    return JSONResponse(content, status_code=status)


@router.delete("/v1/domains/{domain}/segments", response_model=RemovedAnswer, tags=["segments"])
async def remove(
    domain: str,
    service: TheService,
    caller: TheCaller,
    source: _SourceAsked = None,
    origin: Annotated[
        str | None, Query(description="A whole origin, or a file for all its units.", min_length=1, max_length=1_000)
    ] = None,
) -> Response:
    """Remove the pairs with a source text, with an origin, or with both."""
    caller.require("write", domain)
    store = service.domains.of(domain).required_store()
    if origin is not None and "*" in origin:
        raise Problem(422, "invalid_request", "give the whole origin, without an asterisk")
    done = service.writers.of(store).remove(matching(origin, source))
    written = await shielded(done)
    return JSONResponse(
        {
            "domain": domain,
            "generation": written.generation,
            "segments": written.segments,
            "removed": written.removed,
        }
    )


def segment_pairs(service: Service, caller: Caller, segments: Sequence[SegmentBody]) -> list[SegmentPair]:
    """The pairs of a request as stores take them, within the limits."""
    limits = service.config.limits
    if len(segments) > limits.texts:
        raise Problem(413, "too_large", f"the request has {len(segments):,} pairs; send at most {limits.texts:,}")
    for number, each in enumerate(segments):
        if max(len(each.source), len(each.target)) > limits.text_characters:
            raise Problem(
                413,
                "too_large",
                (f"segment {number}: source and target may have at most {limits.text_characters:,} characters each"),
            )
        if not each.source.strip() or not each.target.strip():
            raise Problem(
                422, "invalid_request", f"segment {number}: expected a source and a target, found white space"
            )
    return [
        SegmentPair(each.source, each.target, each.origin or f"corrections#{caller.name}", each.context)
        for each in segments
    ]
