"""`/v1/domains/{domain}/corrections`: list and undo what was learned. `…/concordance`: search the memory for words."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import asdict
from threading import Event
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.concordance import concordance
from knnmt.service.http.answer_shapes import ChangedAnswer, CorrectionsAnswer, SegmentsAnswer
from knnmt.service.http.requests import TheCaller, TheService, while_connected
from knnmt.service.problems import Problem

router = APIRouter(tags=["segments"])
_MOST_WORDS = 20


@router.get("/v1/domains/{domain}/concordance", response_model=SegmentsAnswer)
async def search(
    domain: str,
    request: Request,
    service: TheService,
    caller: TheCaller,
    words: Annotated[
        str, Query(description="Each must occur in the source or the target.", min_length=1, max_length=500)
    ],
    limit: Annotated[int, Query(description="The most pairs.", ge=1, le=200)] = 50,
    timeout_seconds: Annotated[float | None, Query(description="Time limit, as of translations.", ge=0.001)] = None,
) -> Response:
    """The newest pairs of a domain whose source or target contains some words, also within words.

    Capitals do not count. All texts of the domain are read for it. The service makes one such search at a time.
    """
    caller.require("translate", domain)
    store = service.domains.of(domain).required_store()
    wanted = words.split()
    if not 0 < len(wanted) <= _MOST_WORDS:
        raise Problem(422, "invalid_request", f"words: expected 1 to {_MOST_WORDS} words, found {len(wanted)}")
    unwanted = Event()  # cancelling the waiting task does not end a thread

    def found() -> list[SegmentPair]:
        with service.translator.for_store(store).memories.using(store) as memory:
            segments = memory.opened.datastore.segments
            return concordance(segments, wanted, limit, proceed=lambda: not unwanted.is_set())

    searching: Future[list[SegmentPair]] = service.searches.submit(caller.client, 1.0, found)
    try:
        pairs = await while_connected(request, service.until(asyncio.wrap_future(searching), timeout_seconds))
    finally:
        unwanted.set()
    return JSONResponse({"domain": domain, "segments": [asdict(pair) for pair in pairs]})


@router.get("/v1/domains/{domain}/corrections", response_model=CorrectionsAnswer)
async def corrections(domain: str, service: TheService, caller: TheCaller) -> Response:
    """What a domain has learned from requests, the newest first: the last correction of each source.

    The service remembers the last 1,000, across restarts if it has a data directory.
    """
    caller.require("translate", domain)
    service.domains.of(domain).required_store()
    listed = [
        {
            "id": each.id,
            "by": each.by,
            "created": each.created,
            "segments": [asdict(pair) for pair in each.replacement.after],
            "replaced": [asdict(pair) for pair in each.replacement.before],
        }
        for each in await asyncio.to_thread(service.corrections.of, domain)
    ]
    return JSONResponse({"domain": domain, "corrections": listed})


@router.delete("/v1/domains/{domain}/corrections/{correction}", response_model=ChangedAnswer)
async def undo(domain: str, correction: str, service: TheService, caller: TheCaller) -> Response:
    """Undo a correction: the domain holds again what it held for the source before."""
    caller.require("write", domain)
    written = await service.undo(service.domains.of(domain), correction)
    return JSONResponse({"domain": domain, "generation": written.generation, "segments": written.segments})
