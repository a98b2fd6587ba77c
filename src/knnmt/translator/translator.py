"""Translating text: segments, batches, search, and the pieces put together again in the order they came."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Literal, TypedDict, Unpack, overload

import torch

from knnmt import timing
from knnmt.config import BatchingConfig, DecodingConfig, check
from knnmt.decoding.beam import beam_search
from knnmt.decoding.greedy import greedy_search
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.batching import batches_by_length
from knnmt.engine.loading import load_engine
from knnmt.engine.shipped import DEFAULT_MODEL
from knnmt.errors import CutTranslationWarning, InputError, LongSegmentWarning
from knnmt.translator.segments import Segment, cut_to_fit, join, segments_of
from knnmt.translator.translation import Token, Translation
from knnmt.version import __version__


class Settings(TypedDict, total=False):
    """The settings of one call; `Translator.stream` says what each does."""

    beam: int
    n_best: int
    batch_size: int | None
    batch_tokens: int | None
    window: int | None
    split_sentences: bool
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    max_tokens: int | None


class Translator:
    """A loaded model that translates.

    model: the name of a shipped model, a checkpoint directory, or a Hugging Face name
    device: "cpu", "cuda", "cuda:N"; by default CUDA where there is one
    dtype: "float32", "bfloat16", "float16" (CUDA), or "auto" for what this machine is fastest in;
        by default float32 on a CPU and float16 on CUDA
    threads: CPU threads, for the whole process; by default as many as PyTorch takes
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        threads: int | None = None,
    ) -> None:
        if threads is not None:
            check(threads >= 1, f"threads must be at least 1, got {threads}")
            torch.set_num_threads(threads)
        self.engine = load_engine(model, device, dtype)

    @overload
    def translate(self, texts: str, **settings: Unpack[Settings]) -> Translation: ...  # type: ignore[overload-overlap]

    @overload
    def translate(self, texts: Iterable[str], **settings: Unpack[Settings]) -> list[Translation]: ...

    def translate(self, texts: str | Iterable[str], **settings: Unpack[Settings]) -> Translation | list[Translation]:
        """Translate one text, or any number of them in order. The settings are those of `stream`."""
        if isinstance(texts, str):
            return next(self.stream([texts], **settings))
        return list(self.stream(texts, **settings))

    def stream(
        self,
        texts: Iterable[str],
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
    ) -> Iterator[Translation]:
        """Translations in the order of `texts`, which may be endless: memory is bounded by `window` texts.

        beam: hypotheses kept at each step, 5 whatever the checkpoint says; 1 is greedy search
        n_best: how many translations to give for each text
        batch_size, batch_tokens: most sentences and most source tokens (padding counted) decoded together
        window: texts that are read ahead and sorted by length
        split_sentences: translate a text of several sentences one by one
        length_penalty, early_stopping, max_tokens: as the checkpoint says unless given
        """
        config = self.decoding(
            beam=beam,
            n_best=n_best,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            max_tokens=max_tokens,
        )
        check(not isinstance(texts, str), "stream takes many texts; for one, use translate, or give a list")
        batching = _batching(batch_size, batch_tokens, window)
        return self._stream(iter(texts), config, batching, split_sentences)

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

    def signature(self, config: DecodingConfig) -> str:
        """What a published score must say of the system that made it."""
        dtype = str(self.engine.dtype).removeprefix("torch.")
        return f"model:{self.engine.name}|dtype:{dtype}|{config.signature()}|v:{__version__}"

    def _stream(
        self, texts: Iterator[str], config: DecodingConfig, batching: BatchingConfig, by_sentence: bool
    ) -> Iterator[Translation]:
        failure: Exception | None = None
        while failure is None:
            window: list[str] = []
            try:
                window.extend(_checked(text) for text in islice(texts, batching.window))
            except Exception as error:  # what came before it is still translated
                failure = error
            if not window and failure is None:
                return
            yield from self._translate_window(window, config, batching, by_sentence)
        raise failure

    def _translate_window(
        self, texts: Sequence[str], config: DecodingConfig, batching: BatchingConfig, by_sentence: bool
    ) -> Iterator[Translation]:
        with timing.stage("text"):
            segmented = [segments_of(text, by_sentence) for text in texts]
            segmented, sources = self._encode_to_fit(segmented)
        search = greedy_search if config.beam == 1 else beam_search
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for batch in batches_by_length([len(source) for source in sources], batching):
            for index, hypotheses in zip(batch, search(self.engine, [sources[i] for i in batch], config), strict=True):
                found[index] = hypotheses
        done = 0
        for text, segments in zip(texts, segmented, strict=True):
            of_text = found[done : done + len(segments)]
            done += len(segments)
            with timing.stage("text"):
                translation = self._assemble(text, segments, of_text, config)
            yield translation

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
        config: DecodingConfig,
    ) -> Translation:
        if not segments:
            return Translation(source=text, text=text, tokens=(), score=0.0)
        ranked = []
        for rank in range(min(map(len, hypotheses))):
            parts = [found[rank] for found in hypotheses]
            ranked.append(self._join_parts(text, segments, parts, config))
        best, *others = ranked
        if not best.complete:
            warnings.warn(
                f"a translation reached the limit of {config.max_tokens} tokens and may be cut: {text[:60]!r}",
                CutTranslationWarning,
                stacklevel=2,
            )
        return replace(best, alternatives=tuple(others))

    def _join_parts(
        self, text: str, segments: Sequence[Segment], parts: Sequence[Hypothesis], config: DecodingConfig
    ) -> Translation:
        tokenizer = self.engine.tokenizer
        tokens = tuple(Token(token, tokenizer.piece(token)) for part in parts for token in part.tokens)
        return Translation(
            source=text,
            text=join(segments, [tokenizer.decode(part.tokens) for part in parts]),
            tokens=tokens,
            score=sum(part.score * len(part.tokens) for part in parts) / len(tokens),
            complete=all(len(part.tokens) < config.max_tokens for part in parts),
        )


def _checked(text: str) -> str:
    if not isinstance(text, str):
        raise InputError(f"expected a text to translate, found {type(text).__name__}: {text!r}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"expected a text to translate, found half of a surrogate pair in {text[:60]!r}") from error
    return text


def _batching(batch_size: int | None, batch_tokens: int | None, window: int | None) -> BatchingConfig:
    default = BatchingConfig()
    sentences = default.sentences if batch_size is None and batch_tokens is None else batch_size
    return BatchingConfig(sentences, batch_tokens, default.window if window is None else window)
