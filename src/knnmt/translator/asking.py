"""From the arguments of a call to texts, each with its retrieval, or with an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from knnmt.calibration.certainty import Certainty
from knnmt.config import MatchConfig
from knnmt.corpus.glossary import Glossary
from knnmt.errors import InputError, KnnmtError, SettingError
from knnmt.protection.marked import Code, Marked, written
from knnmt.protection.placeholder_syntax import PLAIN, PlaceholderSyntax
from knnmt.retrieval.retriever import Retrieval
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.segments.matches import SourceMatcher
from knnmt.settings import NOT_GIVEN
from knnmt.translator.memories import AskedLanguages, Memories, Request, Store
from knnmt.translator.taking_over import taken_over
from knnmt.translator.translation import Translation

OnError = Literal["raise", "continue"]


@dataclass(frozen=True, slots=True)
class TextMemory:
    """How a text retrieves, how its match is found, and how certain its translation is, if that is known."""

    retrieval: Retrieval
    matcher: SourceMatcher
    certainty: Certainty | None = None


@dataclass(frozen=True, slots=True)
class AskedText:
    """A text that is being processed.

    memory: None for the model alone
    error: why it cannot be translated
    marked: with its codes, if they are to be kept
    glossary: terms that its translation must contain
    taken: its translation, if a match is taken from the memory
    syntax: what counts as a placeholder in it
    """

    text: str
    memory: TextMemory | None = None
    error: str | None = None
    marked: Marked | None = None
    glossary: Glossary | None = None
    languages: AskedLanguages = (None, None)
    taken: Translation | None = None
    syntax: PlaceholderSyntax = PLAIN

    @property
    def is_open(self) -> bool:
        """Whether it still has to be decoded."""
        return self.error is None and self.taken is None

    @property
    def retrieval(self) -> Retrieval | None:
        return None if self.memory is None else self.memory.retrieval


@dataclass(frozen=True, slots=True)
class Asking:
    """The settings for the texts of a call.

    memory, settings: of texts that do not have their own
    matching: which matches are taken from the memory
    placeholders: patterns of placeholders of one's own
    """

    memory: TextMemory | Store | None
    settings: RetrievalSettings
    matching: MatchConfig
    on_error: OnError
    placeholders: tuple[str, ...] = ()

    def window(
        self,
        texts: Iterator[str | Marked | Request],
        most: int,
        memories: Callable[[AskedLanguages], Memories],
        directing: Callable[[list[Request]], list[Request]],
    ) -> tuple[list[AskedText], Exception | None]:
        """The next texts, at most so many, and the error that ends them, if any; texts before the error are included.

        memories: the open stores of texts in these languages
        directing: gives languages to requests that name none
        """
        requests: list[Request] = []
        failure: Exception | None = None
        try:
            for text in islice(texts, most):
                request = text if isinstance(text, Request) else Request(text)
                if self.on_error == "raise":
                    _require_text(request.text)
                requests.append(request)
        except Exception as error:  # also errors of the iterable itself
            failure = error
        ready: list[AskedText] = []
        if not requests:
            return ready, failure
        try:
            ready.extend(self._with_memories(directing(requests), memories))
        except KnnmtError as error:  # it comes before the other error, if there is one
            failure = error
        return ready, failure

    def _with_memories(
        self, requests: Sequence[Request], memories: Callable[[AskedLanguages], Memories]
    ) -> Iterator[AskedText]:
        """Requests with the retrieval of each. Equal ones are looked up once."""
        own = [self.memory if each.datastore is NOT_GIVEN else each.datastore for each in requests]
        of_languages = {each.languages: _found(memories, each.languages) for each in requests}
        stores: dict[AskedLanguages, set[Store]] = {each: set() for each in of_languages}
        for request, store in zip(requests, own, strict=True):
            if store is not None and not isinstance(store, TextMemory):
                stores[request.languages].add(store)
        for languages, found in of_languages.items():
            if isinstance(found, Memories):
                found.refresh(stores[languages], set().union(*stores.values()))
        known: dict[object, TextMemory | KnnmtError | None] = {}
        for request, memory in zip(requests, own, strict=True):
            asked = request.languages, memory, request.settings
            if asked not in known:
                known[asked] = self._opened(memory, request, of_languages[request.languages])
            ready = known[asked]
            try:
                _require_text(request.text)
                if isinstance(ready, KnnmtError):
                    raise ready
            except KnnmtError as error:
                if self.on_error == "raise":
                    raise
                shown = request.text if isinstance(request.text, str) else repr(request.text)
                yield AskedText(shown, error=str(error))
            else:
                marked = request.text if isinstance(request.text, tuple) else None
                text = request.text if isinstance(request.text, str) else written(request.text)
                syntax = PlaceholderSyntax(request.text_kinds, self.placeholders)
                taken = self._taken_over(text, marked, request.context, ready, syntax)
                yield AskedText(text, ready, None, marked, request.glossary, request.languages, taken, syntax)

    def _taken_over(
        self, text: str, marked: Marked | None, context: str, memory: TextMemory | None, syntax: PlaceholderSyntax
    ) -> Translation | None:
        if memory is None or any(isinstance(part, Code) for part in marked or ()):
            return None  # memories do not say where codes belong in their targets
        opened = memory.retrieval.store
        language = opened.datastore.manifest.target_language
        with opened.datastore.reading():
            found = taken_over(self.matching, text, context, opened.sources, memory.matcher, language, syntax)
        return found if found is None or marked is None else replace(found, marked=(found.text,))

    def _opened(
        self, memory: TextMemory | Store | None, request: Request, memories: Memories | KnnmtError
    ) -> TextMemory | KnnmtError | None:
        """The retrieval of such requests, or why there is none."""
        if memory is None or isinstance(memories, KnnmtError):
            return None if isinstance(memories, Memories) else memories
        if isinstance(memory, TextMemory):
            languages = ("source_lang", "target_lang")
            told = [*(each for each in languages if getattr(request, each) is not None), *request.settings.given()]
            if told:
                return SettingError(
                    f"a request cannot give {', '.join(told)}, because its call has a retrieval: also name a datastore"
                )
            return memory
        try:
            retrieval = memories.retrieval(memory, request.settings.over(self.settings))
            opened = memories.open(memory)
            return TextMemory(retrieval, opened.matcher, _certainty(opened.certainty, retrieval))
        except KnnmtError as error:
            return error


def _certainty(known: Certainty | None, retrieval: Retrieval) -> Certainty | None:
    """What is known about the certainty of translations with such a retrieval."""
    own_parts = retrieval.gate is not None or retrieval.combiner is not None
    return known if known is not None and not own_parts and known.holds_for(retrieval.config) else None


def _found(memories: Callable[[AskedLanguages], Memories], languages: AskedLanguages) -> Memories | KnnmtError:
    try:
        return memories(languages)
    except KnnmtError as error:
        return error


def _require_text(text: object) -> None:
    if isinstance(text, tuple) and all(isinstance(part, str | Code) for part in text):
        text = written(text)
    if not isinstance(text, str):
        raise InputError(f"expected a text to translate, found {type(text).__name__}: {text!r}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"expected a text to translate, found half of a surrogate pair in {text[:60]!r}") from error
