"""The choice of continuations that have required content: Post and Vilar 2018, Hu et al. 2019.

Each hypothesis tracks how much of the required content it has (`knnmt.decoding.requirements`). The beam is divided by
the number of met requirements, so that hypotheses with more of them are not dropped for likelier ones with fewer. At
each step a hypothesis continues with its likeliest tokens, and with those that start or continue a requirement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from knnmt.decoding.continuations import Chosen, best_continuations
from knnmt.decoding.hypothesis import NEVER
from knnmt.decoding.requirements import ConstrainedSentence, Fulfilment

_HOPELESS = -1e30  # followed only until enough hypotheses have ended


@dataclass(frozen=True, slots=True)
class _Candidate:
    score: float
    parent: int
    token: int
    progress: Fulfilment


class WithRequirements:
    """Continuations that keep to requirements; see `knnmt.decoding.continuations.Choose`.

    Sentences have different numbers of hypotheses; the rest of a sentence's rows is impossible.
    """

    def __init__(self, sentences: Sequence[ConstrainedSentence], end: int, device: torch.device) -> None:
        self._end, self._device = end, device
        config = sentences[0].config
        self._beam, self._forced_last = config.beam, config.forced_last_token
        self._sentences = [_Rows(each, [each.required.begin()]) for each in sentences]
        self._width = max(each.width for each in sentences)
        self._only = [torch.from_numpy(np.flatnonzero(each.required.only)).to(device) for each in sentences]
        self._joins = torch.from_numpy(sentences[0].required.words.joins).to(device)

    def __call__(self, scores: Tensor, log_probabilities: Tensor, length: int) -> Chosen:
        if self._forced_last is not None:
            last = [i for i, each in enumerate(self._sentences) if length == each.max_tokens]
            log_probabilities[last] = NEVER
            log_probabilities[last, :, self._forced_last] = 0.0
        advancing = _restrict(log_probabilities, scores, self._sentences, self._only, self._joins, self._end)
        likeliest = _likeliest(scores, log_probabilities, self._beam + 1)
        ended: list[tuple[int, int, int, float]] = []
        going: list[list[_Candidate]] = []
        leaders = []
        for i, each in enumerate(self._sentences):
            candidates = each.candidates([*likeliest[i], *advancing[i]])
            ends = [candidate for candidate in candidates if candidate.token == self._end][: self._beam]
            others = each.shared([candidate for candidate in candidates if candidate.token != self._end], each.width)
            ended += [(i, candidate.parent, candidate.token, candidate.score) for candidate in ends]
            going.append(others)
            leaders.append(each.leader(others, length))
            each.follow(others, self._width)
        return Chosen(self._of_ended(ended), self._filled(going), leaders)

    def keep(self, places: Sequence[int]) -> None:
        """The new sentence i is the old places[i]."""
        self._sentences = [self._sentences[place] for place in places]
        self._only = [self._only[place] for place in places]

    def _of_ended(self, ended: Sequence[tuple[int, int, int, float]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        numbers = torch.tensor([each[:3] for each in ended], dtype=torch.long, device=self._device).view(-1, 3)
        scores = torch.tensor([each[3] for each in ended], dtype=torch.float32, device=self._device)
        return numbers[:, 0], numbers[:, 1], numbers[:, 2], scores

    def _filled(self, going: Sequence[Sequence[_Candidate]]) -> tuple[Tensor, Tensor, Tensor]:
        """Parents, tokens and scores, (sentences, width) each."""
        gap = (0, self._end, NEVER)
        rows = [
            [*((each.parent, each.token, each.score) for each in chosen), *[gap] * (self._width - len(chosen))]
            for chosen in going
        ]
        parents, tokens, scores = ([[each[part] for each in row] for row in rows] for part in range(3))
        return (
            torch.tensor(parents, device=self._device),
            torch.tensor(tokens, device=self._device),
            torch.tensor(scores, dtype=torch.float32, device=self._device),
        )


class _Rows:
    """The hypotheses of one sentence, and the progress of each."""

    def __init__(self, sentence: ConstrainedSentence, progress: list[Fulfilment]) -> None:
        self.required, self.progress = sentence.required, progress
        self.width, self.max_tokens, self._late = sentence.width, sentence.config.max_tokens, sentence.late

    def leader(self, going: Sequence[_Candidate], length: int) -> float:
        """The best score of those that may still become better than finished ones.

        A hypothesis that lacks something is likelier than all complete ones, and would be followed for ever: it counts
        only up to the usual length of a translation.
        """
        if not going or length >= self.max_tokens:
            return NEVER
        hopeful = (each.score for each in going if length <= self._late or self.required.is_met(each.progress))
        return max(hopeful, default=_HOPELESS)

    def candidates(self, continuations: Iterable[tuple[float, int, int]]) -> list[_Candidate]:
        """The allowed ones of some continuations (score, row, token), best first, without duplicates."""
        found: dict[tuple[int, int], _Candidate] = {}
        for score, parent, token in continuations:
            if score == NEVER or score != score or (parent, token) in found:
                continue
            after = self.required.after(self.progress[parent], token)
            if after is not None:
                found[parent, token] = _Candidate(score, parent, token, after)
        return sorted(found.values(), key=lambda candidate: -candidate.score)

    def shared(self, candidates: Sequence[_Candidate], width: int) -> list[_Candidate]:
        """The best of each share of the beam in turn, until the beam is full.

        Hypotheses that have met as much are in three shares: between requirements, at the first token of one, and
        further inside. There the furthest one comes first: a requirement costs more with every token, and would
        otherwise be given up for a new start. The shares with the best hypotheses and those with most met come first in
        turn.
        """
        shares: dict[tuple[int, int], list[tuple[int, _Candidate]]] = {}
        for candidate in candidates:  # best first
            met, depth = self.required.share(candidate.progress)
            shares.setdefault((met, min(depth, 2)), []).append((depth, candidate))
        ordered: dict[tuple[int, int], list[_Candidate]] = {}
        for share, found in shares.items():
            furthest = max(found, key=lambda each: each[0])
            ordered[share] = [furthest[1], *(each for _, each in found if each is not furthest[1])]
        by_met = sorted(ordered, reverse=True)
        by_score = sorted(ordered, key=lambda share: -ordered[share][0].score)
        order = dict.fromkeys(share for both in zip(by_score, by_met, strict=True) for share in both)
        ranks = zip_longest(*(ordered[share] for share in order))
        chosen = [candidate for rank in ranks for candidate in rank if candidate is not None][:width]
        return sorted(chosen, key=lambda candidate: -candidate.score)

    def follow(self, chosen: Sequence[_Candidate], width: int) -> None:
        """Continue with the chosen ones; rows without one are as at the beginning, and impossible."""
        self.progress = [candidate.progress for candidate in chosen]
        self.progress += [self.required.begin()] * (width - len(chosen))


def _restrict(
    log_probabilities: Tensor,
    scores: Tensor,
    sentences: Sequence[_Rows],
    only: Sequence[Tensor],
    joins: Tensor,
    end: int,
) -> list[list[tuple[float, int, int]]]:
    """Make forbidden tokens impossible, in place; return what starts or continues a requirement: score, row, token.

    log_probabilities (sentences, width, vocabulary); scores (sentences, width); only: tokens of each sentence that
    may occur nowhere else; joins (vocabulary,)
    """
    places = [
        (i, row, token)
        for i, each in enumerate(sentences)
        for row, progress in enumerate(each.progress)
        for token in each.required.advancing(progress)
    ]
    at = torch.tensor(places, dtype=torch.long, device=scores.device).view(-1, 3).unbind(1)
    values = log_probabilities[at]
    for rows, tokens in zip(log_probabilities, only, strict=True):
        rows.index_fill_(-1, tokens, NEVER)
    every = [(i, row, each.required, p) for i, each in enumerate(sentences) for row, p in enumerate(each.progress)]
    for mask, where in (
        (joins, [(i, row) for i, row, required, p in every if required.must_not_join(p)]),
        (None, [(i, row) for i, row, required, p in every if required.only_advances(p)]),
    ):
        if where:
            here = torch.tensor(where, device=scores.device).unbind(1)
            log_probabilities[here] = NEVER if mask is None else log_probabilities[here].masked_fill(mask, NEVER)
    unmet = [(i, row) for i, row, required, p in every if not required.is_met(p)]
    if unmet:
        here = torch.tensor(unmet, device=scores.device).unbind(1)
        log_probabilities[here[0], here[1], end] = NEVER
    log_probabilities[at] = values
    found: list[list[tuple[float, int, int]]] = [[] for _ in sentences]
    for (i, row, token), score in zip(places, (values + scores[at[0], at[1]]).tolist(), strict=True):
        found[i].append((score, row, token))
    return found


def _likeliest(scores: Tensor, log_probabilities: Tensor, count: int) -> list[list[tuple[float, int, int]]]:
    """The likeliest continuations of every row of each sentence: score, row, token.

    Those of a sentence as a whole would all come from rows that have met little.
    """
    sentences, width, vocabulary = log_probabilities.shape
    rows = log_probabilities.reshape(-1, 1, vocabulary)
    best, _, tokens = best_continuations(scores.reshape(-1, 1), rows, min(count, vocabulary))
    found = zip(best.tolist(), tokens.tolist(), strict=True)
    of_rows = [[*zip(values, here, strict=True)] for values, here in found]
    return [
        [(score, row, token) for row in range(width) for score, token in of_rows[sentence * width + row]]
        for sentence in range(sentences)
    ]
