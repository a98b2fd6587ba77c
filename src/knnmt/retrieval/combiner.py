"""Combiners: they compute the weights of a row's neighbours, and λ."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from knnmt.config import Fading, RetrievalConfig
from knnmt.retrieval.distribution import log_weights
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.step import SentenceSoFar, Step

SAME_WEIGHT = 0.99  # the least λ for a state that the memory holds
LOG_ADVANTAGE = 9.0  # the logarithm of the factor by which an entry of the same state outweighs others


@dataclass(frozen=True, slots=True)
class DistanceCombiner:
    """Equation 2 for the weights, with counts if there are any; λ is fixed, or fades with distance.

    A decoder state is a function of the source and the target so far. An entry at almost no distance therefore comes
    from the very same text, and tells how the memory continues there. So if λ fades, such entries outweigh others
    (`LOG_ADVANTAGE`), and λ is at least `SAME_WEIGHT`, whatever the settings and the rest of the sentence say.

    same_distance: entries up to about this distance come from the same text (`OpenStore.same_distance`)
    """

    config: RetrievalConfig
    same_distance: float

    def signature(self) -> str:
        """Its own settings, whatever those of the call are."""
        return f"distance/{hashlib.sha256(repr(self.config).encode()).hexdigest()[:12]}"

    def __call__(self, step: Step, neighbours: Neighbours) -> tuple[Tensor, Tensor]:
        return self.weigh(neighbours, step.counts(neighbours), step.sentence)

    def weigh(self, neighbours: Neighbours, counts: Tensor | None, sentence: SentenceSoFar) -> tuple[Tensor, Tensor]:
        """The same, from only the values that it uses.

        counts (rows, k): how many entries each neighbour stands for after merging, or None if nothing was merged
        """
        config, distances_sq = self.config, neighbours.distances_sq
        bonus = None if counts is None else counts.log()
        if config.fades:
            same = sameness(distances_sq, self.same_distance)
            bonus = LOG_ADVANTAGE * same if bonus is None else bonus + LOG_ADVANTAGE * same
        weights = log_weights(distances_sq, config.squared_temperature, bonus)
        nearest_sq = distances_sq[:, 0]
        log_lambda = torch.full_like(nearest_sq, config.interpolation_weight).log()
        if config.fading is not None and config.fades:
            faded = log_lambda + log_fading(config.fading, nearest_sq.sqrt(), sentence)
            log_lambda = torch.logaddexp(faded, torch.log1p(-faded.exp()) + (SAME_WEIGHT * same[:, 0]).log())
        return weights, log_lambda.masked_fill(nearest_sq.isinf(), float("-inf"))


def sameness(distances_sq: Tensor, same_distance: float) -> Tensor:
    """A number from 1, for entries of the very same state, to 0; it is one half at 0.91 times `same_distance`."""
    return (-(distances_sq / same_distance**2).square()).exp()


def log_fading(fading: Fading, distance: Tensor, sentence: SentenceSoFar) -> Tensor:
    """The logarithm of the factor that λ is multiplied by, (rows,)."""
    of_step = functional.logsigmoid((fading.scale - distance) / fading.width)
    return of_step + log_sentence_fading(fading, distance, sentence)


def log_sentence_fading(fading: Fading, distance: Tensor, sentence: SentenceSoFar) -> Tensor:
    """The part of it that depends on the sentence: how far it is as a whole, and how little is known at its start."""
    of_sentence = functional.logsigmoid((fading.sentence_scale - sentence.distance) / fading.sentence_width)
    doubt = (distance / fading.scale).clamp(max=1) / (sentence.steps + 1)
    return of_sentence + torch.log1p(-doubt)


class SentenceDistances:
    """The mean distance to the nearest entry over the steps of each sentence, for all its beams together.

    Steps are added in place, so that a step captured in a CUDA graph continues to add.

    sums, steps: (sentences,), the sums for those means, and how many steps found something
    """

    def __init__(self, sentences: int, device: torch.device) -> None:
        with torch.inference_mode(False):  # otherwise a step outside that mode could not add to them
            self.sums, self.steps = (torch.zeros(sentences, device=device) for _ in range(2))

    def restart(self) -> None:
        """Forget all steps, in place: the same number of other sentences begin, with the step that was captured."""
        self.sums.zero_()
        self.steps.zero_()

    def add(self, nearest_sq: Tensor) -> SentenceSoFar:
        """Add a step, (sentences * width,) squared distances; rows that found nothing are left out."""
        distances = nearest_sq.view(len(self.sums), -1).sqrt()
        found = ~distances.isinf()
        rows = found.sum(1)
        self.sums += distances.masked_fill(~found, 0).sum(1) / rows.clamp(min=1)
        self.steps += rows > 0
        return self._of_rows(self.steps.clamp(min=1), distances.shape[1])

    def so_far(self, rows: int) -> SentenceSoFar:
        """The means over the steps added so far; rows: the number of rows of all sentences together."""
        return self._of_rows(self.steps, rows // max(1, len(self.sums)))

    def _of_rows(self, steps: Tensor, width: int) -> SentenceSoFar:
        means = self.sums / self.steps.clamp(min=1)
        return SentenceSoFar(*(each[:, None].expand(-1, width).flatten() for each in (means, steps)))

    def take(self, earlier: SentenceDistances, rows: Tensor) -> None:
        """Sentence i takes over the steps of sentence rows[i] of `earlier`."""
        self.sums.copy_(earlier.sums[rows])
        self.steps.copy_(earlier.steps[rows])

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i takes over the steps of sentence sentences[i]."""
        with torch.inference_mode(False):
            rows = torch.tensor(sentences, dtype=torch.long, device=self.sums.device)
            self.sums, self.steps = self.sums[rows], self.steps[rows]
