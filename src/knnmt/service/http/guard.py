"""Checks before a route sees a request, and the domain in its path.

A page of another site can make a browser send requests to this machine; their origin gives them away. A foreign host
name that resolves to this machine (DNS rebinding) is found by the header Host. Bodies are counted as they arrive. If
others can reach the service, answers with an error wait for a client that has had many.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from knnmt.service.config import LEAST_BYTES, Limits
from knnmt.service.http.connections import site_of
from knnmt.service.http.refusals import Refusals
from knnmt.service.problems import Problem

_PREFIX = re.compile(r"/d/([^/]+)(/.*)")
_MEMORIES = re.compile(r"/v1/domains/[^/]+/memories|/v3/translation_memories/files/[^/]+")
_DOCUMENTS = re.compile(r"/v1/documents|/v2/document|/translate_file")
_GLOSSARIES = re.compile(r"/v1/glossaries")
_LINKED = re.compile(r"/|/page/[^/]+|/openapi\.json|/health|/ready|/metrics")  # what a link of another site may open
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
DOMAIN = "knnmt.domain"  # the key of the path's domain in the scope of a request


class Guard:
    """Checks requests before the application does.

    hosts: names by which clients may address the service; None for all, if callers need keys or may be anybody
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Collection[str] | None) -> None:
        self._app, self._limits = app, limits
        self._hosts = None if hosts is None else {*_LOOPBACK, *(host.lower() for host in hosts)}
        self._refusals = Refusals(limits.errors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if prefixed := _PREFIX.fullmatch(scope["path"]):
            scope = {**scope, "path": prefixed[2], "raw_path": prefixed[2].encode(), DOMAIN: prefixed[1]}
        too_large = _TooLarge.of(scope["path"], self._limits)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":  # no browser may guess another type for an answer
                MutableHeaders(scope=message).setdefault("x-content-type-options", "nosniff")
                if message["status"] >= 400 and self._hosts is None and (client := scope["client"]):
                    await asyncio.sleep(self._refusals.seconds(site_of(client[0])))
            await send(message)

        try:
            self._require_host(headers, scope["path"])
            _require_length(headers, too_large)
        except Problem as problem:
            answer = problem.answer()
            answer.headers["Connection"] = "close"  # where the next request begins is unknown
            await answer(scope, receive, sent)
            return
        received, waited, coming, pause = 0, 0.0, True, self._limits.body_seconds

        async def counted() -> Message:
            nonlocal received, waited, coming
            patience = min(pause, max(0.0, pause + received / LEAST_BYTES - waited))
            began = time.monotonic()
            try:
                async with asyncio.timeout(patience if coming else None):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, _too_slow(pause)) from None
            waited += time.monotonic() - began
            coming = message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > too_large.most:  # an exception that FastAPI passes on from where it reads
                raise HTTPException(413, too_large.message)
            return message

        await self._app(scope, counted, sent)

    def _require_host(self, headers: Headers, path: str) -> None:
        host = _name_of(f"//{headers.get('host', '')}")
        if self._hosts is not None and host not in self._hosts:
            raise Problem(
                403, "unknown_host", "the service does not answer to this host name; add it with the setting `hosts`"
            )
        if _is_of_another_site(headers, path):
            raise Problem(403, "other_site", "pages of other sites may not use the service")


@dataclass(frozen=True, slots=True)
class _TooLarge:
    """The limit of a request's body in bytes, and what is said about a larger one."""

    most: int
    message: str

    @classmethod
    def of(cls, path: str, limits: Limits) -> _TooLarge:
        if _MEMORIES.fullmatch(path):
            most = limits.upload_bytes
            return cls(most, f"a memory may have at most {most:,} bytes: compress it, or send it in parts")
        if _DOCUMENTS.fullmatch(path):
            most = limits.document_bytes
            return cls(most, f"a document may have at most {most:,} bytes: split it, and send its parts one by one")
        if _GLOSSARIES.fullmatch(path):
            most = limits.document_bytes
            return cls(most, f"a glossary may have at most {most:,} bytes: divide it")
        most = limits.body_bytes
        return cls(most, f"the body of a request may have at most {most:,} bytes: send several requests")


def _require_length(headers: Headers, too_large: _TooLarge) -> None:
    length = headers.get("content-length")
    if length is not None and "transfer-encoding" in headers:  # a proxy in front may see the end of the body elsewhere
        raise Problem(400, "bad_request", "expected either Content-Length or Transfer-Encoding, found both")
    if length is not None and (not length.isdecimal() or int(length) > too_large.most):
        raise Problem(413, "too_large", too_large.message)


def _too_slow(pause: float) -> str:
    wanted = f"send {LEAST_BYTES:,} bytes or more a second, without a pause of {pause:g} seconds"
    return f"the body stopped or arrived too slowly: {wanted}"


def _is_of_another_site(headers: Headers, path: str) -> bool:
    """Whether a browser says that the request comes from a page of another site or port.

    Links to the page are allowed. Links to other addresses are not, because some of them translate by GET.
    """
    followed = headers.get("sec-fetch-mode") == "navigate" and _LINKED.fullmatch(path) is not None
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not followed:
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    host = f"//{headers.get('host', '')}"
    port = _port_of(host)  # proxies may drop the header
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
