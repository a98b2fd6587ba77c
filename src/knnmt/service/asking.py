"""From a request to what is asked: who asks, which domain, which texts; and whether anybody still waits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from knnmt.corpus.glossary import Glossary, Term
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.service.access import Caller, Role
from knnmt.service.config import Limits
from knnmt.service.domains import Domain
from knnmt.service.guard import DOMAIN
from knnmt.service.problems import Problem
from knnmt.service.service import Service
from knnmt.service.shapes import Decoded
from knnmt.translator.memories import Request as TextRequest

Result = TypeVar("Result")
_VERSION = re.compile(r"v\d")  # what is left of an address whose last part a client has dropped
_WRITTEN_BYTES = 1 << 20  # at once
_bearer = HTTPBearer(auto_error=False, description="An API key, where the service has keys.")


# What requests depend on is asynchronous though it waits for nothing: else each would be called in another thread.
async def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


TheService = Annotated[Service, Depends(_service)]


async def _caller(
    request: Request,
    service: TheService,
    presented: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Caller:
    return who_asks(request, service, None if presented is None else presented.credentials)


TheCaller = Annotated[Caller, Depends(_caller)]


def who_asks(request: Request, service: Service, presented: str | None) -> Caller:
    """Who presents a key. It must be one for the domain in the address, and that domain must be there."""
    caller = service.access.caller(presented)
    if request.scope.get(DOMAIN) is not None:
        domain_asked(request, service, caller, None)
    return caller


async def address_is_known(request: Request, service: TheService) -> None:
    """Refuse a domain in the address that is not there; where there are keys, `who_asks` does, which knows whose."""
    if service.access.is_open:
        who_asks(request, service, None)


def domain_asked(
    request: Request, service: Service, caller: Caller, named: str | None, role: Role = "translate"
) -> Domain:
    """The domain of the path's prefix, of the body, or the default one, for a caller who may use it.

    Whether the caller may is asked before whether it is there: which domains there are is a secret.
    """
    prefix: str | None = request.scope.get(DOMAIN)
    if prefix is not None and named not in (None, prefix):
        raise Problem(422, "two_domains", "the path names one domain and the body another: name one of them")
    name = named if prefix is None else prefix
    if name is None and not caller.sees(service.domains.default):
        raise Problem(403, "forbidden", "this key may not be used for the default domain: name one that it is for")
    caller.require(role, service.domains.default if name is None else name)
    require_whole_address(request, service)
    return service.domains.of(name)


def require_whole_address(request: Request, service: Service) -> None:
    """Refuse an address whose last part a client has dropped, and say so."""
    prefix: str | None = request.scope.get(DOMAIN)
    if prefix is not None and _VERSION.fullmatch(prefix) and not service.domains.has(prefix):
        message = f"there is no domain {prefix!r}: clients need an address that ends with a slash, such as /d/NAME/"
        raise Problem(404, "unknown_domain", message)


def require_texts(texts: Sequence[str], limits: Limits) -> None:
    """Refuse more text than the limits allow."""
    _require(len(texts) <= limits.texts, f"{len(texts):,} texts", f"{limits.texts:,}")
    longest = max(map(len, texts))
    _require(longest <= limits.text_characters, f"a text of {longest:,} characters", f"{limits.text_characters:,}")
    count = sum(map(len, texts))
    _require(count <= limits.characters, f"{count:,} characters", f"{limits.characters:,}")


def _require(sound: bool, found: str, most: str) -> None:
    if not sound:
        raise Problem(413, "too_large", f"the request has {found}; the service takes at most {most}: send several")


def text_requests(asked: Decoded, domain: Domain, limits: Limits) -> list[TextRequest]:
    """The texts of a request as the batcher takes them."""
    require_texts(asked.texts, limits)
    if asked.contexts is not None and len(asked.contexts) != len(asked.texts):
        raise Problem(
            422,
            "invalid_request",
            f"there are {len(asked.texts)} texts and {len(asked.contexts)} contexts: give as many",
        )
    if asked.beam > limits.beam:
        raise Problem(422, "invalid_request", f"the service searches with a beam of at most {limits.beam}")
    settings = retrieval_settings(asked, limits)
    terms = Glossary([Term(term.source, term.target) for term in asked.glossary]) if asked.glossary else None
    return [
        TextRequest(
            text,
            domain.store,
            settings,
            terms,
            source_lang=asked.source_language,
            target_lang=asked.target_language,
            context=context,
        )
        for text, context in zip(asked.texts, asked.contexts or [""] * len(asked.texts), strict=True)
    ]


def retrieval_settings(asked: Decoded, limits: Limits) -> RetrievalSettings:
    """The settings of retrieval, refused where they cost more than the limits allow."""
    settings = asked.retrieval.settings()
    most = limits.neighbours
    if settings.k is not None and settings.k > most:
        raise Problem(422, "invalid_request", f"the service looks for at most {most} neighbours a step")
    return settings


async def require_retrieval(service: Service, requests: Sequence[TextRequest]) -> None:
    """Refuse languages that the model has not, and settings that the store of a request cannot have."""
    first = requests[0]
    by = service.translator.between(first.languages)
    if first.datastore is not None and first.settings.given():
        await asyncio.to_thread(by.memories.retrieval, first.datastore, first.settings)  # type: ignore[arg-type]


async def sent_file(request: Request, what: str, write: Callable[[bytes], object]) -> None:
    """Write the body of a request, as it comes, where it is to go; one without is refused. what: it is, for people"""
    pieces: list[bytes] = []
    size = found = 0
    async for piece in request.stream():
        pieces.append(piece)
        size, found = size + len(piece), found + len(piece)
        if size >= _WRITTEN_BYTES:
            await asyncio.to_thread(write, b"".join(pieces))
            pieces, size = [], 0
    if not found:
        raise Problem(422, "invalid_request", f"expected {what} as the body of the request, found nothing")
    await asyncio.to_thread(write, b"".join(pieces))


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """What comes of some work, which ends when the client hangs up."""
    doing, gone = asyncio.ensure_future(work), asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise Problem(499, "gone", "the client hung up")
    finally:
        gone.cancel()
        doing.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
