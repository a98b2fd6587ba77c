"""What is refused before a route sees it, and the domain in a path.

A page of another site can make a browser send requests to this machine: those are known by their origin. A name that
leads here though it is another's (DNS rebinding) is known by the header Host. Bodies are counted while they come.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from knnmt.service.config import Limits
from knnmt.service.problems import Problem

_PREFIX = re.compile(r"/d/([^/]+)(/.*)")
_UPLOADS = re.compile(
    r"/v1/domains/[^/]+/memories|/v1/documents|/v2/document|/translate_file|/v3/translation_memories/files/[^/]+"
)
_PIECE_SECONDS = 30.0  # that a client may take between two pieces of a body
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
DOMAIN = "knnmt.domain"  # where the domain of a path stands in the scope of a request


class Guard:
    """Looks at requests before the application does.

    hosts: names that it may be asked by; None for all, where callers have keys to show
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Collection[str] | None) -> None:
        self._app, self._limits = app, limits
        self._hosts = None if hosts is None else {*_LOOPBACK, *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if prefixed := _PREFIX.fullmatch(scope["path"]):
            scope = {**scope, "path": prefixed[2], "raw_path": prefixed[2].encode(), DOMAIN: prefixed[1]}
        is_upload = _UPLOADS.fullmatch(scope["path"]) is not None
        most = self._limits.upload_bytes if is_upload else self._limits.body_bytes
        try:
            self._require_host(headers)
            _require_length(headers, most)
        except Problem as problem:
            await problem.answer()(scope, receive, send)
            return
        received, coming = 0, True

        async def counted() -> Message:
            nonlocal received, coming
            try:
                async with asyncio.timeout(_PIECE_SECONDS if coming else None):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"nothing more of the body came for {_PIECE_SECONDS:g} seconds") from None
            coming = message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > most:  # as an exception that FastAPI hands on from where it reads
                raise HTTPException(413, _too_large(most).message)
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":  # no browser may take an answer for another kind than it is
                MutableHeaders(scope=message).setdefault("x-content-type-options", "nosniff")
            await send(message)

        await self._app(scope, counted, sent)

    def _require_host(self, headers: Headers) -> None:
        host = _name_of(f"//{headers.get('host', '')}")
        if self._hosts is not None and host not in self._hosts:
            raise Problem(403, "unknown_host", "the service is not asked by this name; its setting `hosts` may add it")
        if _is_of_another_site(headers):
            raise Problem(403, "other_site", "pages of other sites may not ask the service")


def _require_length(headers: Headers, most: int) -> None:
    length = headers.get("content-length")
    if length is not None and "transfer-encoding" in headers:  # a proxy before it may see the end of the body elsewhere
        raise Problem(400, "bad_request", "expected one length of the body, found Content-Length and Transfer-Encoding")
    if length is not None and (not length.isdecimal() or int(length) > most):
        raise _too_large(most)


def _is_of_another_site(headers: Headers) -> bool:
    """Whether a browser says that a page of another site, or of another port of this machine, asks; links may."""
    followed = headers.get("sec-fetch-mode") == "navigate"
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not followed:
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    host = f"//{headers.get('host', '')}"
    port = _port_of(host)  # proxies may leave it out
    return origin == "null" or _name_of(origin) != _name_of(host) or port not in (None, _port_of(origin))


def _name_of(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def _port_of(address: str) -> int | None:
    try:
        parts = urlsplit(address)
        return parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None


def _too_large(most: int) -> Problem:
    return Problem(413, "too_large", f"the body of a request may have at most {most:,} bytes")
