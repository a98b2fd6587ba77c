"""The steps of a batch on a GPU: they have a fixed shape, and are captured once as CUDA graphs and then replayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.backend import Leading
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.graph_buffers import CapturedWork, GraphBuffers, Sent, borrow, give_back, size_for
from knnmt.decoding.graph_choice import choose, choose_in_pytorch, chooses_in_two
from knnmt.decoding.hypothesis import NEVER, Hypothesis, Numbers, OnStarted, Scores
from knnmt.engine.base import Engine
from knnmt.engine.fixed_state import FixedState, GraphEngine
from knnmt.progress import ignore
from knnmt.retrieval.graphs import GraphSteps
from knnmt.retrieval.needs import Need
from knnmt.retrieval.retriever import BatchRetrieval

MIN_SLOTS = 128
_SOURCE_STEP = 32
SHRINKING = 4  # once so many sentences are done, a step shrinks by this factor: few sizes, captured soon


def load_sources(
    engine: GraphEngine,
    buffers: GraphBuffers,
    sources: Sequence[Sequence[int]],
    size: int,
    load: Callable[[GraphEngine, GraphBuffers, Sequence[Tensor], Tensor], None],
) -> int:
    """Run the encoder for so many sentences, including blanks. Return the number of source positions.

    Blanks are sources of one token, so that nothing in them is undefined.

    load: is captured, too; it is given each layer's keys and values of the sources, and the mask of their positions
    """
    longest = max(len(source) for source in sources)
    # Few different lengths; even if all is padding, there must be positions.
    positions = min(-(-longest // _SOURCE_STEP) * _SOURCE_STEP, max(longest, engine.max_positions))
    padded = np.full((size, 1 + positions), engine.special_tokens.padding, dtype=np.int64)
    padded[:, 0] = 1
    for row, tokens in enumerate(sources):
        padded[row, : 1 + len(tokens)] = (len(tokens), *tokens)
    with timing.stage("encoder"):
        buffers.sources.send(padded.ravel())
        work = partial(_encode, sentences=size, source=positions, load=load)
        buffers.get_or_make((load, engine.special_tokens, size, positions), lambda: CapturedWork(work))(engine, buffers)
    return positions


class GraphBackend:
    """See `knnmt.decoding.backend.Backend`. A batch in buffers.

    All sentences have their full beams from the first step on; if only one hypothesis is possible, the others have a
    score of -inf. The host looks at the result of a step while the device computes the next one. A sentence that is
    done continues as a blank until enough are done to continue with a smaller step.

    size: sentences of a step, including blanks
    extent: slots that a step looks at
    source: source positions
    used: slots taken
    source_of: (size,), the source of each sentence, -1 if it is done or never existed
    history: (size * width, capacity), on the host, the tokens chosen so far; `spare` takes those of the next step
    """

    LACKS = frozenset(
        {
            Need.CPU,
            Need.ANY_SHAPE,
            Need.HISTORY,
            Need.REQUIRED_CONTENT,
            Need.EVIDENCE,
            Need.SEVERAL_SETTINGS,
            Need.EMPTY_STORE,
            Need.FAST,
            Need.GATE,
            Need.COMBINER,
            Need.CACHE,
            Need.NO_KERNEL,
        }
    )

    def __init__(
        self,
        engine: Engine[Any],
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        retrieval: BatchRetrieval | None,
        on_started: OnStarted = ignore,
    ) -> None:
        """on_started: is called once, when the device has the first step to compute"""
        assert isinstance(engine, GraphEngine)  # noqa: S101 - `backend_for` has checked this
        self._on_started = on_started
        self._engine, self._config, self._retrieval = engine, config, retrieval
        self._special_tokens = engine.special_tokens  # part of the capture, and different for each language
        self._constraints = Constraints(config, engine.special_tokens.end, engine.device)
        self._size = size_for(len(sources))
        self._extent, self._used = MIN_SLOTS, 0
        self._source_of = np.full(self._size, -1)
        self._source_of[: len(sources)] = np.arange(len(sources))
        self._running = np.arange(len(sources))  # the rows of sentences that are not done
        self._leaders = np.zeros(self._size, np.float32)
        self._history, self._spare = np.zeros((2, self._size * config.beam, 32), dtype=np.int32)
        self._made = self._looked_at = 0  # steps
        self._under_way: deque[Sent] = deque()
        longest = max(len(source) for source in sources)
        self._buffers = borrow(engine, len(sources), config.beam, MIN_SLOTS, longest)
        self._buffers.wait_for_others()
        self.context = self._buffers.on_stream()
        with self._buffers.on_stream():
            self._make_extent()
            self._graph_retrieval = retrieval.for_graphs() if retrieval is not None else None
            self._source = load_sources(engine, self._buffers, sources, self._size, _begin)
            if self._graph_retrieval is not None and retrieval is not None:
                self._graph_retrieval.begin(self._size, retrieval.choose(sources), self._buffers.get_or_make)

    @property
    def sentences(self) -> Numbers:
        return self._source_of[self._running]

    @property
    def leaders(self) -> Scores:
        return self._leaders[self._running].astype(np.float64)

    @property
    def lengths(self) -> Numbers:
        return np.full(len(self._running), self._looked_at)

    def advance(self, least: Scores, one_step: bool) -> list[tuple[int, Hypothesis]]:  # noqa: ARG002
        if not self._under_way:
            self._shrink()
            self._begin_step()
        few = len(self._running) <= self._size // SHRINKING
        if self._made < self._config.max_tokens and not few:
            self._begin_step()
        return self._look_at(self._under_way.popleft().wait())

    def keep(self, places: Sequence[int]) -> None:
        self._source_of[np.delete(self._running, places)] = -1
        self._running = self._running[places]
        if not len(places):
            self._buffers.wait_in_others()
            give_back(self._engine, self._buffers)

    def leading(self) -> Leading:
        first = self._history[self._running * self._config.beam, : self._looked_at].tolist()
        return dict(zip(self.sentences.tolist(), first, strict=True))

    def _begin_step(self) -> None:
        with timing.stage("step"):
            written = self._step(self._made)
            self._made += 1
            self._under_way.append(self._buffers.send(self._size, self._made, written))
        if self._made == 1:
            self._on_started()

    def _step(self, generated: int) -> bool:
        """One step for all sentences in the buffers. Returns whether it writes its result to the host."""
        self._make_extent()
        buffers, constraints = self._buffers, self._constraints
        forced = constraints.forces(generated)
        steps = None if forced or self._graph_retrieval is None else self._graph_retrieval.steps
        in_two = not forced and chooses_in_two(self._engine, self._config.beam, 0 if steps is None else steps.k)
        shape = (self._size, self._extent, self._source)

        def make() -> CapturedWork:
            state = FixedState(buffers.memory, *shape)
            work = partial(_advance, state=state, constraints=constraints, generated=generated)
            return CapturedWork(partial(work, retrieval=steps, in_two=in_two))

        buffers.get_or_make((shape, self._special_tokens, constraints.at(generated), steps), make)(
            self._engine, buffers
        )
        self._used += self._config.beam
        if forced and generated == 0:
            # Only one hypothesis is possible; the others become copies of it, so that they add nothing.
            tokens = buffers.tokens[: self._size]
            tokens.copy_(tokens[:, :1].clone().expand_as(tokens))
        return in_two

    def _make_extent(self) -> None:
        """Make sure that the slots of two more steps can be written: a step makes room for the next one."""
        slots = 2 * self._config.beam
        if self._used + slots <= self._extent <= self._buffers.memory.capacity:
            return
        if self._used:
            self._used = self._buffers.memory.compact(self._size, self._used)
        while self._used + 4 * slots > self._extent:  # not too full, or it would soon be necessary again
            self._extent *= 2
        if self._extent > self._buffers.memory.capacity:
            self._buffers.grow(self._extent)

    def _look_at(self, chosen: npt.NDArray[np.int32]) -> list[tuple[int, Hypothesis]]:
        """Read the result of a step on the host; return the hypotheses that ended."""
        self._looked_at += 1
        length, width, last = self._looked_at, self._config.beam, self._looked_at == self._config.max_tokens
        best = chosen[:, : 2 * width].view(np.float32)
        parents, tokens = chosen[:, 2 * width : 4 * width], chosen[:, 4 * width : 6 * width]
        going = chosen[:, 6 * width : 7 * width].astype(np.int64)
        if self._retrieval is not None and not self._constraints.forces(length - 1):
            first = length == 1 + self._constraints.forces(0)  # with one hypothesis per sentence
            rows = len(self._running) * (1 if first else width)
            self._retrieval.statistics.count(rows, rows, 0, first)
        ends = (tokens[:, :width] == self._engine.special_tokens.end) | last
        ended = np.nonzero(ends & (self._source_of >= 0)[:, None])
        prefixes = self._history[ended[0] * width + parents[ended], : length - 1].tolist()
        found = zip(
            self._source_of[ended[0]].tolist(), prefixes, tokens[ended].tolist(), best[ended].tolist(), strict=True
        )
        every = np.arange(self._size)[:, None]
        self._leaders = best[every, going[:, :1]][:, 0]
        if length > self._history.shape[1]:
            self._history = np.pad(self._history, ((0, 0), (0, self._history.shape[1])))
            self._spare = np.empty_like(self._history)
        before = (every * width + parents[every, going]).ravel()
        np.take(self._history, before, axis=0, out=self._spare, mode="clip")  # other modes make one more copy
        self._history, self._spare = self._spare, self._history
        self._history[:, length - 1] = tokens[every, going].ravel()
        return [(source, Hypothesis((*prefix, token), score)) for source, prefix, token, score in found]

    def _shrink(self) -> None:
        """Continue with a smaller step, and blanks for the rest of it, if few sentences still run."""
        rows, size = self._running, self._size // SHRINKING
        if len(rows) > size:
            return
        self._size = size
        self._source_of = np.concatenate([self._source_of[rows], np.full(size - len(rows), -1)])
        self._running = np.arange(len(rows))
        kept = np.concatenate([rows, np.repeat(rows[:1], size - len(rows))])
        self._leaders = self._leaders[kept]
        self._history = self._history.reshape(-1, self._config.beam, self._history.shape[1])[kept].reshape(
            size * self._config.beam, -1
        )
        self._spare = np.empty_like(self._history)
        moved = torch.from_numpy(kept).to(self._engine.device)
        self._buffers.keep(moved, self._source, self._used)
        if self._graph_retrieval is not None:
            self._graph_retrieval.keep(moved, len(rows), self._buffers.get_or_make)


# What is captured: work whose shapes do not depend on what comes out -------------------------------------------------


def _encode(
    engine: GraphEngine,
    buffers: GraphBuffers,
    sentences: int,
    source: int,
    load: Callable[[GraphEngine, GraphBuffers, Sequence[Tensor], Tensor], None],
) -> None:
    """Run the encoder over the sources in the buffers, and load the result."""
    given = buffers.sources.numbers[: sentences * (1 + source)].view(sentences, 1 + source)
    padded = torch.arange(source, device=engine.device) >= given[:, :1]
    mask = torch.zeros(padded.shape, dtype=engine.dtype, device=engine.device).masked_fill_(padded, NEVER)
    states = engine.encode_padded(given[:, 1:], mask[:, None, None])
    load(engine, buffers, engine.source_attention(states), mask)


def _begin(engine: GraphEngine, buffers: GraphBuffers, cross: Sequence[Tensor], mask: Tensor) -> None:
    """Begin a batch; each sentence has one empty hypothesis."""
    buffers.memory.begin(cross, mask)
    buffers.tokens[: len(mask)].fill_(engine.special_tokens.decoder_start)
    buffers.scores[: len(mask)].fill_(NEVER)
    buffers.scores[: len(mask), 0] = 0.0


def _advance(
    engine: GraphEngine,
    buffers: GraphBuffers,
    state: FixedState,
    constraints: Constraints,
    generated: int,
    retrieval: GraphSteps | None,
    in_two: bool,
) -> None:
    """A step of beam search for the first sentences in the buffers, as in `knnmt.decoding.reference`.

    generated: number of earlier tokens, as far as `Constraints.at` distinguishes them
    in_two: whether two kernels choose, which also write the result to the host
    """
    tokens, scores = buffers.tokens[: state.sentences], buffers.scores[: state.sentences]
    end = engine.special_tokens.end
    representations = engine.step(state, tokens[..., None])[:, :, 0]
    if retrieval is not None:
        with buffers.aside():
            found = retrieval.look(representations)
    numbers = (engine.scores if in_two else engine.log_probabilities)(representations)
    if retrieval is not None:
        buffers.join()
    if in_two:
        retrieved = None if retrieval is None else retrieval.kernel_args(found, state.width)
        choose(buffers, state, numbers, constraints.forbidden(generated), end, retrieved)
        return
    if retrieval is not None:
        scores = retrieval.mix(found, numbers, scores)
    constraints.apply(numbers, generated, None)
    choose_in_pytorch(buffers, state, numbers, scores, end)
