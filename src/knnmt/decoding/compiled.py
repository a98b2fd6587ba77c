"""The steps of a batch in compiled code on a CPU (`native/beam.cpp`): decoder, vocabulary, mixture and choice.

A call returns when a hypothesis ends, a sentence is done or memory must grow, and at least every few steps, so that
other threads and signals get their turn. The hypotheses of a sentence share slots for keys and values, as those of
`knnmt.engine.state` do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.backend import Leading
from knnmt.decoding.compiled_requirements import CompiledRequirements
from knnmt.decoding.hypothesis import Hypothesis, Numbers, Scores, hoped_length
from knnmt.decoding.requirements import ConstrainedSentence
from knnmt.engine.base import Engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from knnmt.native import library
from knnmt.native.structures import address, made
from knnmt.retrieval.needs import Need
from knnmt.retrieval.retriever import BatchRetrieval
from knnmt.retrieval.sentence_mixtures import SentenceMixtures

_STEPS = 16  # of a call
_SLOTS = 96  # of a sentence, at first
_TOKENS = 64  # of a hypothesis, at first
_WAITS = -1  # the place of a sentence that has none yet
_STAGES = ("decoder", "output", "retrieval", "beam")


class _Batch(NamedTuple):
    """What the steps of a batch's sentences read.

    cross: each layer's keys and values of the sources; layers: their addresses
    """

    cross: list[Tensor]
    layers: NDArray[np.uintp]
    mixtures: SentenceMixtures | None
    requirements: list[CompiledRequirements]


class CompiledBackend:
    """See `knnmt.decoding.backend.Backend`. It decodes at most as many sentences at a time as its first batch has.

    Sentences of batches that are added later wait until others are done, and take their places in memory.
    """

    LACKS = frozenset(
        {
            Need.PYTORCH,
            Need.EVIDENCE,
            Need.WHOLE_STORE,
            Need.STORE_ON_GPU,
            Need.NO_LIBRARY,
            Need.FAST,
            Need.GATE,
            Need.OTHER_COMBINER,
            Need.CACHE,
            Need.REDUCED_KEYS,
            Need.FLOAT32_KEYS,
            Need.MANY_NEIGHBOURS,
        }
    )

    def __init__(
        self,
        engine: Engine[Any],
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        retrieval: BatchRetrieval | None,
        constrained: Sequence[ConstrainedSentence] = (),
    ) -> None:
        assert isinstance(engine, TransformerEngine)  # noqa: S101 - `backend_for` has checked this and the next
        assert engine.compiled is not None  # noqa: S101
        self._engine = engine
        self._decoder, self._output = engine.compiled
        self._config = config
        self._rules, self._memory = _rules(engine, config)
        self._search = made("Search")
        self.context = nullcontext()
        self.size = len(sources)
        # All sentences that are not done, those that wait behind the others.
        self._running = made("Running", 0)
        self._numbers, self._batch, self._places = (np.zeros(0, np.int64) for _ in range(3))
        self._batches: dict[int, _Batch] = {}
        self._added = 0
        # Memory of those that are decoded, each at its place.
        self._slots = torch.empty((self._decoder.layers, self.size, 0, 2 * engine.dim))
        width = max((each.width for each in constrained), default=config.beam)
        self._visible = np.zeros((self.size, width, 0), np.float32)
        self._tokens = np.zeros((self.size, width, 0), np.int64)
        self._scores = np.zeros((self.size, width), np.float32)
        self._make_slots(_SLOTS)
        self._make_tokens(_TOKENS)
        self.add(sources, retrieval, constrained)

    def add(
        self,
        sources: Sequence[Sequence[int]],
        retrieval: BatchRetrieval | None,
        constrained: Sequence[ConstrainedSentence] = (),
    ) -> range:
        """Decode another batch, too. Returns the numbers of its sentences, which follow those of the batch before."""
        encoded = self._engine.encode(sources)
        cross = self._engine.start(encoded).cross
        mixtures = None if retrieval is None else retrieval.mixtures(sources, self._engine.vocabulary_size)
        requirements = [CompiledRequirements(each) for each in constrained]
        batch = _Batch(cross, np.array([each.data_ptr() for each in cross], np.uintp), mixtures, requirements)
        new, places = made("Running", len(sources)), np.arange(len(sources))
        new["state"]["width"] = 1
        new["state"]["cross"] = address(batch.layers)
        new["state"]["cross_offset"] = places * cross[0].stride(0)
        new["state"]["source"] = encoded.lengths
        if mixtures is not None:
            new["mixing"], new["own"] = mixtures.addresses
        for name, values in _limits([each.config for each in constrained] or [self._config]).items():
            new[name] = values
        if requirements:
            new["required"] = [each.address for each in requirements]
            new["progress"] = [each.progress for each in requirements]
        self._batches[self._added] = batch
        self._running = np.concatenate([self._running, new])
        self._numbers = np.concatenate([self._numbers, self._added + places])
        self._batch = np.concatenate([self._batch, np.full(len(sources), self._added)])
        self._places = np.concatenate([self._places, np.full(len(sources), _WAITS)])
        self._added += len(sources)
        self._begin()
        return range(self._added - len(sources), self._added)

    @property
    def sentences(self) -> Numbers:
        return self._numbers[: self.size]

    @property
    def leaders(self) -> Scores:
        leaders: Scores = self._running["leader"][: self.size].astype(np.float64)
        return leaders

    @property
    def lengths(self) -> Numbers:
        lengths: Numbers = self._running["state"]["length"][: self.size]
        return lengths

    def advance(self, least: Scores, one_step: bool) -> list[tuple[int, Hypothesis]]:
        running, search = self._running[: self.size], self._search
        running["least"] = least
        search["sentences"], search["steps"], search["running"] = (
            len(running),
            1 if one_step else _STEPS,
            address(running),
        )
        native = library()
        assert native is not None  # noqa: S101 - since the engine is compiled
        places = (self._decoder.address, self._output.address, address(self._rules), address(search))
        self._report(native.knnmt_beam(*places, torch.get_num_threads()))
        if search["lacks_slots"][0]:
            self._make_slots(2 * self._slots.shape[2])
        if search["lacks_tokens"][0]:
            self._make_tokens(2 * self._tokens.shape[2])
        ended = self._ended[: int(search["endings"][0])]
        lengths = running["state"]["length"][ended["sentence"]]
        texts = (self._ends[place, :length].tolist() for place, length in enumerate(lengths.tolist()))
        numbers = self.sentences[ended["sentence"]].tolist()
        return [
            (number, Hypothesis(tuple(text), score))
            for number, text, score in zip(numbers, texts, ended["score"].tolist(), strict=True)
        ]

    def keep(self, places: Sequence[int]) -> None:
        stays = np.arange(len(self._running)) >= self.size
        stays[places] = True
        for number in np.unique(self._batch[~stays]).tolist():
            mixtures = self._batches[number].mixtures
            if mixtures is not None:
                mixtures.count(self._running["searches"][~stays & (self._batch == number)])
            if number not in self._batch[stays]:
                del self._batches[number]
        self._running, self._numbers = self._running[stays], self._numbers[stays]
        self._batch, self._places = self._batch[stays], self._places[stays]
        self._begin()

    def leading(self) -> Leading:
        tokens = self._tokens[self._places[: self.size], 0]
        numbered = zip(self.sentences.tolist(), tokens, self.lengths.tolist(), strict=True)
        return {number: mine[:length].tolist() for number, mine, length in numbered}

    def _report(self, steps: int) -> None:
        """Report a call: errors, and the time of its stages."""
        search = self._search
        if steps == -1:
            raise self._decoder.refusal()
        if steps == -2:
            sentence = int(search["refused"][0])
            first = int(self._batch[sentence])
            mixtures = self._batches[first].mixtures
            assert mixtures is not None  # noqa: S101 - only mixtures are refused
            raise mixtures.damage(int(self._numbers[sentence]) - first)
        for stage, seconds in zip(_STAGES, search["seconds"][0].tolist(), strict=True):
            if seconds:
                timing.spent(stage, seconds, steps)
        search["seconds"] = 0

    def _begin(self) -> None:
        """Give the free places to sentences that wait."""
        places = self._places[: self.size]
        begins = places == _WAITS
        free = np.setdiff1d(np.arange(self.size), places)[: np.count_nonzero(begins)]
        places[begins] = free
        self._scores[free], self._visible[free] = 0, -math.inf
        self._set_addresses()

    def _make_slots(self, capacity: int) -> None:
        """Make memory for so many slots of each sentence."""
        before = self._visible.shape[2]
        visible = np.full((*self._visible.shape[:2], capacity), -math.inf, np.float32)
        slots = self._slots.new_empty((*self._slots.shape[:2], capacity, self._slots.shape[3]))
        slots[:, :, :before], visible[:, :, :before] = self._slots, self._visible
        self._slots, self._visible = slots, visible
        self._search["capacity"], self._search["layer_stride"] = capacity, slots.stride(0)
        self._set_addresses()

    def _make_tokens(self, capacity: int) -> None:
        """Make memory for hypotheses of so many tokens."""
        tokens = np.zeros((*self._tokens.shape[:2], capacity), np.int64)
        tokens[:, :, : self._tokens.shape[2]] = self._tokens
        self._tokens, self._search["token_capacity"] = tokens, capacity
        self._ended = made("Ended", self._scores.size)
        self._ends = np.zeros((len(self._ended), capacity), np.int64)
        self._ended["tokens"] = self._ends.ctypes.data + np.arange(len(self._ended)) * self._ends.strides[0]
        self._search["ended"] = address(self._ended)
        self._set_addresses()

    def _set_addresses(self) -> None:
        """Say where the memory of each sentence is."""
        running, places = self._running[: self.size], self._places[: self.size]
        running["state"]["slots"] = self._slots.data_ptr() + places * (4 * self._slots.stride(1))
        running["state"]["visible"] = self._visible.ctypes.data + places * self._visible.strides[0]
        running["tokens"] = self._tokens.ctypes.data + places * self._tokens.strides[0]
        running["scores"] = self._scores.ctypes.data + places * self._scores.strides[0]


def _limits(configs: Sequence[DecodingConfig]) -> dict[str, list[float]]:
    """What depends on the sentence, by the names that compiled code has for it."""
    return {
        "max_tokens": [each.max_tokens for each in configs],
        "length_penalty": [each.length_penalty for each in configs],
        "hoped_length": [hoped_length(each) for each in configs],
    }


def _rules(engine: TransformerEngine, config: DecodingConfig) -> tuple[np.ndarray[Any, Any], object]:
    """What every step obeys, and memory that it refers to."""
    never = np.array(config.suppressed_tokens, np.int64)
    sequences = config.suppressed_sequences
    ends = np.cumsum([len(each) for each in sequences], dtype=np.int64)
    tokens = np.array([token for each in sequences for token in each], np.int64)
    forced = {
        name: -1 if token is None else token
        for name, token in (("forced_first", config.forced_first_token), ("forced_last", config.forced_last_token))
    }
    named = [*never.tolist(), *tokens.tolist(), *(token for token in forced.values() if token != -1)]
    for token in named:
        if not 0 <= token < engine.vocabulary_size:
            raise InputError(
                f"a search forces or forbids token {token}, but the model has {engine.vocabulary_size:,} tokens"
            )
    rules = made(
        "Rules",
        beam=config.beam,
        start=engine.special_tokens.decoder_start,
        end=engine.special_tokens.end,
        min_tokens=config.min_tokens,
        **forced,
        forbidden=len(never),
        never=address(never),
        sequences=len(sequences),
        sequence_ends=address(ends),
        sequence_tokens=address(tokens),
    )
    return rules, (never, ends, tokens)
