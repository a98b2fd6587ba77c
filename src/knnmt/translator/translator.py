"""`Translator`: a loaded model, its languages and memories, and the calls that translate with them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, Unpack, cast, overload

import torch

from knnmt.config import BatchingConfig, DecodingConfig, ExactMatches, MatchConfig, OpenStores, check
from knnmt.corpus.glossary import Glossary
from knnmt.engine.loading import load_engine
from knnmt.engine.model_choice import choose_model
from knnmt.engine.shipped import DEFAULT_MODEL, shipped_model, shipped_models
from knnmt.errors import NoTranslationError, NoTranslationWarning, SettingError
from knnmt.index.progress import ignore
from knnmt.protection.marked import Marked
from knnmt.protection.placeholder_syntax import checked_patterns
from knnmt.protection.tags import TAGS, Tags
from knnmt.retrieval.matches import SourceMatcher
from knnmt.retrieval.retriever import Retrieval
from knnmt.retrieval.settings import RetrievalKeywords, RetrievalSettings, settings_of
from knnmt.retrieval.statistics import Statistics
from knnmt.threads import require_threads
from knnmt.translator.asking import AskedText, Asking, OnError, TextMemory
from knnmt.translator.directions import Directing, Directions
from knnmt.translator.memories import AskedLanguages, Bounds, Memories, Request, Store, languages_of, model_of
from knnmt.translator.stages import Call, Stages
from knnmt.translator.translation import Translation
from knnmt.version import __version__

_ON_A_GPU = BatchingConfig(sentences=128)


class DatastoreSettings(RetrievalKeywords, total=False):
    """The settings of one call about its memory.

    settings: settings of retrieval as a whole; keywords take precedence
    retrieval: a complete retrieval, instead of all others
    """

    datastore: Store | None
    settings: RetrievalSettings | None
    retrieval: Retrieval | None


class Settings(DatastoreSettings, total=False):
    """The settings of one call; `Translator.stream` says what each does."""

    evidence: bool
    steps: bool
    match: bool
    exact_matches: ExactMatches
    match_threshold: int
    statistics: Statistics | None
    on_error: OnError

    beam: int
    n_best: int
    batch_size: int | None
    batch_tokens: int | None
    window: int | None
    split_sentences: bool
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    max_tokens: int | None

    protect: bool
    tags: Tags
    placeholders: Collection[str]
    glossary: Glossary | None


class Translator:
    """A loaded model that translates.

    Threads may share a translator: several may translate at the same time, and another may change the stores through
    its own `Datastore`. Each batch keeps the state of a store that it began with.

    `close`, or the end of a `with` block, frees the memory of the model and the stores.

    model: the name of a shipped model, a checkpoint directory, or a Hugging Face name; by default the model that the
        datastore was built with, or without a datastore the shipped one for the languages of each call (`directed`)
    device: "cpu", "cuda", "cuda:N"; by default CUDA if there is a GPU
    dtype: "float32", "bfloat16", "float16" (CUDA), "int8" (CPU), or "auto" for the fastest on this machine; by default
        float32 on a CPU and float16 on CUDA
    threads: CPU threads of the whole process; by default PyTorch's number
    source_lang, target_lang: tags (de, pt-BR), or a multilingual model's own codes; by default the datastore's
    datastore: the memory of calls that name no other
    exact: search every key of a store, even if it has an index
    open_stores: how many stores stay open for later calls, those of all its models and languages together
    settings: settings of retrieval, the default for calls; each may also be given as a keyword
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        threads: int | None = None,
        source_lang: str | None = None,
        target_lang: str | None = None,
        datastore: Store | None = None,
        exact: bool = False,
        open_stores: OpenStores | None = None,
        settings: RetrievalSettings | None = None,
        **keywords: Unpack[RetrievalKeywords],
    ) -> None:
        # For __reduce__: paths that are valid in any working directory.
        self._asked: dict[str, Any] = {
            "model": _wherever(model),
            "device": device,
            "dtype": dtype,
            "threads": threads,
            "source_lang": source_lang,
            "target_lang": target_lang,
            "datastore": Path(datastore).absolute() if isinstance(datastore, str | Path) else datastore,
            "exact": exact,
            "open_stores": open_stores,
            "settings": settings_of(settings, **keywords),
        }
        if threads is not None:
            check(threads >= 1, f"threads must be at least 1, got {threads}")
            require_threads(threads)
            torch.set_num_threads(threads)
        name = model or _default_model(datastore, source_lang, target_lang)
        self.chooses_model = (model, source_lang, target_lang) == (None,) * 3 and name in shipped_models()
        if datastore is not None:
            of_store = languages_of(datastore)
            if name in shipped_models() and (fitting := shipped_model(*of_store)) not in (None, name):
                place = datastore if isinstance(datastore, str | Path) else datastore.path
                raise SettingError(
                    f"{place}: goes from {of_store[0]} to {of_store[1]}, which the model {name} does not. Leave "
                    f"--model out, or use --model {fitting}"
                )
            source_lang, target_lang = source_lang or of_store[0], target_lang or of_store[1]
        self.engine = load_engine(name, device, dtype, source_lang, target_lang)
        self.memories = Memories(self.engine, exact, Bounds(open_stores))
        self.statistics = Statistics()
        self.stages = Stages(self.engine)
        self._datastore = datastore
        self._directions = Directions(self, self.chooses_model)
        self._settings: RetrievalSettings = self._asked["settings"]
        if datastore is not None:
            self.memories.retrieval(datastore, self._settings)  # raises errors in the settings at once

    def with_model(self, model: str) -> Translator:
        """A translator with another model and the same settings, without a default datastore."""
        other = type(self)(**{**self._asked, "model": model, "datastore": None, "threads": None})
        other.memories = Memories(other.engine, self._asked["exact"], self.memories.bounds)
        return other

    def for_languages(self, source_lang: str | None, target_lang: str | None) -> Translator:
        """A translator between other languages with the same loaded model, which is not copied.

        It has the same settings but no default datastore, and opens its own stores. Closing it closes no other
        translator.
        """
        asked = {**self._asked, "source_lang": source_lang, "target_lang": target_lang, "datastore": None}
        other = copy(self)
        other._asked, other._datastore, other.statistics = asked, None, Statistics()
        other.engine = self.engine.for_languages(source_lang, target_lang)
        other.stages = Stages(other.engine)
        other.memories = Memories(other.engine, asked["exact"], self.memories.bounds)
        other._directions = Directions(other, False)
        return other

    def between(self, asked: AskedLanguages) -> Translator:
        """The translator for these languages: this one, another with the same weights, or one with the shipped model
        for them if the languages choose the model.
        """
        return self._directions.between(asked)

    def for_store(self, store: Store) -> Translator:
        """The translator for a store: this one, or one with the shipped model for the store's languages."""
        return self._directions.for_store(store)

    def refresh_store(self, store: Store) -> None:
        """Move an open store to its newest generation, index and settings."""
        self.for_store(store).memories.refresh([store])

    def close_store(self, store: Store) -> None:
        """Close a store, whichever translator opened it."""
        for each in self._directions.all():
            each.memories.close(store)

    def directed(self, requests: Iterable[Request]) -> list[Request]:
        """Requests with languages, if the languages choose the model: those of a request's store, or without a store
        those that the texts of all such requests together look like.
        """
        return Directing(self._directions, self._datastore)(list(requests))

    def close(self) -> None:
        """Free the model and the stores. Running calls may finish or fail with an error, as later ones do."""
        for each in self._directions.all():
            each.memories.close_all()
        self._directions = Directions(self, False)
        self.engine = self.memories = self.stages = cast("Any", _Closed())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[partial[Translator], tuple[()]]:
        """Reduce to model, paths and settings, for worker processes: unpickling loads it again."""
        return partial(type(self), **self._asked), ()

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, texts: str | Request, **settings: Unpack[Settings]
    ) -> Translation: ...

    @overload
    def translate(self, texts: Iterable[str | Request], **settings: Unpack[Settings]) -> list[Translation]: ...

    def translate(
        self, texts: str | Request | Iterable[str | Request], **settings: Unpack[Settings]
    ) -> Translation | list[Translation]:
        """Translate one text, or several in order. The settings are those of `stream`.

        If a single text has no translation, `NoTranslationError` is raised, unless `on_error` is "continue". For
        several texts see `stream`.
        """
        if not isinstance(texts, str | Request):
            return list(self.stream(texts, **settings))
        found = next(self.stream([texts], **settings))
        if found.error is not None and settings.get("on_error") != "continue":
            raise NoTranslationError(found.error)
        return found

    def translate_marked(
        self,
        texts: Iterable[Marked],
        contexts: Iterable[str] | None = None,
        text_kinds: Iterable[Sequence[str]] | None = None,
        **settings: Unpack[Settings],
    ) -> list[Translation]:
        """Translate texts with inline codes. `Translation.marked` has each code of its text exactly once, well nested.

        The settings are those of `stream`. `Translation.warnings` says if keeping a code may have made a translation
        worse.

        contexts: the context of each text, for exact matches
        text_kinds: what decides which placeholders count in each text (`Request`)
        """
        texts = list(texts)
        of_texts = zip(
            texts,
            [""] * len(texts) if contexts is None else contexts,
            [("text",)] * len(texts) if text_kinds is None else text_kinds,
            strict=True,
        )
        requests = (Request(text, context=context, text_kinds=kinds) for text, context, kinds in of_texts)
        return list(self.stream(requests, **settings))

    def stream(
        self,
        texts: Iterable[str | Marked | Request],
        *,
        beam: int = 5,
        n_best: int = 1,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        window: int | None = None,
        split_sentences: bool = False,
        length_penalty: float | None = None,
        early_stopping: bool | Literal["never"] | None = None,
        max_tokens: int | None = None,
        evidence: bool = False,
        steps: bool = False,
        match: bool = False,
        exact_matches: ExactMatches = "ignore",
        match_threshold: int = 100,
        on_error: OnError = "raise",
        protect: bool = False,
        tags: Tags = "auto",
        placeholders: Collection[str] = (),
        glossary: Glossary | None = None,
        progress: Callable[[int], None] = ignore,
        statistics: Statistics | None = None,
        **of_memory: Unpack[DatastoreSettings],
    ) -> Iterator[Translation]:
        """Translations in the order of `texts`, which may be endless: at most `window` texts are in memory.

        A translation is returned as soon as it and all earlier ones are done. A text may be a `Request` with its own
        datastore; requests for different stores are decoded together if their languages are the same. If a text has no
        translation, `Translation.error` says why, a `NoTranslationWarning` is issued, and the stream continues. An item
        that is no text (not a str, or with half a surrogate pair), or that names a store or settings that do not work,
        ends the stream with an error after the translations before it, or also gets a `Translation.error`: `on_error`
        decides.

        beam: hypotheses kept at each step; 5 by default, whatever the checkpoint says; 1 is greedy search
        n_best: number of translations for each text
        batch_size, batch_tokens: at most this many sentences and source tokens (including padding) are decoded
            together; by default 32 sentences, 128 on a GPU
        window: number of texts to read ahead and sort by length
        split_sentences: translate a text of several sentences one by one, unless the memory holds them as one segment
        length_penalty, early_stopping, max_tokens: by default the checkpoint's
        evidence: return evidence for every token
        steps: return the neighbours of every token as tensors, `Translation.steps`
        match: return the memory's closest source segment
        exact_matches: "use" takes the memory's own target if it holds the text in the same context, "prefer" only if
            the match is free of doubt, "ignore" decodes every text (`MatchConfig`)
        match_threshold: take fuzzy matches with at least this score, in percent, if only numbers and placeholders
            differ, and insert those of the text; 100 for none
        on_error: "raise" or "continue"
        protect: keep placeholders, numbers, tags, accelerators and white space of a text, each exactly once; those of a
            `Marked` text are always kept
        tags: what counts as a tag if `protect` is on: "xml" everything that looks like one, "html" and "auto" known
            tags, "none" nothing
        placeholders: patterns of your own placeholders, which `protect` also keeps: literal text in which * stands for
            1 to 100 characters other than white space, such as "~~*~~"
        glossary: terms that translations must contain
        progress: is called with the number of newly finished texts, which may still wait for earlier ones
        statistics: count the searches of this call here instead of in the translator's statistics
        datastore: the memory to use, None for the model alone; by default the translator's own
        settings: settings of retrieval, as a whole or as keywords (`RetrievalSettings`); by default the translator's
            own
        retrieval: instead of both, a complete retrieval: an open store, complete settings, and your own gate or
            combiner. Its store stays in its state until you refresh it
        """
        searching: dict[str, object] = {
            "beam": beam,
            "n_best": n_best,
            "length_penalty": length_penalty,
            "early_stopping": early_stopping,
            "max_tokens": max_tokens,
        }
        config = self.decoding(**searching)
        check(not isinstance(texts, str), "stream takes many texts; for one, use translate, or give a list")
        check(on_error in ("raise", "continue"), f"on_error must be 'raise' or 'continue', got {on_error!r}")
        batching = _batching(self.engine.device, batch_size, batch_tokens, window)
        counted = self.statistics if statistics is None else statistics
        check(tags in TAGS, f"tags must be one of {', '.join(TAGS)}, got {tags!r}")
        own = checked_patterns(placeholders)
        guards = protect, tags, glossary
        call = Call(config, batching, split_sentences, evidence, steps, match, counted, progress, *guards)
        matching = MatchConfig(exact_matches, match_threshold)
        memory, settings = self._memory_settings(of_memory)
        if isinstance(memory, Retrieval):
            ready = TextMemory(memory, SourceMatcher(memory.store.datastore))
            return self._stream(iter(texts), Asking(ready, settings, matching, on_error, own), call, searching)
        if memory is not None:
            self.for_store(memory).memories.retrieval(memory, settings)  # raises errors in the settings at once
        return self._stream(iter(texts), Asking(memory, settings, matching, on_error, own), call, searching)

    def decoding(self, **settings: object) -> DecodingConfig:
        """The search settings of a call: those that are given and not None, and otherwise the checkpoint's."""
        given = {name: value for name, value in settings.items() if value is not None}
        config: DecodingConfig = replace(self.engine.generation, **given)  # type: ignore[arg-type]
        longest = self.engine.max_positions - 1
        check(
            config.max_tokens <= longest,
            f"max_tokens must be at most {longest}, the model's positions, got {config.max_tokens}",
        )
        check(
            2 * config.beam <= self.engine.vocabulary_size,
            f"beam must be at most half the vocabulary of {self.engine.vocabulary_size}, got {config.beam}",
        )
        return config

    @property
    def datastore(self) -> Store | None:
        """The memory of calls that name no other."""
        return self._datastore

    @property
    def settings(self) -> RetrievalSettings:
        """The default settings of retrieval for calls."""
        return self._settings

    def signature(self, config: DecodingConfig, **of_memory: Unpack[DatastoreSettings]) -> str:
        """The signature of a call with these settings, for published scores. Defaults are those of `stream`."""
        told = self.engine.languages
        languages = f"|langs:{told.source}-{told.target}" if told.codes else ""
        weights = f"dtype:{self.engine.computes_in}|weights:{self.engine.fingerprint.model[:8]}"
        # A checkpoint may be anywhere: its directory is not part of its identity.
        name = Path(self.engine.name).name if Path(self.engine.name).is_absolute() else self.engine.name
        parts = [f"model:{name}{languages}|{weights}|{config.signature()}"]
        if (found := self.retrieval(**of_memory)) is not None:
            parts.append(found.signature())
        return "|".join([*parts, f"v:{__version__}"])

    def retrieval(self, **of_memory: Unpack[DatastoreSettings]) -> Retrieval | None:
        """The retrieval of a call with these settings, None for the model alone. Defaults are those of `stream`."""
        memory, settings = self._memory_settings(of_memory)
        if memory is None or isinstance(memory, Retrieval):
            return memory
        return self.for_store(memory).memories.retrieval(memory, settings)

    def _memory_settings(self, given: DatastoreSettings) -> tuple[Retrieval | Store | None, RetrievalSettings]:
        """The memory of a call and its retrieval; the translator's own if the call gives none."""
        keywords: dict[str, Any] = {**given}
        ready = keywords.pop("retrieval", None)
        check(ready is None or isinstance(ready, Retrieval), f"retrieval must be a Retrieval, got {ready!r}")
        told = ", ".join(keywords)
        check(ready is None or not told, f"a retrieval includes a store and all settings: leave {told} out")
        datastore = keywords.pop("datastore", self._datastore)
        settings = settings_of(keywords.pop("settings", None), **keywords).over(self._settings)
        return datastore if ready is None else ready, settings

    def _stream(
        self, texts: Iterator[str | Marked | Request], asking: Asking, call: Call, searching: Mapping[str, object]
    ) -> Iterator[Translation]:
        failure: Exception | None = None
        directing = Directing(self._directions, asking.memory)
        memories_between = lambda asked: self.between(asked).memories  # noqa: E731
        while failure is None:
            window, failure = asking.window(texts, call.batching.window, memories_between, directing)
            if not window and failure is None:
                return
            for translation in self._translate_in_order(window, call, searching):
                yield translation
                if translation.error is not None:  # afterwards, because `translate` raises it for a single text
                    warnings.warn(translation.error, NoTranslationWarning, stacklevel=2)
        raise failure

    def _translate_in_order(
        self, texts: Sequence[AskedText], call: Call, searching: Mapping[str, object]
    ) -> Iterator[Translation]:
        """Translations of some texts; those of the same languages are decoded together.

        searching: the call's settings
        """
        translators = [self.between(each.languages) for each in texts]
        made: dict[Translator, Iterator[Translation]] = {}
        for each in set(translators):
            mine = [text for text, translator in zip(texts, translators, strict=True) if translator is each]
            # The forced start of a search differs with the languages.
            decoding = call.decoding if each is self else each.decoding(**searching)
            made[each] = each.stages.translated(mine, replace(call, decoding=decoding))
        for translator in translators:
            yield next(made[translator])


class _Closed:
    """Replaces the model and memories of a closed translator."""

    def close_all(self) -> None:
        """There is nothing left to close."""

    def __getattr__(self, name: str) -> NoReturn:
        raise SettingError("the translator was closed: make another one")


def _default_model(datastore: Store | None, source_lang: str | None, target_lang: str | None) -> str:
    """The model that a store was built with, or else the shipped one for two languages, or else the first one."""
    if datastore is not None:
        return model_of(datastore)
    if source_lang is None and target_lang is None:
        return DEFAULT_MODEL
    return choose_model(source_lang, target_lang, "the text", "").name


def _wherever(model: str | Path | None) -> str | Path | None:
    """A model by a name that works in any directory: paths become absolute; names stay."""
    if model is None or model in shipped_models() or not (path := Path(model).expanduser()).is_dir():
        return model
    return str(path.absolute()) if isinstance(model, str) else path.absolute()


def _batching(
    device: torch.device, batch_size: int | None, batch_tokens: int | None, window: int | None
) -> BatchingConfig:
    default = BatchingConfig() if device.type == "cpu" else _ON_A_GPU
    sentences = default.sentences if batch_size is None and batch_tokens is None else batch_size
    return BatchingConfig(sentences, batch_tokens, default.window if window is None else window)
