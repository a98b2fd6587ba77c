"""Greedy search with drafts: tokens are drafted from the memory, and one pass of the decoder verifies all of them.

If a memory helps, the translation follows one of its segments for several tokens. The draft therefore consists of the
tokens that follow the entries of the last token. One pass of the decoder computes the distributions after all of them.
Drafted tokens are accepted up to the first that greedy search would not have chosen; its own choice replaces that one.
So the tokens are those of `greedy.greedy_search`. Each sentence drafts separately, as far as it pays: as far as the
entries agree and λ says that the memory knows the text.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from knnmt.decoding.hypothesis import Found, Growing, Hypothesis, unheard
from knnmt.engine.batching import with_gaps_filled
from knnmt.engine.compiled_ahead import EngineAhead
from knnmt.engine.state import EngineInTurn, StateInTurn
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.own_entries import Drafting
from knnmt.retrieval.retriever import BatchRetrieval

_MAX_DRAFT = 15  # tokens of a sentence
_VOTERS = 16  # entries, at most, that vote for the next token
_ROW_COST = 0.08  # of each drafted token, relative to a pass with one token of one sentence
_SPEED = 1.4  # the typical speed-up by drafts: what a pass could gain instead
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
    end, start = engine.special_tokens.end, engine.special_tokens.decoder_start
    constraints = Constraints(config, end, engine.device)
    encoded = engine.encode(sources)
    retrieval.begin(encoded, sources)
    state = engine.start_in_turn(encoded)
    drafting = Drafting(voters=_VOTERS, most=_MAX_DRAFT, end=end)
    most = min(config.max_tokens, engine.max_positions)
    running = [DraftedSentence(number, start) for number in range(len(sources))]
    results: list[list[Hypothesis]] = [[] for _ in sources]

    one_pass = _OnePass(engine, config, retrieval, steps, constraints, drafting, most)
    passes = None
    if growing is None and isinstance(engine, EngineAhead) and engine.ahead is not None and not steps.projected:
        policy = DraftPolicy(_ROW_COST, _SPEED, _SURELY, _SURER, most)
        passes = CompiledPasses(engine.ahead, steps, config, constraints, drafting, policy)

    with torch.inference_mode():
        while running:
            made = 0
            if passes is not None:
                made, lengths, accepted = passes.run(state, running)
                retrieval.statistics.count_drafts(lengths, accepted)
            if not made:
                one_pass(state, running)
            with timing.stage("greedy"):
                open_ = [place for place, each in enumerate(running) if not (each.ended or each.lost)]
                for each in running:
                    if each.ended:
                        score = each.score / len(each.generated) ** config.length_penalty
                        results[each.source] = [Hypothesis(tuple(each.generated), score, drafted=tuple(each.drafted))]
                        found(each.source, results[each.source])
                if open_ and len(open_) < len(running):
                    kept = with_gaps_filled(open_)
                    state.keep(kept)
                    retrieval.keep(kept)
                    open_ = kept
                running = [running[place] for place in open_]
                if growing is not None:
                    growing(partial(_leading, running))
    return results


@dataclass(frozen=True, slots=True)
class _OnePass:
    """A pass over all sentences, part by part; `CompiledPasses` does the same in one call. most: positions of drafts"""

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
