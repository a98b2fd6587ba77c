"""Corrections that a tool sends. They replace what the domain holds for the same sources."""

from __future__ import annotations

from collections.abc import Sequence

from knnmt.service.access import Caller
from knnmt.service.domains import Domain
from knnmt.service.problems import Problem
from knnmt.service.request_shapes import SegmentBody
from knnmt.service.routes.domains import segment_pairs
from knnmt.service.service import Service


async def learn(service: Service, caller: Caller, domain: Domain, pairs: Sequence[tuple[str, str]]) -> None:
    """Store pairs. When this returns, they are stored, and the next request uses them."""
    caller.require("write", domain.name)
    if not all(source and target for source, target in pairs):
        raise Problem(422, "invalid_request", "expected a source and its translation, found an empty text")
    asked = [SegmentBody(source=source, target=target) for source, target in pairs]
    await service.correct(domain, caller.name, segment_pairs(service, caller, asked))
