"""The steps of a batch in compiled code on a CPU (`native/beam.cpp`): decoder, vocabulary, mixture and choice.

A call returns when a hypothesis ends, a sentence is done or memory must grow, and at least every few steps, so that
other threads and signals get their turn. The hypotheses of a sentence share slots for keys and values, as those of
`knnmt.engine.state` do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.backend import Leading
from knnmt.decoding.hypothesis import Hypothesis, Numbers, Scores, hoped_length
from knnmt.engine.base import Engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from knnmt.native import library
from knnmt.native.structures import address, made
from knnmt.retrieval.retriever import BatchRetrieval

_STEPS = 16  # of a call
_ROOM = 64  # tokens of a hypothesis, at first
_STAGES = ("decoder", "output", "retrieval", "beam")


def why_not_compiled(engine: Engine[Any], retrieval: BatchRetrieval | None) -> str | None:
    """Why compiled code cannot make all steps of a batch, or None if it can."""
    if not isinstance(engine, TransformerEngine) or engine.compiled is None:
        return "no compiled code for this model, device and type of numbers"
    return None if retrieval is None else retrieval.why_not_compiled()


class CompiledBackend:
    """See `knnmt.decoding.backend.Backend`."""

    def __init__(
        self,
        engine: Engine[Any],
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        retrieval: BatchRetrieval | None,
    ) -> None:
        assert isinstance(engine, TransformerEngine)  # noqa: S101 - `why_not_compiled` has checked this and the next
        assert engine.compiled is not None  # noqa: S101
        self._decoder, self._output = engine.compiled
        self._beam = config.beam
        self.context = nullcontext()
        self.sentences = np.arange(len(sources))
        self._rules, self._kept = _rules(engine, config)
        encoded = engine.encode(sources)
        self._mixtures = None if retrieval is None else retrieval.mixtures(sources, engine.vocabulary_size)
        # Rows of the memory below belong to sentences, also after some of them have left.
        self._state = engine.start(encoded)
        self._visible = np.zeros((len(sources), self._beam, 0), np.float32)
        self._places = np.arange(len(sources))
        self._scores = np.zeros((len(sources), self._beam), np.float32)
        self._tokens = np.zeros((len(sources), self._beam, _ROOM), np.int64)
        self._running = made("Running", len(sources))
        self._cross = np.array([each.data_ptr() for each in self._state.cross], np.uintp)
        self._running["state"]["width"] = 1
        self._running["state"]["cross"] = address(self._cross)
        self._running["state"]["cross_offset"] = self._places * self._state.cross[0].stride(0)
        self._running["state"]["source"] = encoded.lengths
        if self._mixtures is not None:
            self._running["mixing"], self._running["own"] = self._mixtures.addresses
        self._search = made("Search")
        self._make_slots(self._state.slots.shape[2])
        self._make_room(_ROOM)

    @property
    def leaders(self) -> Scores:
        leaders: Scores = self._scores[self._places, 0].astype(np.float64)
        return leaders

    @property
    def lengths(self) -> Numbers:
        lengths: Numbers = self._running["state"]["length"]
        return lengths

    def advance(self, least: Scores, one_step: bool) -> list[tuple[int, Hypothesis]]:
        running, search = self._running, self._search
        running["least"] = least
        search["sentences"], search["steps"], search["running"] = (
            len(running),
            1 if one_step else _STEPS,
            address(running),
        )
        native = library()
        assert native is not None  # noqa: S101 - since the engine is compiled
        places = (self._decoder.address, self._output.address, address(self._rules), address(search))
        steps = native.knnmt_beam(*places, torch.get_num_threads())
        self._tell(steps)
        if search["lacks_slots"][0]:
            self._make_slots(2 * self._state.slots.shape[2])
        if search["lacks_room"][0]:
            self._make_room(2 * self._tokens.shape[2])
        ended = self._ended[: int(search["endings"][0])]
        lengths = running["state"]["length"][ended["sentence"]]
        texts = (self._ends[place, :length].tolist() for place, length in enumerate(lengths.tolist()))
        numbers = self.sentences[ended["sentence"]].tolist()
        return [
            (number, Hypothesis(tuple(text), score))
            for number, text, score in zip(numbers, texts, ended["score"].tolist(), strict=True)
        ]

    def keep(self, places: Sequence[int]) -> None:
        self.sentences = self.sentences[places]
        self._running, self._places = self._running[places], self._places[places]

    def leading(self) -> Leading:
        tokens = self._tokens[self._places, 0]
        numbered = zip(self.sentences.tolist(), tokens, self.lengths.tolist(), strict=True)
        return {number: mine[:length].tolist() for number, mine, length in numbered}

    def _tell(self, steps: int) -> None:
        """Report a call: errors, the time of its stages, and its searches."""
        search = self._search
        if steps == -1:
            raise self._decoder.refusal()
        if self._mixtures is not None:
            if steps == -2:
                raise self._mixtures.damage()
            first, others = int(search["first_searches"][0]), int(search["searches"][0])
            self._mixtures.count(first, others)
            search["first_searches"] = search["searches"] = 0
        for stage, seconds in zip(_STAGES, search["seconds"][0].tolist(), strict=True):
            if seconds:
                timing.spent(stage, seconds, steps)
        search["seconds"] = 0

    def _make_slots(self, capacity: int) -> None:
        """Make memory for so many slots of each sentence."""
        state, sentences = self._state, len(self._state.sources)
        visible = np.full((sentences, self._beam, capacity), -math.inf, np.float32)
        slots = state.slots.new_empty((*state.slots.shape[:2], capacity, *state.slots.shape[3:]))
        before = self._visible.shape[2]
        slots[:, :, :before], visible[:, :, :before] = state.slots[:, :, :before], self._visible
        state.slots, self._visible = slots, visible
        at = self._running["state"]
        at["slots"] = slots.data_ptr() + self._places * (4 * slots.stride(1))
        at["visible"] = visible.ctypes.data + self._places * visible.strides[0]
        self._search["capacity"], self._search["layer_stride"] = capacity, slots.stride(0)

    def _make_room(self, room: int) -> None:
        """Make memory for hypotheses of so many tokens."""
        tokens = np.zeros((*self._tokens.shape[:2], room), np.int64)
        tokens[:, :, : self._tokens.shape[2]] = self._tokens
        self._tokens, self._search["room"] = tokens, room
        self._running["tokens"] = tokens.ctypes.data + self._places * tokens.strides[0]
        self._running["scores"] = self._scores.ctypes.data + self._places * self._scores.strides[0]
        self._ended = made("Ended", len(tokens) * self._beam)
        self._ends = np.zeros((len(self._ended), room), np.int64)
        self._ended["tokens"] = self._ends.ctypes.data + np.arange(len(self._ended)) * self._ends.strides[0]
        self._search["ended"] = address(self._ended)


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
    named = np.array([*never, *tokens, *(token for token in forced.values() if token != -1)], np.int64)
    if len(named) and not 0 <= named.min() <= named.max() < engine.vocabulary_size:
        raise InputError(
            f"a search forces or forbids token {named.max()}, but the model has {engine.vocabulary_size:,} tokens"
        )
    rules = made(
        "Rules",
        beam=config.beam,
        start=engine.special_tokens.decoder_start,
        end=engine.special_tokens.end,
        min_tokens=config.min_tokens,
        max_tokens=config.max_tokens,
        **forced,
        forbidden=len(never),
        never=address(never),
        sequences=len(sequences),
        sequence_ends=address(ends),
        sequence_tokens=address(tokens),
        length_penalty=config.length_penalty,
        hoped_length=hoped_length(config),
    )
    return rules, (never, ends, tokens)
