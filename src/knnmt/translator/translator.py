"""Translating text: segments, batches, search, and the pieces put together again in the order they came.

With a datastore, every step of the search mixes the model's distribution with that of the memory's nearest entries.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, Unpack, cast, overload

import torch

from knnmt import timing
from knnmt.config import BatchingConfig, DecodingConfig, OpenStores, check
from knnmt.datastore.sources import HeldSources
from knnmt.datastore.store import Datastore
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.search import search
from knnmt.engine.batching import batches_by_length
from knnmt.engine.loading import load_engine
from knnmt.errors import (
    CutTranslationWarning,
    InputError,
    LongSegmentWarning,
    NoTranslationError,
    NoTranslationWarning,
    SettingError,
)
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.threads import require_threads
from knnmt.translator.evidence import Evidence, evidence_of
from knnmt.translator.memories import (
    THE_CALLS_STORE,
    Memories,
    Request,
    RetrievalSettings,
    Store,
    check_names,
    languages_of,
    model_of,
)
from knnmt.translator.segments import Segment, cut_to_fit, join, laid_out, loses_lines, segments_of
from knnmt.translator.spans import Span, moved_spans, spans_of
from knnmt.translator.translation import Token, Translation
from knnmt.translator.turns import Turns
from knnmt.version import __version__

_ON_A_GPU = BatchingConfig(sentences=128)


class DatastoreSettings(RetrievalSettings, total=False):
    """The settings of one call that concern its memory."""

    datastore: Store | None


class Settings(DatastoreSettings, total=False):
    """The settings of one call; `Translator.stream` says what each does."""

    evidence: bool
    match: bool

    beam: int
    n_best: int
    batch_size: int | None
    batch_tokens: int | None
    window: int | None
    split_sentences: bool
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class _Call:
    """What is the same for all texts of a call. whole: what a memory holds as one segment is translated as one"""

    decoding: DecodingConfig
    batching: BatchingConfig
    by_sentence: bool
    evidence: bool
    match: bool
    retrieval: dict[str, Any]
    progress: Callable[[int], None]
    whole: bool = True


class Translator:
    """A loaded model that translates.

    Threads may share one: several may translate at the same time, and another may change the stores they use, through
    a `Datastore` of its own, or refresh them. Each batch keeps the state of a store that it began with.

    `close`, or the end of a `with` block, gives the model's and the stores' memory back.

    model: the name of a shipped model, a checkpoint directory, or a Hugging Face name; by default the one that the
        datastore was built with, where there is one by its name, and else the shipped one
    device: "cpu", "cuda", "cuda:N"; by default CUDA where there is one
    dtype: "float32", "bfloat16", "float16" (CUDA), "int8" (CPU), or "auto" for what this machine is fastest in;
        by default float32 on a CPU and float16 on CUDA
    threads: CPU threads, for the whole process; by default as many as PyTorch takes
    source_lang, target_lang: for models of many languages, tags (de, pt-BR) or their own codes; where one is
        not given, the datastore's
    datastore: the memory that calls use unless they name another
    exact: search every key of a store, whatever index it has
    open_stores: how many stores stay open for later calls
    retrieval: settings of retrieval for calls that do not say otherwise (`RetrievalSettings`)
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
        **retrieval: Unpack[RetrievalSettings],
    ) -> None:
        # For __reduce__: paths that hold wherever the process that unpickles it works.
        self._asked: dict[str, Any] = {
            "model": _absolute(model),
            "device": device,
            "dtype": dtype,
            "threads": threads,
            "source_lang": source_lang,
            "target_lang": target_lang,
            "datastore": datastore if isinstance(datastore, Datastore) else _absolute(datastore),
            "exact": exact,
            "open_stores": open_stores,
            **retrieval,
        }
        if threads is not None:
            check(threads >= 1, f"threads must be at least 1, got {threads}")
            require_threads(threads)
            torch.set_num_threads(threads)
        if datastore is not None:
            of_store = languages_of(datastore)
            source_lang, target_lang = source_lang or of_store[0], target_lang or of_store[1]
        self.engine = load_engine(model or model_of(datastore), device, dtype, source_lang, target_lang)
        self.memories = Memories(self.engine, exact, open_stores)
        self.statistics = Statistics()
        check_names(retrieval)
        self._datastore = datastore
        self._settings = retrieval
        if datastore is not None:
            self.memories.retrieval(datastore, retrieval)  # what is wrong with them shows at once

    def close(self) -> None:
        """Give back the model and the stores. Calls under way may still end, or be refused as later ones are."""
        self.memories.close_all()
        self.engine = self.memories = cast("Any", _Closed())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[partial[Translator], tuple[()]]:
        """By model, places and settings, for worker processes: whoever unpickles it loads it again."""
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
        """Translate one text, or any number of them in order. The settings are those of `stream`.

        One text that has no translation raises `NoTranslationError`; among others it is as in `stream`.
        """
        if not isinstance(texts, str | Request):
            return list(self.stream(texts, **settings))
        found = next(self.stream([texts], **settings))
        if found.error is not None:
            raise NoTranslationError(found.error)
        return found

    def stream(
        self,
        texts: Iterable[str | Request],
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
        match: bool = False,
        progress: Callable[[int], None] = lambda _: None,
        **retrieval: Unpack[DatastoreSettings],
    ) -> Iterator[Translation]:
        """Translations in the order of `texts`, which may be endless: memory is bounded by `window` texts.

        A translation is handed on as soon as it and those before it are done.
        A text may be a `Request` that names a datastore of its own; requests for different ones are decoded together.
        A text that has no translation says so in `Translation.error`, with a `NoTranslationWarning`; the others follow.

        beam: hypotheses kept at each step, 5 whatever the checkpoint says; 1 is greedy search
        n_best: how many translations to give for each text
        batch_size, batch_tokens: most sentences and most source tokens (padding counted) decoded together; by default
            32 sentences, on a GPU 128
        window: texts that are read ahead and sorted by length
        split_sentences: translate a text of several sentences one by one
        length_penalty, early_stopping, max_tokens: as the checkpoint says unless given
        evidence: let every token say what it was made of
        match: name the memory's closest source segment
        progress: told how many more texts are done, which may have to wait for others before them
        datastore: the memory to use, None for the model alone; by default the translator's own
        The other settings are those of `RetrievalSettings`, by default the translator's own.
        """
        config = self.decoding(
            beam=beam,
            n_best=n_best,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            max_tokens=max_tokens,
        )
        check(not isinstance(texts, str), "stream takes many texts; for one, use translate, or give a list")
        batching = _batching(self.engine.device, batch_size, batch_tokens, window)
        datastore, settings = self._memory_settings(retrieval)
        call = _Call(config, batching, split_sentences, evidence, match, settings, progress)
        if datastore is not None:
            self.memories.retrieval(datastore, settings)
        requests = (_with_store(text, datastore) for text in texts)
        return self._stream(requests, call)

    def decoding(self, **settings: object) -> DecodingConfig:
        """The search settings of a call: the checkpoint's, but for those that are given and not None."""
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
        """The memory that calls use unless they name another."""
        return self._datastore

    def signature(self, config: DecodingConfig, **retrieval: Unpack[DatastoreSettings]) -> str:
        """What a published score must say of a call with these settings; what is not given is as in `stream`."""
        told = self.engine.languages
        languages = f"|langs:{told.source}-{told.target}" if told.codes else ""
        weights = f"dtype:{self.engine.computes_in}|weights:{self.engine.fingerprint.model[:8]}"
        parts = [f"model:{self.engine.name}{languages}|{weights}|{config.signature()}"]
        if (found := self.retrieval(**retrieval)) is not None:
            parts.append(found.signature())
        return "|".join([*parts, f"v:{__version__}"])

    def retrieval(self, **settings: Unpack[DatastoreSettings]) -> Retrieval | None:
        """How a call with these settings retrieves, None for the model alone; what is not given is as in `stream`."""
        datastore, whole = self._memory_settings(settings)
        return None if datastore is None else self.memories.retrieval(datastore, whole)

    def _memory_settings(self, given: DatastoreSettings) -> tuple[Store | None, dict[str, Any]]:
        """The memory of a call and how it retrieves, the translator's own where the call says nothing."""
        settings = {name: value for name, value in given.items() if name != "datastore"}
        check_names(settings)
        return given.get("datastore", self._datastore), {**self._settings, **settings}

    def _stream(self, requests: Iterator[Request], call: _Call) -> Iterator[Translation]:
        failure: Exception | None = None
        while failure is None:
            window: list[Request] = []
            try:
                window.extend(_checked(request) for request in islice(requests, call.batching.window))
            except Exception as error:  # what came before it is still translated
                failure = error
            if not window and failure is None:
                return
            self.memories.refresh({request.datastore for request in window if request.datastore is not None})
            for translation in self._translate_window(window, call):
                yield translation
                if translation.error is not None:  # afterwards, for `translate` raises it if there is one text
                    warnings.warn(translation.error, NoTranslationWarning, stacklevel=2)
        raise failure

    def _translate_window(self, requests: Sequence[Request], call: _Call) -> Iterator[Translation]:
        retrievals = [self._retrieval(request, call) for request in requests]
        with timing.stage("text"):
            held = [self._held(*each) for each in zip(requests, retrievals, strict=True)]
            segmented = [
                segments_of(request.text, call.by_sentence, known, call.whole)
                for request, known in zip(requests, held, strict=True)
            ]
            segmented, sources = self._encode_to_fit(segmented)
        of_source = [retrieval for retrieval, segments in zip(retrievals, segmented, strict=True) for _ in segments]
        found: list[list[Hypothesis]] = [[] for _ in sources]
        evidence: list[list[list[Evidence]]] = [[] for _ in sources]
        turns = Turns([len(segments) for segments in segmented])
        batches = batches_by_length([len(source) for source in sources], call.batching)
        # The batch with the first segment that waits comes next, so that some texts can be handed on early.
        for batch in [[], *sorted(batches, key=min)]:  # texts without words need none
            if batch:
                hypotheses, recorded = self._search([sources[i] for i in batch], [of_source[i] for i in batch], call)
                for index, each, why in zip(batch, hypotheses, recorded, strict=True):
                    found[index], evidence[index] = each, why
            call.progress(turns.decoded(batch))
            for text, mine in turns.come():
                yield self._translation(requests[text], segmented[text], found[mine], evidence[mine], call)

    def _translation(
        self,
        request: Request,
        segments: Sequence[Segment],
        hypotheses: Sequence[Sequence[Hypothesis]],
        evidence: Sequence[Sequence[Sequence[Evidence]]],
        call: _Call,
    ) -> Translation:
        decode = self.engine.tokenizer.decode
        for segment, found in zip(segments, hypotheses, strict=True):
            several = call.whole and found and "\n" in segment.text
            if several and loses_lines(segment, decode(found[0].tokens), call.by_sentence):
                by_line = replace(call, whole=False, progress=lambda _: None)
                return next(self._translate_window([request], by_line))
        with timing.stage("text"):
            translation = self._assemble(request.text, segments, hypotheses, evidence, call.decoding)
            if call.match and request.datastore is not None:
                matcher = self.memories.open(request.datastore).matcher
                translation = replace(translation, match=matcher.closest(request.text))
            return translation

    def _retrieval(self, request: Request, call: _Call) -> Retrieval | None:
        if request.datastore is None:
            return None
        own = {name: getattr(request, name) for name in ("k", "interpolation_weight", "temperature")}
        given = {name: value for name, value in own.items() if value is not None}
        return self.memories.retrieval(request.datastore, {**call.retrieval, **given})

    def _held(self, request: Request, retrieval: Retrieval | None) -> HeldSources | None:
        if request.datastore is None or retrieval is None or not retrieval.config.forms:
            return None
        return self.memories.open(request.datastore).sources

    def _search(
        self, sources: list[list[int]], retrievals: list[Retrieval | None], call: _Call
    ) -> tuple[list[list[Hypothesis]], list[list[list[Evidence]]]]:
        """Hypotheses of a batch, and where it was asked for the evidence of each."""
        if all(retrieval is None for retrieval in retrievals):
            return search(self.engine, sources, call.decoding), [[] for _ in sources]
        batch = BatchRetrieval(retrievals, self.statistics, record=call.evidence)
        found = search(self.engine, sources, call.decoding, batch)
        if batch.steps is None:
            return found, [[] for _ in sources]
        steps, tokenizer = batch.steps, self.engine.tokenizer
        return found, [
            [] if store is None else [evidence_of(each, steps, store, tokenizer) for each in hypotheses]
            for store, hypotheses in zip(batch.snapshots, found, strict=True)
        ]

    def _encode_to_fit(self, segmented: list[list[Segment]]) -> tuple[list[list[Segment]], list[list[int]]]:
        """Token ids of all segments in a row; segments longer than the model's positions are cut first."""
        limit = self.engine.max_positions
        encode = self.engine.tokenizer.encode_sources

        def fits(text: str) -> bool:
            return len(encode([text])[0]) <= limit

        sources = encode([segment.text for segments in segmented for segment in segments])
        if all(len(source) <= limit for source in sources):
            return segmented, sources
        lengths = iter([len(source) for source in sources])
        cut = []
        for segments in segmented:
            fitting: list[Segment] = []
            for segment in segments:
                length = next(lengths)
                parts = [segment] if length <= limit else cut_to_fit(segment, fits)
                if len(parts) > 1:
                    warnings.warn(
                        f"a segment of {length} tokens, more than the model's {limit}, was translated in {len(parts)} "
                        f"parts: {segment.text[:60]!r}",
                        LongSegmentWarning,
                        stacklevel=2,
                    )
                fitting.extend(parts)
            cut.append(fitting)
        return cut, encode([segment.text for segments in cut for segment in segments])

    def _assemble(
        self,
        text: str,
        segments: Sequence[Segment],
        hypotheses: Sequence[Sequence[Hypothesis]],
        evidence: Sequence[Sequence[Sequence[Evidence]]],
        config: DecodingConfig,
    ) -> Translation:
        if not segments:
            return Translation(source=text, text=text, tokens=(), score=0.0)
        for segment, found in zip(segments, hypotheses, strict=True):
            if not found:
                return Translation(text, "", (), float("-inf"), complete=False, error=_without_translation(segment))
        ranked = []
        for rank in range(min(map(len, hypotheses))):
            parts = [found[rank] for found in hypotheses]
            why = [recorded[rank] if recorded else () for recorded in evidence]
            ranked.append(self._join_parts(text, segments, parts, why, config))
        best, *others = ranked
        if not best.complete:
            warnings.warn(
                f"a translation reached the limit of {config.max_tokens} tokens and may be cut: {text[:60]!r}",
                CutTranslationWarning,
                stacklevel=2,
            )
        return replace(best, alternatives=tuple(others))

    def _join_parts(
        self,
        text: str,
        segments: Sequence[Segment],
        parts: Sequence[Hypothesis],
        evidence: Sequence[Sequence[Evidence]],
        config: DecodingConfig,
    ) -> Translation:
        tokenizer = self.engine.tokenizer
        decoded = [tokenizer.decode(part.tokens) for part in parts]
        texts = [laid_out(*each) for each in zip(segments, decoded, strict=True)]
        tokens: list[Token] = []
        for number, (part, recorded) in enumerate(zip(parts, evidence, strict=True)):
            spans: list[Span] = []
            if recorded:
                before = len(join(segments[:number], texts[:number])) + len(segments[number].before)
                spans = moved_spans(spans_of(tokenizer, part.tokens), decoded[number], texts[number])
                spans = [(before + start, before + end) for start, end in spans]
            for token, why, span in zip_longest(part.tokens, recorded, spans):
                tokens.append(Token(token, tokenizer.piece(token), why, span))
        return Translation(
            source=text,
            text=join(segments, texts),
            tokens=tuple(tokens),
            score=sum(part.score * len(part.tokens) for part in parts) / len(tokens),
            complete=all(len(part.tokens) < config.max_tokens for part in parts),
            stored_source=segments[0].text if len(segments) == 1 and segments[0].form else None,
        )


