"""Greedy search with drafts: tokens are drafted from the memory, and one pass of the decoder verifies all of them.

If a memory helps, the translation follows one of its segments for several tokens. The draft therefore consists of the
tokens that follow the entries of the last token. A sentence that the memory holds, or almost, begins with the tokens of
that segment. One pass of the decoder computes the distributions after all of them. Drafted tokens are accepted up to
the first that greedy search would not have chosen; its own choice replaces that one. So the tokens are those of
`greedy.greedy_search`. Each sentence drafts separately, as far as it pays: as far as the entries agree and λ says that
the memory knows the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import exp

import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.compiled_passes import CompiledPasses, DraftPolicy
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.continuations import best_tokens
from knnmt.decoding.drafted_sentence import DraftedSentence
from knnmt.decoding.following_batches import FollowingBatch, FollowingBatches
from knnmt.decoding.hypothesis import Found, Growing, Hypothesis, unheard
from knnmt.engine.batching import with_gaps_filled
from knnmt.engine.compiled_ahead import EngineAhead
from knnmt.engine.state import EngineInTurn, StateInTurn
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.own_entries import Drafting
from knnmt.retrieval.retriever import BatchRetrieval

_MAX_DRAFT = 15  # tokens of a sentence
_VOTERS = 16  # entries, at most, that vote for the next token
_ROW_COST = 0.16  # of each drafted token, relative to a pass with one token of one sentence
_SPEED = 1.4  # the typical speed-up by drafts: what the time of a drafted token would gain elsewhere
_SURELY, _SURER = 0.05, 1.3  # the probability of a token that all entries name: measured on text of several domains


def least_chance(sentences: int) -> float:
    """The lowest probability at which a drafted token gains more than it costs, in a pass of so many sentences."""
    return _SPEED * sentences * _ROW_COST / (1 + _ROW_COST * max(sentences - 1, 0))


def certainty(weight: float) -> float:
    """The probability of the next token that all entries name, given λ."""
    return min(1.0, _SURELY + _SURER * weight)


def drafted_search(
    engine: EngineInTurn,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval,
    steps: CompiledSteps,
    found: Found = unheard,
    growing: Growing | None = None,
) -> list[list[Hypothesis]]:
    """Like `greedy.greedy_search`, with drafts. steps: of the retrieval, in which each sentence has its own segments"""
    drafting = DraftedSearch(engine, config, growing)
    drafting.add(sources, retrieval, steps, found)
    [results] = drafting.finish()
    return results


@dataclass(slots=True, eq=False)
class _Batch(FollowingBatch):
    """A batch that was asked for. state: of all sentences before their first pass, None until they are encoded"""

    steps: CompiledSteps
    state: StateInTurn | None = None

    def encode(self, engine: EngineInTurn) -> StateInTurn:
        if self.state is None:
            encoded = engine.encode(self.sources)
            self.retrieval.begin(encoded, self.sources)
            self.state = engine.start_in_turn(encoded)
        return self.state

    def end(self, sentence: DraftedSentence, length_penalty: float) -> None:
        """A sentence is done."""
        found = []
        if sentence.ended:
            score = sentence.score / len(sentence.generated) ** length_penalty
            found = [Hypothesis(tuple(sentence.generated), score, drafted=tuple(sentence.drafted))]
            self.found(sentence.source, found)
        self.results[sentence.source] = found


class DraftedSearch(FollowingBatches[_Batch]):
    """Decodes batches that are searched in the same way, one after the other.

    Sentences end at different passes, however alike they are. So sentences of the next batch take the places of those
    that are done, and a pass may have sentences of several batches.

    growing: see `search.search`; for one batch
    """

    def __init__(self, engine: EngineInTurn, config: DecodingConfig, growing: Growing | None = None) -> None:
        super().__init__()
        self._engine, self._config, self._growing = engine, config, growing
        self._constraints = Constraints(config, engine.special_tokens.end, engine.device)
        self._drafting = Drafting(voters=_VOTERS, most=_MAX_DRAFT, end=engine.special_tokens.end)
        self._most = min(config.max_tokens, engine.max_positions)
        self._running: list[tuple[_Batch, DraftedSentence]] = []
        self._passes: _Passes | None = None

    def takes(self, sources: Sequence[Sequence[int]], steps: object) -> bool:
        """Whether a batch can follow those that were added.

        None can if the first token is forced, because a pass forces it for all sentences at once. A larger batch would
        have fewer places than sentences.
        """
        alike = all(batch.steps.same_as(steps) and len(sources) <= len(batch.sources) for batch in self._open)
        return alike and not self._constraints.forces(0)

    def add(
        self,
        sources: Sequence[Sequence[int]],
        retrieval: BatchRetrieval,
        steps: CompiledSteps,
        found: Found = unheard,
    ) -> None:
        """Add a batch. steps: of the retrieval; found: see `search.search`"""
        self._append(_Batch(sources, retrieval, found, steps))

    def _decode(self, enough: Callable[[], bool]) -> None:
        with torch.inference_mode():
            while not enough():
                if not self._running:
                    if self._open[0].done:
                        break  # before the next one fails
                    self._begin()
                assert self._passes is not None  # noqa: S101 - it has begun
                self._passes.run([each for _, each in self._running])
                with timing.stage("greedy"):
                    self._close()
                    if self._growing is not None:
                        self._growing(partial(_leading, [each for _, each in self._running]))

    def _begin(self) -> None:
        """Begin with all sentences of the next batch."""
        batch = self._queue[0]
        state = batch.encode(self._engine)
        one = _OnePass(
            self._engine,
            self._config,
            batch.retrieval,
            batch.steps,
            self._constraints,
            self._drafting,
            self._most,
        )
        self._passes = _Passes(one, state, one_by_one=self._growing is not None)
        self._running = [self._next(batch) for _ in batch.sources]

    def _next(self, batch: _Batch) -> tuple[_Batch, DraftedSentence]:
        """The next sentence of the first batch in the queue."""
        sentence = DraftedSentence(batch.begun, self._engine.special_tokens.decoder_start)
        if not self._constraints.forces(0):
            draft = batch.steps.first_draft(batch.begun, self._drafting, self._engine.vocabulary_size)
            sentence.draft = draft[: sentence.room(self._most)]
        batch.begun += 1
        if batch.begun == len(batch.sources):
            self._queue.popleft()
        return batch, sentence

    def _close(self) -> None:
        """Sentences that are done leave, and others take their places."""
        assert self._passes is not None  # noqa: S101 - it has begun
        free = [place for place, (_, each) in enumerate(self._running) if each.ended or each.lost]
        for place in free:
            batch, sentence = self._running[place]
            batch.end(sentence, self._config.length_penalty)
        if len(free) == len(self._running) and not (self._queue and self._queue[0].begun):
            self._running = []  # a whole batch begins next
            return
        while free and self._queue and self._is_sound(batch := self._queue[0]):
            place = free.pop(0)
            self._passes.replace(place, batch.encode(self._engine), batch.steps, batch.begun)
            self._running[place] = self._next(batch)
        if free:
            kept = with_gaps_filled([place for place in range(len(self._running)) if place not in free])
            self._passes.keep(kept)
            self._running = [self._running[place] for place in kept]

    def _is_sound(self, batch: _Batch) -> bool:
        """Whether a batch can begin. If not, it fails again, after all sentences before it are done."""
        try:
            batch.encode(self._engine)
        except Exception:
            return False
        return True


class _Passes:
    """Passes over running sentences: several in one compiled call, or one.

    one_by_one: make one pass at a time
    """

    def __init__(self, one: _OnePass, state: StateInTurn, one_by_one: bool) -> None:
        self._one, self._state, self._steps, self._retrieval = one, state, one.steps, one.retrieval
        self._several: CompiledPasses | None = None
        engine, steps = one.engine, one.steps
        if not one_by_one and isinstance(engine, EngineAhead) and engine.ahead is not None and not steps.projected:
            policy = DraftPolicy(_ROW_COST, _SPEED, _SURELY, _SURER, one.most)
            self._several = CompiledPasses(engine.ahead, steps, one.config, one.constraints, one.drafting, policy)

    def run(self, running: Sequence[DraftedSentence]) -> None:
        """Make passes until a sentence is done, or just one."""
        if self._several is not None:
            made, lengths, accepted = self._several.run(self._state, running)
            self._retrieval.statistics.count_drafts(lengths, accepted)
            if made:
                return
        self._one(self._state, running)

    def replace(self, place: int, state: StateInTurn, steps: CompiledSteps, sentence: int) -> None:
        """A sentence of another batch takes the place of one that is done."""
        self._state.replace(place, state, sentence)
        self._steps.replace(place, steps, sentence)

    def keep(self, places: Sequence[int]) -> None:
        """The sentences at these places continue; all others are done."""
        self._state.keep(places)
        self._retrieval.keep(places)


@dataclass(frozen=True, slots=True)
class _OnePass:
    """A pass over all running sentences, part by part; `CompiledPasses` makes several such passes in one call.

    most: up to which position tokens are drafted
    """

    engine: EngineInTurn
    config: DecodingConfig
    retrieval: BatchRetrieval
    steps: CompiledSteps
    constraints: Constraints
    drafting: Drafting
    most: int

    def __call__(self, state: StateInTurn, running: Sequence[DraftedSentence]) -> None:
        engine, config, constraints, steps = self.engine, self.config, self.constraints, self.steps
        counts = [1 + len(each.draft) for each in running]
        inputs = torch.tensor([token for each in running for token in (each.last, *each.draft)])
        representations = engine.step_in_turn(state, inputs, counts)
        log_probabilities = engine.log_probabilities(representations)
        told = constraints.forces(0) and not running[0].generated
        if told:
            self.retrieval.skip()
            offsets = torch.zeros(len(running))
        else:
            offsets = steps.mix_in_turn(representations, log_probabilities, counts)
        with timing.stage("greedy"):
            _constrain(constraints, log_probabilities, offsets, running)
            best, tokens = best_tokens(log_probabilities)
            firsts = [0, *accumulate(counts)]
            gains, chosen, of_rows = (best + offsets).tolist(), tokens.tolist(), offsets.tolist()
            taken = [
                each.take(gains[first:last], chosen[first:last], self.drafting.end, config.max_tokens)
                for each, first, last in zip(running, firsts, firsts[1:], strict=False)
            ]
            _count(self.retrieval, running, taken)
            last_rows = [first + count - 1 for first, count in zip(firsts, taken, strict=False)]
            state.take(taken)
            for each in running:
                each.draft = []
            if not told:
                forced = constraints.forces(config.max_tokens - 1)
                at_end = sum(forced and len(each.generated) == config.max_tokens for each in running)
                steps.accept(last_rows, sum(taken) - at_end)
                self._draft(running, last_rows, [certainty(1 - exp(of_rows[row])) for row in last_rows])

    def _draft(self, running: Sequence[DraftedSentence], last_rows: Sequence[int], sure: Sequence[float]) -> None:
        open_ = sum(not (each.ended or each.lost) for each in running)
        self.drafting.least = least_chance(open_)
        if open_ and max(sure) > self.drafting.least:
            newest, limits = [each.last for each in running], [each.room(self.most) for each in running]
            drafts = self.steps.draft(self.drafting, last_rows, newest, sure, limits)
            for each, drafted in zip(running, drafts, strict=True):
                each.draft = drafted


def _leading(running: Sequence[DraftedSentence]) -> dict[int, list[int]]:
    return {each.source: each.generated for each in running}


def _constrain(
    constraints: Constraints, log_probabilities: Tensor, offsets: Tensor, running: Sequence[DraftedSentence]
) -> None:
    """Force and forbid tokens; log_probabilities (rows, vocabulary), offsets (rows,), sentence after sentence."""
    lengths = [len(each.generated) + turn for each in running for turn in range(len(each.draft) + 1)]
    if not constraints.sequences and len({constraints.at(length) for length in set(lengths)}) == 1:
        constraints.apply(log_probabilities, lengths[0], None)
        if constraints.forces(lengths[0]):
            offsets.zero_()
        return
    row = 0
    for each in running:
        for turn in range(len(each.draft) + 1):
            so_far = [*each.generated, *each.draft[:turn]]
            history = torch.tensor(so_far, dtype=torch.long, device=log_probabilities.device)[None]
            constraints.apply(log_probabilities[row : row + 1], len(so_far), history)
            if constraints.forces(len(so_far)):
                offsets[row] = 0
            row += 1


def _count(retrieval: BatchRetrieval, running: Sequence[DraftedSentence], taken: Sequence[int]) -> None:
    lengths = [len(each.draft) for each in running if each.draft]
    if lengths:
        accepted = sum(count - 1 for each, count in zip(running, taken, strict=True) if each.draft)
        retrieval.statistics.count_drafts(lengths, accepted)
