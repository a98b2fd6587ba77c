"""The answers to all errors: JSON with a code for programs and a message for people, without stack traces."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from knnmt.errors import (
    DatastoreDamagedError,
    DatastoreExistsError,
    DatastoreLockedError,
    InputError,
    KnnmtError,
    NoTranslationError,
    SettingError,
    StorageError,
)

_log = logging.getLogger("knnmt.service")
_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    415: "unsupported_media_type",
}


class Problem(Exception):  # noqa: N818 - what goes wrong is a client's as often as ours
    """An error that ends a request. retry_after: seconds after which the client may try again"""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None, **more: Any) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after, self.more = status, code, message, retry_after, more

    def answer(self) -> JSONResponse:
        """The response for this problem."""
        headers = {} if self.retry_after is None else {"Retry-After": str(max(1, round(self.retry_after)))}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse({"code": self.code, "message": self.message, **self.more}, self.status, headers)


def ending() -> Problem:
    """The problem of requests that come while the service is being stopped."""
    return Problem(503, "ending", "the service is being stopped", retry_after=5)


def problem_of(error: KnnmtError) -> Problem:
    """Our own errors as problems. For errors of the machine, paths go to the log and not to the client."""
    if isinstance(error, SettingError | InputError | NoTranslationError):
        return Problem(422, "invalid_request", str(error))
    if isinstance(error, DatastoreLockedError):
        return Problem(503, "locked", "another process is changing the domain's store", retry_after=2)
    if isinstance(error, DatastoreDamagedError):
        _log.error("%s", error)
        return Problem(503, "damaged", str(error))
    if isinstance(error, DatastoreExistsError):
        return Problem(409, "exists", "a domain of that name already exists")
    _log.error("%s: %s", type(error).__name__, error)
    if isinstance(error, StorageError):
        return Problem(507, "storage", "the service cannot write to its disk; nothing was changed")
    return Problem(500, "internal", "the service failed; its log says why")


def install(app: FastAPI) -> None:
    """Let the application answer every error in this way."""

    @app.exception_handler(Problem)
    async def _problem(_request: Request, problem: Problem) -> JSONResponse:
        return problem.answer()

    @app.exception_handler(KnnmtError)
    async def _own(request: Request, error: KnnmtError) -> JSONResponse:
        domains = request.app.state.service.domains
        problem = domains.deleted_in(error) or problem_of(error)
        problem.message = domains.named_in(problem.message)
        return problem.answer()

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        kind = request.headers.get("content-type", "nothing")
        if "json" not in kind and any(each["loc"] == ("body",) for each in error.errors()):
            message = f"expected JSON as the body, sent as Content-Type: application/json; found {kind[:80]}"
            return Problem(422, "invalid_request", message).answer()
        details = [
            {"where": ".".join(str(part) for part in each["loc"]), "message": each["msg"]} for each in error.errors()
        ]
        shown = "; ".join(f"{each['where']}: {each['message']}" for each in details[:3])
        return Problem(422, "invalid_request", f"the request is invalid: {shown}", details=details[:20]).answer()

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        message = str(error.detail)
        if error.status_code == 400 and error.__cause__ is not None:
            message = "the body cannot be read: expected JSON in UTF-8, nested as the OpenAPI says"
        elif error.status_code == 404 and message == "Not Found":
            message = "there is nothing at this address; GET /openapi.json lists the addresses"
        elif error.status_code == 405 and (allowed := (error.headers or {}).get("Allow")):
            message = f"expected {allowed} at this address, found {request.method}; GET /openapi.json says more"
        answer = Problem(error.status_code, _CODES.get(error.status_code, "error"), message).answer()
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(ClientDisconnect)
    async def _gone(_request: Request, _error: ClientDisconnect) -> JSONResponse:
        return Problem(499, "gone", "the client hung up").answer()  # nobody reads it, and the log is spared

    @app.exception_handler(Exception)
    async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return Problem(500, "internal", "the service failed; its log says why").answer()
