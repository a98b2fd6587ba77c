"""The translators of a call's languages: others with the same weights, or with another shipped model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import RLock
from typing import Any, Generic, Protocol, Self, TypeVar

from knnmt.engine.base import Engine
from knnmt.engine.language_codes import Languages
from knnmt.engine.model_choice import choose_model, model_for_texts
from knnmt.engine.shipped import shipped_model, shipped_models
from knnmt.errors import KnnmtError
from knnmt.protection.marked import written
from knnmt.settings import NOT_GIVEN
from knnmt.translator.call import TextMemory
from knnmt.translator.memories import Memories, Request, RequestedLanguages, Store, languages_of

_MAX_DIRECTIONS = 256  # translators for other languages that are remembered


class _Translator(Protocol):
    engine: Engine[Any]
    memories: Memories

    def for_languages(self, source_lang: str | None, target_lang: str | None) -> Self: ...

    def with_model(self, model: str) -> Self: ...


Some = TypeVar("Some", bound=_Translator)


class Directions(Generic[Some]):
    """A translator and those that it made for other languages. Threads may share them.

    Args:
        first: the translator
        choose_model: whether the languages choose among the shipped models
    """

    def __init__(self, first: Some, choose_model: bool) -> None:
        self._first = first
        self.choose_model = choose_model
        self._changing = RLock()
        self._others: dict[RequestedLanguages, Some] = {}

    def all(self) -> list[Some]:
        """All translators, each once."""
        with self._changing:
            return list(dict.fromkeys([self._first, *self._others.values()]))

    def between(self, languages: RequestedLanguages) -> Some:
        """The translator for these languages; None is any."""
        if languages == (None, None):
            return self._first
        with self._changing:
            found = self._others.get(languages)
            if found is None:
                while len(self._others) >= _MAX_DIRECTIONS:
                    self._others.pop(next(iter(self._others)))
                found = self._others[languages] = self._between(*languages)
            return found

    def for_store(self, store: Store) -> Some:
        """The translator that has a store open, or else the one for the store's languages."""
        if not self.choose_model:
            return self._first
        opened = next((each for each in self.all() if each.memories.holds(store)), None)
        if opened is not None:
            return opened
        languages = languages_of(store)
        return self.between(languages) if shipped_model(*languages) else self._first  # whose error names its model

    def _between(self, source: str | None, target: str | None) -> Some:
        engine = self._first.engine
        if self.choose_model:
            name = choose_model(source, target, "the text", "").name
            wanted = Languages(*shipped_models()[name])
        else:
            wanted = engine.for_languages(
                source or engine.languages.source, target or engine.languages.target
            ).languages
        for each in self.all():
            if each.engine.languages == wanted:
                return each
        return (
            self._first.with_model(name)
            if self.choose_model
            else self._first.for_languages(wanted.source, wanted.target)
        )


class Directing:
    """Gives languages to those requests of a call that name none, if the languages choose the model.

    A request gets the languages of its store. Requests without a store get those that the first texts look like.

    Args:
        directions: the translators
        memory: the store or retrieval of requests that do not name a store
    """

    def __init__(self, directions: Directions[Any], memory: TextMemory | Store | None) -> None:
        self._directions, self._memory = directions, memory
        self._decided: RequestedLanguages | None = None

    def __call__(self, requests: Sequence[Request]) -> list[Request]:
        """The requests with languages."""
        if not self._directions.choose_model or isinstance(self._memory, TextMemory):
            return list(requests)
        open_ones = [each for each in requests if each.languages == (None, None)]
        without_store = [each for each in open_ones if self._store(each) is None]
        if without_store and self._decided is None:
            choice = model_for_texts(map(_text, without_store), "the text")
            self._decided = choice.source, choice.target
        return [self._with_languages(each) if each.languages == (None, None) else each for each in requests]

    def _store(self, request: Request) -> Store | None:
        if request.datastore is not NOT_GIVEN:
            return request.datastore
        return None if isinstance(self._memory, TextMemory) else self._memory

    def _with_languages(self, request: Request) -> Request:
        store = self._store(request)
        if store is None:
            source, target = self._decided or (None, None)
        else:
            try:
                languages = self._directions.for_store(store).engine.languages
            except KnnmtError:  # of the store, which is raised again when the store is opened
                return request
            source, target = languages.source, languages.target
        return replace(request, source_lang=source, target_lang=target)


def _text(request: Request) -> str:
    if isinstance(request.text, str):
        return request.text
    return written(request.text) if isinstance(request.text, tuple) else ""
