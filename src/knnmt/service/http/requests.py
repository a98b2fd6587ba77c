"""From a request to its parts: caller, domain and texts; and whether the client is still connected."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from knnmt.corpus.glossary import Glossary
from knnmt.service.access import Caller, Role
from knnmt.service.config import Limits
from knnmt.service.domains import Domain, Tags, fits
from knnmt.service.http.guard import DOMAIN
from knnmt.service.http.request_shapes import DecodedBody
from knnmt.service.problems import Problem, ending
from knnmt.service.service import Service
from knnmt.translator.memories import Request as TextRequest
from knnmt.translator.settings import TranslationSettings

Result = TypeVar("Result")
Endpoint = TypeVar("Endpoint", bound=Callable[..., object])
_CALLER = "knnmt.caller"  # the key of the caller in the scope of a request
_ROLE = "needed_role"  # the attribute of an endpoint
_VERSION = re.compile(r"v\d")  # what remains of an address when a client drops its last part
_USUAL_NEIGHBOURS, _CHARACTERS_OF_A_TOKEN = 16, 3
_WRITTEN_BYTES = 1 << 20  # bytes written at once
_bearer = HTTPBearer(auto_error=False, description="An API key, if the service has keys.")


# These dependencies are asynchronous though they await nothing: otherwise FastAPI would call each in a thread.
async def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


TheService = Annotated[Service, Depends(_service)]


async def _caller(request: Request, service: TheService, _described: Annotated[object, Depends(_bearer)]) -> Caller:
    return authenticate(request, service, bearer(request))


TheCaller = Annotated[Caller, Depends(_caller)]


class CallerFirst(APIRoute):
    """A route that asks for the key, and for the role that its endpoint `needs`, before it reads the body.

    FastAPI itself reads and parses the body before it calls any dependency.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that answers a request."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def handled(request: Request) -> Response:
            caller = authenticate(request, request.app.state.service, bearer(request, "DeepL-Auth-Key"))
            if role := getattr(self.endpoint, _ROLE, None):
                caller.require(role, request.path_params.get("domain"))
            return await handle(request)

        return handled


def needs(role: Role) -> Callable[[Endpoint], Endpoint]:
    """Require a role from the callers of an endpoint, for the domain in its path if it has one."""

    def marked(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _ROLE, role)
        return endpoint

    return marked


def bearer(request: Request, scheme: str = "Bearer") -> str | None:
    """The key of the header `Authorization`, in a dialect's own scheme or the usual one."""
    found, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if found.lower() in (scheme.lower(), "bearer") else None


def authenticate(request: Request, service: Service, presented: str | None) -> Caller:
    """The caller who presents a key. The key must be for the domain in the address, and that domain must exist.

    Once the caller of a request is known, its key is not asked again.
    """
    known: Caller | None = request.scope.get(_CALLER)
    if known is not None:
        return known
    caller = service.access.caller(presented, "" if request.client is None else request.client.host)
    request.scope[_CALLER] = caller
    if request.scope.get(DOMAIN) is not None:
        requested_domain(request, service, caller, None)
    return caller


async def require_known_address(request: Request, service: TheService) -> None:
    """Refuse an unknown domain in the address. If the service has keys, `authenticate` does that for each caller."""
    if service.access.is_open:
        authenticate(request, service, None)


def requested_domain(
    request: Request,
    service: Service,
    caller: Caller,
    named: str | None,
    role: Role = "translate",
    languages: Tags = (None, None),
) -> Domain:
    """The domain from the path's prefix, from the body, or the default one, if the caller may use it.

    If no domain is named, and the default one does not fit the requested languages or is only the model, the only
    domain with a memory in these languages is used. The caller's rights are checked before the domain's existence,
    because the names of the domains are secret.
    """
    prefix: str | None = request.scope.get(DOMAIN)
    if prefix is not None and named not in (None, prefix):
        raise Problem(422, "two_domains", "the path names one domain and the body another: name only one")
    name = named if prefix is None else prefix
    if name is None:
        name = _named_by(languages, service, caller)
    if name is None and not caller.sees(service.domains.default):
        raise Problem(403, "forbidden", "this key may not be used for the default domain: name one of its own")
    caller.require(role, service.domains.default if name is None else name)
    require_whole_address(request, service)
    return service.domains.of(name)


def _named_by(languages: Tags, service: Service, caller: Caller) -> str | None:
    """The only domain with a memory in these languages, if the default domain is less fitting."""
    own = service.domains.of(None).languages
    is_wanted = service.config.default is not None if own is None else fits(languages, own)
    if languages == (None, None) or is_wanted:
        return None
    fitting = [
        each.name
        for each in service.domains
        if each.languages is not None and caller.sees(each.name) and fits(languages, each.languages)
    ]
    return fitting[0] if len(fitting) == 1 else None


def require_whole_address(request: Request, service: Service) -> None:
    """Fail with a clear message if a client has dropped the last part of an address."""
    prefix: str | None = request.scope.get(DOMAIN)
    if prefix is not None and _VERSION.fullmatch(prefix) and not service.domains.has(prefix):
        message = (
            f"there is no domain {prefix!r}: the address given to the client must end with a slash, such as /d/NAME/"
        )
        raise Problem(404, "unknown_domain", message)


