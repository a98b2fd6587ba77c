"""The application, assembled from routers, guards and the answers to errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from starlette.routing import BaseRoute

from knnmt.service import problems
from knnmt.service.dialects import (
    apertium,
    deepl,
    deepl_documents,
    deepl_glossaries,
    deepl_memories,
    libretranslate,
    opuscat,
    tmserver,
)
from knnmt.service.http.answer_shapes import ProblemAnswer
from knnmt.service.http.examples import add_examples
from knnmt.service.http.guard import Guard
from knnmt.service.http.requests import require_known_address
from knnmt.service.metrics import Measured
from knnmt.service.routes import (
    corrections,
    documents,
    domains,
    explain,
    glossaries,
    health,
    memories,
    page,
    translate,
)
from knnmt.service.service import Service
from knnmt.version import __version__

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemAnswer, "description": description}
    for status, description in (
        (400, "the body cannot be read"),
        (401, "no key, or an unknown one"),
        (403, "the key may not do this, or the request comes from another site"),
        (404, "no such domain"),
        (408, "the body did not arrive in time"),
        (409, "this cannot be done with the domain"),
        (413, "the request exceeds a limit"),
        (422, "the request is invalid"),
        (429, "the key has made too many requests, or sent too many files; Retry-After says when to try again"),
        (503, "the service is being stopped, or another process changes the store"),
        (504, "not done in time"),
        (507, "the service's disk is full or not writable"),
    )
}
_DIALECTS = (
    deepl,
    deepl_glossaries,
    deepl_documents,
    deepl_memories,
    libretranslate,
    opuscat,
    apertium,
    tmserver,
)


class _App(FastAPI):
    """FastAPI's application, with examples in its OpenAPI, which is written once and not for every request."""

    def setup(self) -> None:
        self._written: bytes | None = None
        self._writing = asyncio.Lock()
        self.add_route("/openapi.json", self._answer, include_in_schema=False)

    async def _answer(self, _request: Request) -> Response:
        async with self._writing:
            if self._written is None:  # takes a second
                self._written = await asyncio.to_thread(lambda: json.dumps(self.openapi(), ensure_ascii=False).encode())
        return Response(self._written, media_type="application/json")

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            add_examples(super().openapi())
        return super().openapi()


@cache
def _routes() -> list[BaseRoute]:
    """The routes, shared by all applications, because FastAPI takes long to prepare them.

    They find their service by the request.
    """
    made = FastAPI(openapi_url=None, responses=_PROBLEMS)
    for routes in (translate, explain, domains, corrections, memories, documents, glossaries, health, page):
        made.include_router(routes.router)
    for dialect in _DIALECTS:
        made.include_router(dialect.router, dependencies=[Depends(require_known_address)])
    return made.router.routes


def make_app(service: Service) -> FastAPI:
    """Make the application of a service. The service ends with it."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = _App(
        title="knnmt",
        summary="Nearest-neighbour machine translation: one model, every domain.",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's documentation page would load scripts from other sites
        redoc_url=None,
    )
    app.state.service = service
    app.router.routes.extend(_routes())
    problems.install(app)
    config = service.config
    hosts = None if not service.access.is_open or config.open_to_all else (config.host, *config.hosts)
    app.add_middleware(Measured, metrics=service.metrics)
    app.add_middleware(Guard, limits=config.limits, hosts=hosts)
    return app
