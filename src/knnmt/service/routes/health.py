"""`/health`: whether the process lives. `/ready`: whether it accepts requests. `/metrics`: metrics."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from knnmt.service.http.requests import TheCaller, TheService
from knnmt.service.problems import Problem
from knnmt.version import __version__

router = APIRouter(tags=["service"])


@router.get("/health")
async def health() -> dict[str, str]:
    """Confirm that the process lives."""
    return {"status": "ok", "version": __version__}


@router.get("/ready")
async def ready(service: TheService) -> Response:
    """Whether the service accepts requests; 503 while it ends."""
    if not service.ready:
        raise Problem(503, "ending", "the service is being stopped", retry_after=5)
    return JSONResponse({"status": "ready", "waiting": service.batcher.waiting})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(service: TheService, caller: TheCaller) -> Response:
    """The metrics of the service, for Prometheus."""
    caller.require("translate")
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)
