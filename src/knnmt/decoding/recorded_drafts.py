"""Greedy search with drafts on a GPU: the search of `knnmt.decoding.drafted`, in steps of fixed shape.

A step computes a few tokens of every sentence: the newest one, and some that follow it in the memory. The device itself
decides which of them count and what is drafted next, so sentences advance by different lengths and the host never
waits. The host looks at the result of a step while the device computes the next one, and chooses how many tokens the
step after that computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isfinite, log2

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.arena import MAX_TURNS, Arena, Recorded, arena_for, size_for
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.hypothesis import Begun, Found, Hypothesis, unheard, unnoticed
from knnmt.decoding.recorded import MIN_SLOTS, SHRINKING, begin_batch
from knnmt.engine.fixed_state import RecordingEngine, TurnState, seen_up_to
from knnmt.index import base
from knnmt.native.gpu import kernel
from knnmt.retrieval.recorded import MixedInTurn, RecordedRetrieval, RecordedSteps, Rules
from knnmt.retrieval.retriever import BatchRetrieval

TURNS = (1, 4, MAX_TURNS)  # tokens of a sentence that a step computes: few numbers, which are recorded soon
# Of a step, in terms of one of one token of one sentence: twice as many sentences, more tokens than one, a token.
_SIZE_COST, _TURNS_COST, _ROW_COST = 0.1, 0.14, 0.0008
# How often the first token of a draft is right, by λ, and every next one after it.
_MIN_CHANCE, _RIGHT, _RIGHT_BY_CHANCE, _GOES_ON = 0.02, 0.2, 0.65, 0.7
_LIKELY = 0.5  # the chance that a draft ends a sentence above which the host waits: a useless step costs more
_NEVER = float("-inf")


def recorded_drafts(
    engine: RecordingEngine,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval,
    recorded: RecordedRetrieval,
    found: Found = unheard,
    begun: Begun = unnoticed,
) -> list[list[Hypothesis]]:
    """Like `greedy.greedy_search`. recorded: of the retrieval, in which each sentence has its own segments"""
    longest = max(len(source) for source in sources)
    with torch.inference_mode(), arena_for(engine, len(sources), 1, MIN_SLOTS, longest) as arena:
        return _DraftedBatch(engine, arena, sources, config, retrieval, recorded, found).search(begun)


def turns_for(chances: npt.NDArray[np.float64], size: int) -> int:
    """How many tokens of a sentence make a step of so many sentences worth most.

    chances: (sentences,), λ where each sentence that is not done was last seen, 0 where nothing is drafted
    """
    drafting = chances[chances > _MIN_CHANCE]
    first = _RIGHT * len(drafting) + _RIGHT_BY_CHANCE * float(drafting.sum())
    alone = 1 + _SIZE_COST * log2(size)

    def worth(turns: int) -> float:
        tokens = len(chances) + first * (1 - _GOES_ON ** (turns - 1)) / (1 - _GOES_ON)
        return tokens / (alone + _TURNS_COST * (turns > 1) + _ROW_COST * size * turns)

    return max(TURNS, key=worth)


class _DraftedBatch:
    """A batch in an arena.

    size: sentences of a step, including blanks
    extent: slots that a step looks at
    source: source positions
    source_of: (size,), the source of each sentence, -1 if it is done or never existed
    tokens, drafted, scores: of each source, so far, as in `Hypothesis`
    chances, ends: (size,), the probability of the first token of the next draft, and after how many of its tokens the
        sentence would end, as far as the host knows
    """

    def __init__(
        self,
        engine: RecordingEngine,
        arena: Arena,
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        retrieval: BatchRetrieval,
        recorded: RecordedRetrieval,
        found: Found,
    ) -> None:
        self._engine, self._arena, self._config = engine, arena, config
        self._retrieval, self._recorded, self._found = retrieval, recorded, found
        self._size = size_for(len(sources))
        self._extent = MIN_SLOTS
        self._source_of = np.full(self._size, -1)
        self._source_of[: len(sources)] = np.arange(len(sources))
        self._tokens: list[list[int]] = [[] for _ in sources]
        self._drafted: list[list[bool]] = [[] for _ in sources]
        self._scores = [0.0] * len(sources)
        self._lost: set[int] = set()
        self._chances, self._ends = np.zeros(self._size), np.full(self._size, MAX_TURNS)
        self._first = True
        self._source = begin_batch(engine, arena, sources, self._size)
        arena.generated[: self._size].zero_()
        arena.ended[: len(sources)].zero_()
        arena.ended[len(sources) : self._size].fill_(1)
        recorded.begin(self._size, retrieval.choose(sources), arena.kept)

    def search(self, begun: Begun) -> list[list[Hypothesis]]:
        """Decode to the end. begun: is called after the first step is on its way"""
        under_way = None
        if (
            forced := Constraints(self._config, self._engine.special_tokens.end, self._engine.device).at(0)[0]
        ) is not None:
            self._begin_with(forced)
        step, ahead = 0, 0  # tokens that a sentence may have beyond those that the host has seen
        while np.any(self._source_of >= 0):
            if under_way is not None and self._likely_done(under_way[1]):
                self._look_at(under_way[0].wait(), under_way[1])
                under_way, ahead = None, 0
                continue
            turns = turns_for(self._chances[self._source_of >= 0], self._size)
            with timing.stage("step"):
                self._step(turns, ahead)
                newest = self._arena.send(self._size, step)
            if step == 0:
                begun()
            if under_way is not None:
                self._look_at(under_way[0].wait(), under_way[1])
            under_way, ahead, step = (newest, turns), turns, step + 1
            running = int(np.count_nonzero(self._source_of >= 0))
            if 0 < running <= self._size // SHRINKING:
                self._look_at(newest.wait(), turns)
                under_way, ahead = None, 0
                self._keep_running()
        return [self._result(source) for source in range(len(self._tokens))]

    def _result(self, source: int) -> list[Hypothesis]:
        tokens = self._tokens[source]
        if source in self._lost:
            return []
        score = self._scores[source] / len(tokens) ** self._config.length_penalty
        return [Hypothesis(tuple(tokens), score, drafted=tuple(self._drafted[source]))]

    def _likely_done(self, turns: int) -> bool:
        """Whether a running step of so many turns probably ends all sentences."""
        if turns == 1:
            return False
        running = self._source_of >= 0
        return bool(((self._ends[running] < turns) & (self._chances[running] >= _LIKELY)).all())

    def _begin_with(self, token: int) -> None:
        """Take a forced first token: nothing is retrieved for it, and it adds nothing to scores."""
        work = partial(_take_in, state=self._state(), token=token)
        key = ("told", self._engine.special_tokens, self._size, self._extent, self._source, token)
        self._arena.kept(key, lambda: Recorded(work))(self._engine, self._arena)
        ends = token == self._engine.special_tokens.end or self._config.max_tokens == 1
        for source in self._source_of[self._source_of >= 0].tolist():
            self._tokens[source].append(token)
            self._drafted[source].append(False)
        if ends:
            self._source_of.fill(-1)

    def _step(self, turns: int, ahead: int) -> None:
        """One step for all sentences of the arena."""
        longest = max(len(tokens) for tokens in self._tokens)
        while longest + ahead + turns > self._extent:
            self._extent *= 2
        if self._extent > self._arena.memory.capacity:
            self._arena.grow(self._extent)
        config, steps = self._config, self._recorded.steps
        assert steps is not None  # noqa: S101 - it has begun
        told = (config.max_tokens, config.min_tokens, config.forced_last_token, config.suppressed_tokens)
        key = ("drafted", self._size, turns, self._extent, self._source, self._engine.special_tokens, told, steps)

        def recorded() -> Recorded:
            choice = _Choice(self._engine, config, self._size, turns)
            return Recorded(partial(_advance, state=self._state(), turns=turns, choice=choice, retrieval=steps))

        self._arena.kept(key, recorded)(self._engine, self._arena)

    def _state(self) -> TurnState:
        arena, extent = self._arena, self._extent
        up_to = arena.kept(("seen up to", extent), lambda: seen_up_to(extent, arena.memory.visible))
        return TurnState(arena.memory, up_to, self._source, arena.generated[: self._size], self._engine.max_positions)

    def _look_at(self, chosen: npt.NDArray[np.int32], turns: int) -> None:
        """Read the result of a step on the host."""
        gains = chosen[:, 3 + turns : 3 + 2 * turns].view(np.float32).tolist()
        tokens, taken = chosen[:, 3 : 3 + turns].tolist(), chosen[:, 0].tolist()
        end, most = self._engine.special_tokens.end, self._config.max_tokens
        rows, forced, verified, accepted = 0, 0, 0, 0
        for row in np.flatnonzero(self._source_of >= 0).tolist():
            source, count = int(self._source_of[row]), taken[row]
            mine = self._tokens[source]
            mine += tokens[row][:count]
            self._drafted[source] += [turn > 0 for turn in range(count)]
            self._scores[source] += sum(gains[row][:count])
            rows += count
            forced += len(mine) == most and self._config.forced_last_token is not None
            if turns > 1 and self._chances[row] > 0:
                verified += 1
                accepted += count - 1
            if not isfinite(gains[row][count - 1]):
                self._lost.add(source)
            if mine[-1] == end or len(mine) == most or source in self._lost:
                self._source_of[row] = -1
                self._found(source, self._result(source))
        self._chances, self._ends = chosen[:, 1].view(np.float32).astype(np.float64), chosen[:, 2].copy()
        self._count(rows - forced)
        if verified:
            self._retrieval.statistics.count_drafts([turns - 1] * verified, accepted)

    def _count(self, rows: int) -> None:
        statistics = self._retrieval.statistics
        if self._first:
            first = min(rows, len(self._tokens))
            statistics.count(first, first, 0, first=True)
            rows -= first
            self._first = False
        statistics.count(rows, rows, 0, first=False)

    def _keep_running(self) -> None:
        """Continue with the sentences that are not done, and blanks for the rest of a smaller step."""
        rows = np.flatnonzero(self._source_of >= 0)
        size = self._size // SHRINKING
        if not 0 < len(rows) <= size:
            return
        kept = np.concatenate([rows, np.repeat(rows[:1], size - len(rows))])
        self._size = size
        self._source_of = np.concatenate([self._source_of[rows], np.full(size - len(rows), -1)])
        self._chances, self._ends = self._chances[kept], self._ends[kept]
        moved = torch.from_numpy(kept).to(self._engine.device)
        self._arena.keep(moved, self._source, self._extent)
        self._arena.ended[len(rows) : size] = 1
        self._recorded.keep(moved, len(rows), self._arena.kept)


# What is recorded: work whose shapes do not depend on what comes out -------------------------------------------------


def _take_in(engine: RecordingEngine, arena: Arena, state: TurnState, token: int) -> None:
    """The decoder's step before a forced token."""
    tokens = arena.tokens[: state.sentences]
    engine.step(state, tokens[..., None])
    tokens.fill_(token)
    arena.generated[: state.sentences] += 1