def require_texts(texts: Sequence[str], limits: Limits) -> None:
    """Raise a problem if there is more text than the limits allow."""
    _require(len(texts) <= limits.texts, f"{len(texts):,} texts", f"{limits.texts:,}")
    longest = max(map(len, texts))
    _require(longest <= limits.text_characters, f"a text of {longest:,} characters", f"{limits.text_characters:,}")
    count = sum(map(len, texts))
    _require(count <= limits.characters, f"{count:,} characters", f"{limits.characters:,}")


def _require(sound: bool, found: str, most: str) -> None:
    if not sound:
        raise Problem(
            413, "too_large", f"the request has {found}; the service takes at most {most}: send several requests"
        )


def _require_little_evidence(texts: Sequence[str], settings: TranslationSettings, limits: Limits) -> None:
    """Raise a problem if the evidence of a request would take much memory: an object for each neighbour of each token.

    settings: of the request
    """
    neighbours = (settings.k or _USUAL_NEIGHBOURS) * (settings.n_best or 1)
    named = sum(map(len, texts)) // _CHARACTERS_OF_A_TOKEN * neighbours
    _require(
        named <= limits.evidence,
        f"texts whose evidence would name about {named:,} neighbours",
        f"{limits.evidence:,}",
    )


async def text_requests(
    body: DecodedBody, settings: TranslationSettings, domain: Domain, service: Service, caller: Caller
) -> list[TextRequest]:
    """The texts of a request as the batcher takes them. Raise a problem for what cannot be, or costs too much."""
    limits = service.config.limits
    require_texts(body.texts, limits)
    limits.check(settings)
    if settings.evidence:
        _require_little_evidence(body.texts, settings, limits)
    languages = body.source_language, body.target_language
    if domain.languages is not None and not fits(languages, domain.languages):
        wanted = f"from {languages[0] or 'any language'} to {languages[1] or 'any language'}"
        message = f"the domain {domain.name!r} translates {' to '.join(domain.languages)}, not {wanted}"
        raise Problem(422, "unsupported_languages", message)
    if body.contexts is not None and len(body.contexts) != len(body.texts):
        raise Problem(
            422,
            "invalid_request",
            f"there are {len(body.texts)} texts and {len(body.contexts)} contexts: give one context for each text",
        )
    terms, (source, target) = await glossary_of(
        service,
        caller,
        [(term.source, term.target) for term in body.glossary],
        body.glossary_id,
        domain.languages or languages,
    )
    if domain.languages is None:
        languages = source, target
    requests = [
        TextRequest(
            text,
            domain.store,
            glossary=terms,
            source_lang=languages[0],
            target_lang=languages[1],
            context=context,
        )
        for text, context in zip(body.texts, body.contexts or [""] * len(body.texts), strict=True)
    ]
    return await _directed(service, requests, settings)


async def glossary_of(
    service: Service, caller: Caller, terms: Sequence[tuple[str, str]], number: str | None, languages: Tags
) -> tuple[Glossary | None, Tags]:
    """The terms of a request, and those of the glossary that it names for other sources; None if there are none.

    Also the languages to translate between: where they are unknown, those of the glossary.

    number: the id of a glossary
    languages: to translate between; each None if it is unknown
    """
    known: tuple[tuple[str, str], ...] = ()
    if number is not None:
        glossary = service.glossaries.of(number, caller)
        fitting = glossary.fitting(*languages)
        if not fitting or (len(fitting) > 1 and None in languages):
            has = ", ".join(f"{each.source} to {each.target}" for each in glossary.dictionaries)
            wanted = " to ".join(each or "any language" for each in languages)
            message = f"the glossary has {has}: state source_language and target_language, not {wanted}"
            raise Problem(422, "invalid_request", message)
        languages = languages[0] or fitting[0].source, languages[1] or fitting[0].target
        known = fitting[0].terms
    given = {source for source, _ in terms}
    used = [*terms, *(term for term in known if term[0] not in given)]
    characters = sum(len(source) + len(target) for source, target in used)
    if not used:
        return None, languages
    return await service.text_threads.run(caller.client, characters, lambda: Glossary(used)), languages


async def _directed(
    service: Service, requests: Sequence[TextRequest], settings: TranslationSettings
) -> list[TextRequest]:
    """Requests with languages, if these choose the model.

    Raise a problem for languages that no model has, and for settings that the store of a request cannot have.
    """
    if service.translator.chooses_model:
        requests = await asyncio.to_thread(service.translator.directed, requests)
    first = requests[0]
    by = service.translator.between(first.languages)
    if first.datastore is not None and settings.retrieval.given():
        wanted = settings.retrieval.over(service.translator.settings.retrieval)
        await asyncio.to_thread(by.memories.retrieval, first.datastore, wanted)  # type: ignore[arg-type]
    return list(requests)


async def receive_file(request: Request, what: str, write: Callable[[bytes], object]) -> None:
    """Write the body of a request to a file as it arrives; an empty body is an error. what: its name in messages"""
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
    """Await some work, and cancel it if the client disconnects."""
    doing, gone = asyncio.ensure_future(work), asyncio.ensure_future(_hung_up(request))
    try:
        try:
            await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if request.app.state.service.ready:
                raise
            raise ending() from None  # uvicorn cancels what is not done after SIGTERM
        if doing.done():
            return doing.result()
        raise Problem(499, "gone", "the client disconnected")
    finally:
        gone.cancel()
        doing.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
