"""What a call says, and its texts, each with its retrieval, or with an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from knnmt.calibration.certainty import Certainty
from knnmt.config import BatchingConfig, DecodingConfig
from knnmt.corpus.glossary import Glossary
from knnmt.errors import InputError, KnnmtError, SettingError
from knnmt.progress import ignore
from knnmt.protection.marked import Code, Marked, written
from knnmt.protection.placeholder_syntax import PLAIN, PlaceholderSyntax
from knnmt.retrieval.retriever import Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.segments.matches import SourceMatcher
from knnmt.settings import NOT_GIVEN
from knnmt.translator.memories import Memories, Request, RequestedLanguages, Store
from knnmt.translator.settings import TranslationSettings
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
class SourceText:
    """A text that is being processed.

    memory: None for the model alone
    error: why it cannot be translated
    marked: with its codes, if they are to be kept
    glossary: terms that its translation must contain
    match: its translation, if a match is taken from the memory
    syntax: what counts as a placeholder in it
    """

    text: str
    memory: TextMemory | None = None
    error: str | None = None
    marked: Marked | None = None
    glossary: Glossary | None = None
    languages: RequestedLanguages = (None, None)
    match: Translation | None = None
    syntax: PlaceholderSyntax = PLAIN

    @property
    def is_open(self) -> bool:
        """Whether it still has to be decoded."""
        return self.error is None and self.match is None

    @property
    def retrieval(self) -> Retrieval | None:
        return None if self.memory is None else self.memory.retrieval


@dataclass(frozen=True, slots=True)
class Call:
    """What is the same for all texts of a call.

    settings: complete (`TranslationSettings.resolved`)
    decoding: of the settings, for an engine
    memory: of texts that do not name their own
    """

    settings: TranslationSettings
    decoding: DecodingConfig
    batching: BatchingConfig
    statistics: Statistics
    memory: TextMemory | Store | None = None
    on_error: OnError = "raise"
    progress: Callable[[int], None] = ignore
    glossary: Glossary | None = None

    @property
    def records(self) -> bool:
        """Whether the search records what evidence is made of."""
        return bool(self.settings.evidence or self.settings.steps)

    @property
    def by_sentence(self) -> bool:
        return bool(self.settings.split_sentences)

    def read(self, texts: Iterator[str | Marked | Request], most: int) -> tuple[list[Request], Exception | None]:
        """The next texts, at most so many, and the error that ends them, if any; texts before it are included."""
        requests: list[Request] = []
        try:
            for text in islice(texts, most):
                request = text if isinstance(text, Request) else Request(text)
                if self.on_error == "raise":
                    _require_text(request.text)
                requests.append(request)
        except Exception as error:  # also errors of the iterable itself
            return requests, error
        return requests, None

    def stores(self, requests: Sequence[Request]) -> set[Store]:
        """The stores that requests retrieve from."""
        named = (self._memory_of(request) for request in requests)
        return {each for each in named if each is not None and not isinstance(each, TextMemory)}

    def source_texts(
        self, requests: Sequence[Request], memories: Memories, needed: set[Store]
    ) -> list[SourceText | KnnmtError]:
        """The texts of requests in one pair of languages, or why they cannot be translated. Equal memories are opened
        once.

        Args:
            needed: stores that may not be closed
        """
        memories.refresh(self.stores(requests), needed)
        known: dict[object, TextMemory | KnnmtError | None] = {}
        texts: list[SourceText | KnnmtError] = []
        for request in requests:
            key = self._memory_of(request), request.settings
            if key not in known:
                known[key] = self._open(request, memories)
            try:
                _require_text(request.text)
                texts.append(self._source_text(request, known[key]))
            except KnnmtError as error:
                texts.append(error)
        return texts

    def failed(self, request: Request, error: KnnmtError) -> SourceText:
        """A text that cannot be translated."""
        return SourceText(request.text if isinstance(request.text, str) else repr(request.text), error=str(error))

    def _memory_of(self, request: Request) -> TextMemory | Store | None:
        return self.memory if request.datastore is NOT_GIVEN else request.datastore

    def _source_text(self, request: Request, memory: TextMemory | KnnmtError | None) -> SourceText:
        if isinstance(memory, KnnmtError):
            raise memory
        marked = request.text if isinstance(request.text, tuple) else None
        text = request.text if isinstance(request.text, str) else written(request.text)
        syntax = PlaceholderSyntax(request.text_kinds, self.settings.placeholders or ())
        match = self._match(text, marked, request.context, memory, syntax)
        return SourceText(text, memory, None, marked, request.glossary, request.languages, match, syntax)

    def _match(
        self, text: str, marked: Marked | None, context: str, memory: TextMemory | None, syntax: PlaceholderSyntax
    ) -> Translation | None:
        """The translation of a text that the memory holds, if it is to be used."""
        if memory is None or any(isinstance(part, Code) for part in marked or ()):
            return None  # memories do not say where codes belong in their targets
        opened = memory.retrieval.store
        language = opened.datastore.manifest.target_language
        with opened.datastore.reading():
            match = taken_over(self.settings.matching, text, context, opened.sources, memory.matcher, language, syntax)
        return match if match is None or marked is None else replace(match, marked=(match.text,))

    def _open(self, request: Request, memories: Memories) -> TextMemory | KnnmtError | None:
        """The retrieval of such requests, or why there is none."""
        memory = self._memory_of(request)
        if isinstance(memory, TextMemory):
            languages = ("source_lang", "target_lang")
            named = [*(each for each in languages if getattr(request, each) is not None), *request.settings.given()]
            if named:
                return SettingError(
                    f"a request cannot give {', '.join(named)}, because its call has a retrieval: also name a datastore"
                )
        if memory is None or isinstance(memory, TextMemory):
            return memory
        try:
            retrieval = memories.retrieval(memory, request.settings.over(self.settings.retrieval))
            opened = memories.open(memory)
            return TextMemory(retrieval, opened.matcher, _certainty(opened.certainty, retrieval))
        except KnnmtError as error:
            return error


def _certainty(known: Certainty | None, retrieval: Retrieval) -> Certainty | None:
    """What is known about the certainty of translations with such a retrieval."""
    plugins = retrieval.gate is not None or retrieval.combiner is not None
    return known if known is not None and not plugins and known.holds_for(retrieval.config) else None


def _require_text(text: object) -> None:
    if isinstance(text, tuple) and all(isinstance(part, str | Code) for part in text):
        text = written(text)
    if not isinstance(text, str):
        raise InputError(f"expected a text to translate, found {type(text).__name__}: {text!r}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"expected a text to translate, found half of a surrogate pair in {text[:60]!r}") from error
