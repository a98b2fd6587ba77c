"""Greedy search in strides: tokens drafted from the memory, and all of them verified by one pass of the decoder.

Where a memory helps, the translation follows one of its segments for several tokens. So after each token, the entry
that it was taken from is looked up in its segment, and what follows there is the draft of the next tokens. One pass
gives the distributions after all of them; those up to the first that greedy search would not have chosen are accepted,
with the one that it chooses instead. The tokens are those of `greedy.greedy_search`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite

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

MAX_DRAFTED = 4  # sentences of a batch: the rows of more fill the decoder without drafts
_FIRST_REACH, _MAX_REACH = 4, 12  # tokens that a sentence's drafts may have at first, and where all are accepted
_MAX_UNSEEN = 48  # slots that were cut back, before they are given back
_MIN_SUFFIX = 2  # tokens by which a place in a segment is found again


@dataclass(slots=True, eq=False)
class Drafting:
    """Drafts for one sentence.

    ids: (n,) ascending, the entries of its own segments; tokens (n,), theirs, each segment's ending in `end`
    reach: how many tokens the next draft may have, by how the last ones fared
    """

    ids: Array
    tokens: Array
    end: int
    reach: int = _FIRST_REACH

    def draft(self, generated: Sequence[int], nearest: Array, most: int) -> list[int]:
        """What may come after the tokens so far, at most `most`. nearest: ids that the last of them was chosen by"""
        place = self._place(generated, nearest)
        if place is None:
            return []
        coming = self.tokens[place + 1 : place + 1 + min(self.reach, most)]
        ends = np.flatnonzero(coming == self.end)
        return [int(token) for token in (coming[: ends[0]] if len(ends) else coming)]

    def _place(self, generated: Sequence[int], nearest: Array) -> int | None:
        """Where in the segments the last token stands: at the nearest entry that has it, or after the same tokens."""
        last = generated[-1]
        places = np.searchsorted(self.ids, nearest[nearest >= 0])
        for place in places[places < len(self.ids)].tolist():
            if self.tokens[place] == last:
                return int(place)
        found = np.flatnonzero(self.tokens == last)
        for length in range(2, len(generated) + 1):
            longer = found[found >= length - 1]
            longer = longer[self.tokens[longer - length + 1] == generated[-length]]
            if not len(longer):
                return int(found[0]) if length > _MIN_SUFFIX and len(found) else None
            found = longer
        return int(found[0]) if len(generated) >= _MIN_SUFFIX and len(found) else None

    def fared(self, drafted: int, accepted: int) -> None:
        """Draft more where all was accepted, and little more than was accepted elsewhere."""
        if drafted:
            self.reach = min(2 * self.reach, _MAX_REACH) if accepted == drafted else max(accepted + 1, 1)


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

    def take(self, best: Sequence[float], tokens: Sequence[int], max_tokens: int) -> int:
        """Go on with the tokens of a pass up to the first that was not drafted; how many turns of it these took.

        best: what each adds to the score; tokens (turns,), the choice after each of the draft's
        """
        for turn, (gain, token) in enumerate(zip(best, tokens, strict=True)):
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
                    steps.accept(taken)
                for each, count, nearest in zip(running, taken, ids.numpy(), strict=True):
                    if each.ended:
                        score = each.score / len(each.generated) ** config.length_penalty
                        found[each.source] = [Hypothesis(tuple(each.generated), score)]
                    elif not each.lost:
                        each.drafting.fared(len(each.draft), count - 1)
                        most = config.max_tokens - len(each.generated) - 1
                        each.draft = each.drafting.draft(each.generated, nearest[count - 1], most)
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
    values = retrieval.groups[0].store.values.numpy()
    return [Drafting(ids, values[ids], end) for ids in chosen.entries]


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