class _Closed:
    """What a closed translator has instead of a model and memories."""

    def close_all(self) -> None:
        """There is nothing to close any more."""

    def __getattr__(self, name: str) -> NoReturn:
        raise SettingError("the translator was closed: make another one")


def _absolute(place: str | Path | None) -> str | Path | None:
    """A path that is there, from the root on; a name of something else as it is."""
    return Path(place).absolute() if place is not None and Path(place).exists() else place


def _with_store(text: str | Request, datastore: Store | None) -> Request:
    if not isinstance(text, Request):
        return Request(text, datastore)
    return replace(text, datastore=datastore) if text.datastore == THE_CALLS_STORE else text


def _checked(request: Request) -> Request:
    text = request.text
    if not isinstance(text, str):
        raise InputError(f"expected a text to translate, found {type(text).__name__}: {text!r}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"expected a text to translate, found half of a surrogate pair in {text[:60]!r}") from error
    return request


def _without_translation(segment: Segment) -> str:
    return (
        f"no translation of {segment.text[:60]!r}: no hypothesis of it has a probability. Numbers may have "
        "overflowed (dtype float32 helps), the memory may be damaged (`knnmt verify`), or settings forbid every token"
    )


def _batching(
    device: torch.device, batch_size: int | None, batch_tokens: int | None, window: int | None
) -> BatchingConfig:
    default = BatchingConfig() if device.type == "cpu" else _ON_A_GPU
    sentences = default.sentences if batch_size is None and batch_tokens is None else batch_size
    return BatchingConfig(sentences, batch_tokens, default.window if window is None else window)
