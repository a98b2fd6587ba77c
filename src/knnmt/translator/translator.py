"""`Translator`: a loaded model, its languages and memories, and the calls that translate with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self, Unpack, cast, overload

import torch

from knnmt.config import DecodingConfig, OpenStores, check
from knnmt.corpus.glossary import Glossary
from knnmt.engine.loading import load_engine
from knnmt.engine.model_choice import choose_model
from knnmt.engine.shipped import DEFAULT_MODEL, shipped_model, shipped_models
from knnmt.errors import NoTranslationError, SettingError
from knnmt.progress import ignore
from knnmt.protection.marked import Marked
from knnmt.retrieval.retriever import Retrieval
from knnmt.retrieval.settings import RetrievalKeywords, RetrievalSettings
from knnmt.retrieval.statistics import Statistics
from knnmt.segments.matches import SourceMatcher
from knnmt.threads import require_threads
from knnmt.translator.call import Call, OnError, TextMemory
from knnmt.translator.directions import Directing, Directions
from knnmt.translator.memories import Bounds, Memories, Request, RequestedLanguages, Store, languages_of, model_of
from knnmt.translator.session import Session
from knnmt.translator.settings import Preset, TranslationKeywords, TranslationSettings, translation_settings
from knnmt.translator.stages import Stages
from knnmt.translator.translation import Translation
from knnmt.version import __version__


class MemoryKeywords(RetrievalKeywords, total=False):
    """What a call can say about its memory.

    datastore: the memory to use, None for the model alone; by default the translator's own
    settings: settings as a whole, or the name of a preset; keywords take precedence
    retrieval: instead of a datastore and settings of retrieval, a complete retrieval: an open store, complete settings,
        and your own gate or combiner. Its store stays in its state until you refresh it
    """

    datastore: Store | None
    settings: RetrievalSettings | Preset | None
    retrieval: Retrieval | None


class CallKeywords(MemoryKeywords, TranslationKeywords, total=False):
    """What a call can say besides its texts: settings (`TranslationSettings`), and what follows.

    glossary: terms that translations must contain
    on_error: "raise" or "continue"
    progress: is called with the number of newly finished texts, which may still wait for earlier ones
    statistics: count the searches of this call here instead of in the translator's statistics
    """

    glossary: Glossary | None
    on_error: OnError
    progress: Callable[[int], None]
    statistics: Statistics | None


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
    settings: settings as a whole (`TranslationSettings`, `RetrievalSettings`), or the name of a preset ("raw"), the
        default for calls; each may also be given as a keyword
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
        settings: RetrievalSettings | Preset | None = None,
        **keywords: Unpack[TranslationKeywords],
    ) -> None:
        # For __reduce__: paths that are valid in any working directory.
        self._arguments: dict[str, Any] = {
            "model": _wherever(model),
            "device": device,
            "dtype": dtype,
            "threads": threads,
            "source_lang": source_lang,
            "target_lang": target_lang,
            "datastore": Path(datastore).absolute() if isinstance(datastore, str | Path) else datastore,
            "exact": exact,
            "open_stores": open_stores,
            "settings": translation_settings(settings, **keywords),
        }
        if threads is not None:
            check(threads >= 1, f"threads must be at least 1, got {threads}")
            require_threads(threads)
            torch.set_num_threads(threads)
        name = model or _default_model(datastore, source_lang, target_lang)
        self.chooses_model = (model, source_lang, target_lang) == (None,) * 3 and name in shipped_models()
        if datastore is not None:
            store_languages = languages_of(datastore)
            if name in shipped_models() and (fitting := shipped_model(*store_languages)) not in (None, name):
                place = datastore if isinstance(datastore, str | Path) else datastore.path
                raise SettingError(
                    f"{place}: goes from {store_languages[0]} to {store_languages[1]}, which the model {name} does "
                    f"not. Leave --model out, or use --model {fitting}"
                )
            source_lang, target_lang = source_lang or store_languages[0], target_lang or store_languages[1]
        self.engine = load_engine(name, device, dtype, source_lang, target_lang)
        self.memories = Memories(self.engine, exact, Bounds(open_stores))
        self.statistics = Statistics()
        self.stages = Stages(self.engine)
        self._datastore = datastore
        self._directions = Directions(self, self.chooses_model)
        self._settings: TranslationSettings = self._arguments["settings"]
        if datastore is not None:
            self.memories.retrieval(datastore, self._settings.retrieval)  # raises errors in the settings at once

    def with_model(self, model: str) -> Translator:
        """A translator with another model and the same settings, without a default datastore."""
        other = type(self)(**{**self._arguments, "model": model, "datastore": None, "threads": None})
        other.memories = Memories(other.engine, self._arguments["exact"], self.memories.bounds)
        return other

    def for_languages(self, source_lang: str | None, target_lang: str | None) -> Translator:
        """A translator between other languages with the same loaded model, which is not copied.

        It has the same settings but no default datastore, and opens its own stores. Closing it closes no other
        translator.
        """
        arguments = {**self._arguments, "source_lang": source_lang, "target_lang": target_lang, "datastore": None}
        other = copy(self)
        other._arguments, other._datastore, other.statistics = arguments, None, Statistics()
        other.engine = self.engine.for_languages(source_lang, target_lang)
        other.stages = Stages(other.engine)
        other.memories = Memories(other.engine, arguments["exact"], self.memories.bounds)
        other._directions = Directions(other, False)
        return other

    def between(self, languages: RequestedLanguages) -> Translator:
        """The translator for these languages: this one, another with the same weights, or one with the shipped model
        for them if the languages choose the model.
        """
        return self._directions.between(languages)

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

    def directing(self, memory: TextMemory | Store | None) -> Directing:
        """Gives languages to the requests of a call that name none, if the languages choose the model."""
        return Directing(self._directions, memory)

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
        return partial(type(self), **self._arguments), ()

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, texts: str | Request, **settings: Unpack[CallKeywords]
    ) -> Translation: ...

    @overload
    def translate(self, texts: Iterable[str | Request], **settings: Unpack[CallKeywords]) -> list[Translation]: ...

    def translate(
        self, texts: str | Request | Iterable[str | Request], **settings: Unpack[CallKeywords]
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
        **settings: Unpack[CallKeywords],
    ) -> list[Translation]:
        """Translate texts with inline codes. `Translation.marked` has each code of its text exactly once, well nested.

        The settings are those of `stream`. `Translation.warnings` says if keeping a code may have made a translation
        worse.

        contexts: the context of each text, for exact matches
        text_kinds: what decides which placeholders count in each text (`Request`)
        """
        texts = list(texts)
        marked_texts = zip(
            texts,
            [""] * len(texts) if contexts is None else contexts,
            [("text",)] * len(texts) if text_kinds is None else text_kinds,
            strict=True,
        )
        requests = (Request(text, context=context, text_kinds=kinds) for text, context, kinds in marked_texts)
        return list(self.stream(requests, **settings))

    def stream(
        self, texts: Iterable[str | Marked | Request], **settings: Unpack[CallKeywords]
    ) -> Iterator[Translation]:
        """Translations in the order of `texts`, which may be endless: at most `window` texts are in memory.

        A translation is returned as soon as it and all earlier ones are done. A text may be a `Request` with its own
        datastore; requests for different stores are decoded together if their languages are the same. If a text has no
        translation, `Translation.error` says why, a `NoTranslationWarning` is issued, and the stream continues. An item
        that is no text (not a str, or with half a surrogate pair), or that names a store or settings that do not work,
        ends the stream with an error after the translations before it, or also gets a `Translation.error`: `on_error`
        decides.

        The keywords are the fields of `TranslationSettings` and those of `CallKeywords`. Their defaults are those of
        `knnmt translate`; `settings="raw"` decodes every text as it is.
        """
        check(not isinstance(texts, str), "stream takes many texts; for one, use translate, or give a list")
        return self.session(**settings).translations(texts)

    def session(self, **settings: Unpack[CallKeywords]) -> Session:
        """A session with the settings of a call: code that forms batches itself prepares and finishes texts with it."""
        given = self._given(settings)
        on_error, counted = settings.get("on_error", "raise"), settings.get("statistics")
        check(on_error in ("raise", "continue"), f"on_error must be 'raise' or 'continue', got {on_error!r}")
        memory: TextMemory | Store | None = given.datastore
        if given.retrieval is not None:
            memory = TextMemory(given.retrieval, SourceMatcher(given.retrieval.store.datastore))
        elif given.datastore is not None:  # raises errors in the settings at once
            self.for_store(given.datastore).memories.retrieval(given.datastore, given.settings.retrieval)
        call = Call(
            settings=given.settings,
            decoding=self.decoding(**given.settings.decoding),
            batching=given.settings.batching(self.engine.device.type != "cpu"),
            statistics=self.statistics if counted is None else counted,
            memory=memory,
            on_error=on_error,
            progress=settings.get("progress", ignore),
            glossary=settings.get("glossary"),
        )
        call.settings.matching  # noqa: B018 - raises errors at once
        return Session(self, call)

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
    def settings(self) -> TranslationSettings:
        """The settings that are the default for calls."""
        return self._settings

    def signature(self, **settings: Unpack[CallKeywords]) -> str:
        """The signature of a call with these settings, for published scores."""
        given = self._given(settings)
        configured = self.engine.languages
        languages = f"|langs:{configured.source}-{configured.target}" if configured.codes else ""
        weights = f"dtype:{self.engine.computes_in}|weights:{self.engine.fingerprint.model[:8]}"
        # A checkpoint may be anywhere: its directory is not part of its identity.
        name = Path(self.engine.name).name if Path(self.engine.name).is_absolute() else self.engine.name
        retrieval = self._retrieval(given)
        parts = [f"model:{name}{languages}", weights, self.decoding(**given.settings.decoding).signature()]
        parts += [given.settings.signature(retrieval is not None)]
        parts += [] if retrieval is None else [retrieval.signature()]
        return "|".join([*parts, f"v:{__version__}"])

    def retrieval(self, **keywords: Unpack[MemoryKeywords]) -> Retrieval | None:
        """The retrieval of a call with these settings, None for the model alone. Defaults are those of `stream`."""
        return self._retrieval(self._given(keywords))

    def _retrieval(self, given: _Given) -> Retrieval | None:
        if given.retrieval is not None or given.datastore is None:
            return given.retrieval
        return self.for_store(given.datastore).memories.retrieval(given.datastore, given.settings.retrieval)

    def _given(self, keywords: CallKeywords | MemoryKeywords) -> _Given:
        """The memory and the complete settings of a call; the translator's own where the call gives none."""
        others = {name: value for name, value in keywords.items() if name not in _BESIDES_SETTINGS}
        given = translation_settings(keywords.get("settings"), **others)
        ready = keywords.get("retrieval")
        if ready is not None:
            check(isinstance(ready, Retrieval), f"retrieval must be a Retrieval, got {ready!r}")
            needless = ", ".join([*["datastore"] * ("datastore" in keywords), *given.retrieval.given()])
            check(not needless, f"a retrieval includes a store and all settings: leave {needless} out")
        settings = given.over(self._settings).resolved()
        return _Given(settings, None if ready is not None else keywords.get("datastore", self._datastore), ready)


_BESIDES_SETTINGS = {"datastore", "settings", "retrieval", "glossary", "on_error", "progress", "statistics"}


@dataclass(frozen=True, slots=True)
class _Given:
    """The settings of a call, complete, and its memory: a store, a retrieval, or None for the model alone."""

    settings: TranslationSettings
    datastore: Store | None
    retrieval: Retrieval | None


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
