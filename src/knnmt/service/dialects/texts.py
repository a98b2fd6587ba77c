"""Translates the texts of a request, with or without mark-up, through the batcher, and stores corrections of them."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from fastapi import Request

from knnmt.corpus.glossary import Glossary
from knnmt.protection.marked import Code, Marked, written
from knnmt.protection.tags import with_tags
from knnmt.service.access import Caller
from knnmt.service.dialects.directions import Direction
from knnmt.service.domains import Domain
from knnmt.service.http.request_shapes import SegmentBody
from knnmt.service.http.requests import require_texts, while_connected
from knnmt.service.problems import Problem
from knnmt.service.routes.domains import segment_pairs
from knnmt.service.service import Service
from knnmt.translator.memories import Request as TextRequest
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.translation import Translation

_LINE_IN_TEXT = re.compile(r"(?<=\S)[ \t]*\r?\n[ \t]*(?=\S)")
NEVER_TRANSLATED = ("script", "style")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWork:
    """How to translate texts.

    markup: whether texts are XML or HTML
    ignored: elements that stay untranslated
    one_line: whether a line end inside a text does not end a sentence
    """

    direction: Direction
    settings: TranslationSettings = field(default_factory=TranslationSettings)
    glossary: Glossary | None = None
    markup: bool = False
    ignored: Collection[str] = ()
    one_line: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A translation, written in the way of its text."""

    text: str
    translation: Translation


async def translated(
    request: Request, service: Service, caller: Caller, domain: Domain, texts: Sequence[str], work: TextWork
) -> list[Done]:
    """Translate texts in order, while the client stays connected."""
    requests = await _requests(service, caller, domain, texts, work)
    made = await while_connected(request, service.translate(requests, work.settings, caller.client))
    for each in made:
        if each.error is not None:
            raise Problem(422, "no_translation", service.domains.named_in(each.error))
    return await service.text_threads.each(
        caller.client, made, lambda each: Done(_written(each, work), each), lambda each: len(each.text)
    )


async def order(service: Service, caller: Caller, domain: Domain, texts: Sequence[str], work: TextWork) -> None:
    """Translate texts that will be asked for later, so that their results are remembered; do nothing if the client has
    its share of texts already.
    """
    requests = await _requests(service, caller, domain, texts, work)
    if not service.texts.try_hold(caller.client, len(requests)):
        return
    loop = asyncio.get_running_loop()
    for future in service.batcher.submit(requests, work.settings, client=caller.client):
        future.add_done_callback(lambda _done: loop.call_soon_threadsafe(service.texts.give_back, caller.client, 1))


async def _requests(
    service: Service, caller: Caller, domain: Domain, texts: Sequence[str], work: TextWork
) -> list[TextRequest]:
    caller.require("translate", domain.name)
    if not texts:
        raise Problem(422, "invalid_request", "expected at least one text")
    require_texts(texts, service.config.limits)
    service.config.limits.check(work.settings)
    source, target = work.direction.model_languages

    def made(text: str) -> TextRequest:
        marked = _marked(text, work)
        return TextRequest(marked, domain.store, glossary=work.glossary, source_lang=source, target_lang=target)

    return await service.text_threads.each(caller.client, texts, made, len)


def _marked(text: str, work: TextWork) -> str | Marked:
    if work.markup:
        parts = with_tags(text, "xml", [name.lower() for name in work.ignored])
        return tuple(part if isinstance(part, Code) else _lines(html.unescape(part), work) for part in parts)
    return _lines(text, work)


def _lines(text: str, work: TextWork) -> str:
    return _LINE_IN_TEXT.sub(" ", text) if work.one_line else text


def _written(made: Translation, work: TextWork) -> str:
    if not work.markup:
        return made.text if made.marked is None else written(made.marked)
    parts = (made.text,) if made.marked is None else made.marked
    return "".join(part.raw if isinstance(part, Code) else html.escape(part, quote=False) for part in parts)


async def learn(service: Service, caller: Caller, domain: Domain, pairs: Sequence[tuple[str, str]]) -> None:
    """Store pairs. When this returns, they are stored, and the next request uses them."""
    caller.require("write", domain.name)
    if not all(source and target for source, target in pairs):
        raise Problem(422, "invalid_request", "expected a source and its translation, found an empty text")
    asked = [SegmentBody(source=source, target=target) for source, target in pairs]
    await service.correct(domain, caller.name, segment_pairs(service, caller, asked))
