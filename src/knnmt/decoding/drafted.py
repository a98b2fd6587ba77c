"""Greedy search in strides: tokens drafted from the memory, and all of them verified by one pass of the decoder.

Where a memory helps, the translation follows one of its segments for several tokens. The tokens that follow the
entry of the last token are therefore the draft of the next ones. One pass of the decoder computes the distributions
after all of them. Drafted tokens are accepted up to the first that greedy search would not have chosen; its own choice
takes that one's place. The tokens are those of `greedy.greedy_search`. The length of a draft depends on λ, which says
how much the memory knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, isfinite

import numpy as np
import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.datastore.arrays import Array
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.base import Engine, State
from knnmt.engine.batching import with_gaps_filled
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.retriever import BatchRetrieval

MAX_DRAFTED = 2  # sentences of a batch: the rows of more keep a CPU busy without drafts
_MAX_ROWS = 8  # of a pass, all sentences together: few more cost as much time as twice as many
_TURN_COST, _ROW_COST = 0.08, 0.05  # of another turn, and of each row of it, in terms of a pass of one turn
_MAX_UNSEEN = 48  # slots that were cut back, before they are given back


@dataclass(frozen=True, slots=True, eq=False)
class Drafting:
    """Drafts for one sentence.

    ids: (n,) ascending, the entries of its own segments; tokens (n,), theirs, each segment's ending in `end`
    """

    ids: Array
    tokens: Array
    end: int

    def draft(self, last: int, nearest: Array, length: int) -> list[int]:
        """What follows the last token in its segment, at most so many tokens: at the nearest entry that has it.

        nearest: ids of the entries that the token was chosen by, nearest first
        """
        if not length:
            return []
        places = np.searchsorted(self.ids, nearest[nearest >= 0])
        having_it = places[self.tokens[places] == last]
        if not len(having_it):
            return []
        coming: list[int] = self.tokens[having_it[0] + 1 : having_it[0] + 1 + length].tolist()
        return coming[: coming.index(self.end)] if self.end in coming else coming


def draft_length(chance: float, sentences: int) -> int:
    """How many tokens make a pass of so many sentences worth most, if each is accepted by this chance."""
    best, speed, tokens = 0, 1.0, 1.0
    for length in range(1, _MAX_ROWS // sentences):
        tokens += chance**length
        worth = tokens / (1 + length * (_TURN_COST + _ROW_COST * sentences))
        if worth <= speed:
            break
        best, speed = length, worth
    return best


@dataclass(slots=True, eq=False)
class _Sentence:
    """A sentence that is being translated. source: its number among the sources; last: the decoder's next input"""

    source: int
    drafting: Drafting
    last: int
    generated: list[int] = field(default_factory=list)
    draft: list[int] = field(default_factory=list)
    score: float = 0.0
    lost: bool = False
    ended: bool = False

    def take(self, gains: Sequence[float], tokens: Sequence[int], max_tokens: int) -> int:
        """Go on with the tokens of a pass up to the first that was not drafted; how many turns of it these took.

        gains: what each adds to the score; tokens (turns,), the choice after each of the draft's
        """
        for turn, (gain, token) in enumerate(zip(gains, tokens, strict=True)):
            if not isfinite(gain):
                self.lost = True
                return turn + 1
            self.generated.append(token)
            self.score += gain
            self.last = token
            self.ended = token == self.drafting.end or len(self.generated) == max_tokens
            if self.ended or turn == len(self.draft) or self.draft[turn] != token:
                return turn + 1
        raise AssertionError("a pass has a turn more than the draft has tokens")