def _advance(
    engine: RecordingEngine, arena: Arena, state: TurnState, turns: int, choice: _Choice, retrieval: RecordedSteps
) -> None:
    """Steps for the first sentences of the arena, as many at once as there are turns."""
    sentences = state.sentences
    inputs = torch.cat([arena.tokens[:sentences], arena.draft[:sentences, : turns - 1]], dim=1)
    representations = engine.step(state, inputs[:, None])[:, 0]
    with arena.aside():
        found = retrieval.look(representations)
    if retrieval.chooses_in_one(engine.dtype):
        scores = engine.scores(representations)
        arena.join()
        best, tokens, mixed = retrieval.best_in_turn(found, scores, choice.rules, arena.generated)
        choice.take(arena, best, tokens, mixed, found, retrieval, scores.shape[-1])
    else:
        log_probabilities = engine.log_probabilities(representations)
        arena.join()
        mixed = retrieval.mix_in_turn(found, log_probabilities)
        choice(arena, log_probabilities, mixed, found, retrieval)


class _Choice:
    """Decides which of several steps greedy search takes for each sentence, and what it drafts next: see take.cu."""

    def __init__(self, engine: RecordingEngine, config: DecodingConfig, sentences: int, turns: int) -> None:
        self._config, self._end = config, engine.special_tokens.end
        self._sentences, self._turns = sentences, turns
        self._kernel = kernel("take", engine.device)
        suppressed = torch.tensor(config.suppressed_tokens, dtype=torch.long, device=engine.device)
        self.rules = Rules(suppressed, self._end, config.min_tokens)
        self._ahead = torch.arange(turns, device=engine.device)
        self._numbers: Tensor | None = None

    def __call__(
        self, arena: Arena, log_probabilities: Tensor, mixed: MixedInTurn, found: base.Found, retrieval: RecordedSteps
    ) -> None:
        config = self._config
        if len(self.rules.forbidden):
            log_probabilities.index_fill_(-1, self.rules.forbidden, _NEVER)
        if config.min_tokens:
            early = arena.generated[: self._sentences, None] + self._ahead < config.min_tokens
            log_probabilities[..., self._end].masked_fill_(early, _NEVER)
        best, tokens = log_probabilities.max(-1)
        self.take(arena, best, tokens, mixed, found, retrieval, log_probabilities.shape[-1])

    def take(
        self,
        arena: Arena,
        best: Tensor,
        tokens: Tensor,
        mixed: MixedInTurn,
        found: base.Found,
        retrieval: RecordedSteps,
        vocabulary: int,
    ) -> None:
        """Take the best tokens of the steps, (sentences, turns), as far as they count, and draft the next ones."""
        if self._kernel is None:
            self._in_pytorch(arena, best, tokens, mixed, found[1], retrieval, vocabulary)
            return
        self._kernel(
            grid=(self._sentences, 1, 1),
            block=(32, 1, 1),
            args=[
                self._told(arena, found[1].shape[1], vocabulary),
                best,
                tokens,
                mixed.offsets,
                mixed.sums,
                mixed.steps,
                found[1].contiguous(),
                len(retrieval.values),
                retrieval.values,
                arena.draft,
                arena.tokens,
                arena.generated,
                arena.ended,
                retrieval.so_far.sums,
                retrieval.so_far.steps,
                arena.chosen,
            ],
        )

    def _told(self, arena: Arena, k: int, vocabulary: int) -> Tensor:
        """The constants of take.cu, on the device before anything is recorded."""
        if self._numbers is None:
            forced = -1 if self._config.forced_last_token is None else self._config.forced_last_token
            shapes = [self._turns, k, arena.draft.shape[1], arena.chosen.shape[1]]
            numbers = [*shapes, self._config.max_tokens, self._end, forced, vocabulary]
            self._numbers = torch.tensor(numbers, dtype=torch.int32).to(arena.draft.device)
        return self._numbers

    def _in_pytorch(
        self,
        arena: Arena,
        best: Tensor,
        tokens: Tensor,
        mixed: MixedInTurn,
        ids: Tensor,
        retrieval: RecordedSteps,
        vocabulary: int,
    ) -> None:
        """The same as take.cu. Sentences that are done continue in the arena, but are ignored."""
        config, sentences, turns = self._config, self._sentences, self._turns
        draft, generated, ended = arena.draft[:sentences], arena.generated[:sentences], arena.ended[:sentences]
        places = generated[:, None] + self._ahead
        gains = best + mixed.offsets
        if config.forced_last_token is not None:
            at_end = places == config.max_tokens - 1
            tokens = tokens.masked_fill(at_end, config.forced_last_token)
            gains = gains.masked_fill(at_end, 0.0)
        stops = (tokens == self._end) | (places >= config.max_tokens - 1) | ~gains.isfinite()
        right = (tokens[:, :-1] == draft[:, : turns - 1]) & ~stops[:, :-1]
        taken = 1 + right.long().cumprod(1).sum(1)
        last = (taken - 1)[:, None]
        newest, offset = tokens.gather(1, last), mixed.offsets.gather(1, last)[:, 0]
        near = ids.view(sentences, turns, -1)[torch.arange(sentences, device=ids.device), taken - 1]
        values = retrieval.values
        having_it = (near >= 0) & (values[near.clamp(min=0)] == newest)
        known, first = having_it.any(1), having_it.int().argmax(1, keepdim=True)
        coming = near.gather(1, first) + 1 + torch.arange(draft.shape[1], device=ids.device)
        following = values[coming.clamp(min=0, max=len(values) - 1)].long()
        sound = (coming < len(values)) & (following >= 0) & (following < vocabulary)
        following = following.masked_fill(~sound, self._end)
        draft.copy_(torch.where(known[:, None], following, draft))
        ends = ((following != self._end) | ~known[:, None]).int().cumprod(1).sum(1)
        arena.tokens[:sentences] = newest
        retrieval.take(mixed, taken - 1)
        taken = taken.masked_fill(ended > 0, 0)
        generated += taken
        ended |= stops.gather(1, last)[:, 0].int()
        chance = torch.where(known, 1 - offset.exp(), 0.0)
        first = torch.stack([taken.int(), chance.view(torch.int32), ends.int()], dim=1)
        rest = [tokens.int(), gains.view(torch.int32)]
        arena.chosen[:sentences, : 3 + 2 * turns] = torch.cat([first, *rest], dim=1)