def drafted_search(
    engine: Engine[State],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval,
    steps: CompiledSteps,
) -> list[list[Hypothesis]]:
    """As `greedy.greedy_search`, with drafts. steps: of the retrieval, whose sentences have segments of their own"""
    end, start = engine.special_tokens.end, engine.special_tokens.decoder_start
    constraints = Constraints(config, end, engine.device)
    encoded = engine.encode(sources)
    retrieval.begin(encoded, sources)
    state = engine.start(encoded)
    running = [_Sentence(number, each, start) for number, each in enumerate(_draftings(retrieval, sources, end))]
    found: list[list[Hypothesis]] = [[] for _ in sources]
    unseen = 0  # slots of the state, at most, that were cut back

    with torch.inference_mode():
        while running:
            longest = max(len(each.generated) for each in running)
            turns = min(1 + max(len(each.draft) for each in running), engine.max_positions - longest)
            for each in running:
                del each.draft[turns - 1 :]
            inputs = [[each.last, *each.draft, *[end] * (turns - 1 - len(each.draft))] for each in running]
            representations = engine.step(state, torch.tensor(inputs)[:, None])[:, 0]
            log_probabilities = engine.log_probabilities(representations)
            told = constraints.forces(0) and longest == 0
            if told:
                retrieval.skip()
                offsets, ids = torch.zeros((len(running), 1)), torch.full((len(running), 1, 1), -1)
            else:
                offsets, ids = steps.mix_in_turn(representations, log_probabilities)
            with timing.stage("greedy"):
                _constrain(constraints, log_probabilities, offsets, running)
                best, tokens = log_probabilities.max(-1)
                chosen = zip(running, (best + offsets).tolist(), tokens.tolist(), strict=True)
                taken = [each.take(gains, tokens, config.max_tokens) for each, gains, tokens in chosen]
                _count(retrieval, running, taken)
                if not told:
                    last = constraints.forces(config.max_tokens - 1)
                    steps.accept(taken, sum(last and len(each.generated) == config.max_tokens for each in running))
                length = _length(running, [of[count - 1] for of, count in zip(offsets.tolist(), taken, strict=True)])
                for each, count, nearest in zip(running, taken, ids.numpy(), strict=True):
                    if each.ended:
                        score = each.score / len(each.generated) ** config.length_penalty
                        found[each.source] = [Hypothesis(tuple(each.generated), score)]
                    elif not each.lost:
                        most = min(length, config.max_tokens - len(each.generated) - 1)
                        each.draft = each.drafting.draft(each.last, nearest[count - 1], most)
                if min(taken) < turns:
                    state.cut_back(torch.tensor([[len(each.generated)] for each in running]))
                    unseen += turns - min(taken)
                    if unseen > _MAX_UNSEEN:
                        state.compact()
                        unseen = 0
                open_ = [place for place, each in enumerate(running) if not (each.ended or each.lost)]
                if open_ and len(open_) < len(running):
                    kept = with_gaps_filled(open_)
                    state.keep(kept)
                    retrieval.keep(kept)
                    open_ = kept
                running = [running[place] for place in open_]
    return found


def _draftings(retrieval: BatchRetrieval, sources: Sequence[Sequence[int]], end: int) -> list[Drafting]:
    (chosen,) = retrieval.choose(sources)
    assert chosen is not None  # noqa: S101 - they have segments of their own
    entries = retrieval.groups[0].store.index.entries
    return [Drafting(ids, entries.values_of(torch.from_numpy(ids)).numpy(), end) for ids in chosen.entries]


def _length(running: Sequence[_Sentence], offsets: Sequence[float]) -> int:
    """How many tokens to draft for each of those that go on. offsets: log(1 - λ) of each sentence's last token"""
    # A token that the memory gave is followed by the memory's next one about as often as λ says.
    chances = [1 - exp(offset) for each, offset in zip(running, offsets, strict=True) if not (each.ended or each.lost)]
    return draft_length(sum(chances) / len(chances), len(chances)) if chances else 0


def _constrain(
    constraints: Constraints, log_probabilities: Tensor, offsets: Tensor, running: Sequence[_Sentence]
) -> None:
    """Force and forbid tokens; log_probabilities (sentences, turns, vocabulary), offsets (sentences, turns)."""
    lengths = {len(each.generated) + turn for each in running for turn in range(len(each.draft) + 1)}
    if not constraints.sequences and len({constraints.at(length) for length in lengths}) == 1:
        constraints.apply(log_probabilities, min(lengths), None)
        if constraints.forces(min(lengths)):
            offsets.zero_()
        return
    for number, each in enumerate(running):
        for turn in range(len(each.draft) + 1):
            so_far = [*each.generated, *each.draft[:turn]]
            history = torch.tensor(so_far, dtype=torch.long, device=log_probabilities.device)[None, None]
            constraints.apply(log_probabilities[number : number + 1, turn : turn + 1], len(so_far), history)
            if constraints.forces(len(so_far)):
                offsets[number, turn] = 0


def _count(retrieval: BatchRetrieval, running: Sequence[_Sentence], taken: Sequence[int]) -> None:
    drafted = [(len(each.draft), count - 1) for each, count in zip(running, taken, strict=True) if each.draft]
    if drafted:
        retrieval.statistics.count_drafts(len(drafted), *(sum(part) for part in zip(*drafted, strict=True)))
