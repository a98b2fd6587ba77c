"""A gate that searches by chance: the baseline of adaptive retrieval."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from knnmt import Step, TrainedGate

_ORDERED_TOKENS = 2048  # tokens of the vocabulary whose order tells rows apart; all would take ten times as long


@dataclass(frozen=True, slots=True, eq=False)
class RandomGate:
    """Searches a random share of all rows. A useful gate must be better than this baseline.

    The choice is a hash of the tokens so far and of the most likely next tokens by the model. So it depends only on
    the row itself, and is the same in every run.

    rate: the share of rows that is searched
    predicted: a gate that gives λ for the searched rows; None leaves λ to the combiner
    """

    rate: float
    seed: int = 0
    predicted: TrainedGate | None = None

    def signature(self) -> str:
        """The rate, the choice of rows, and the gate that gives λ."""
        predicted = f"+{self.predicted.signature()}" if self.predicted else ""
        return f"chance/{self.rate:.6g}/{self.seed}{predicted}"

    def __call__(self, step: Step) -> tuple[Tensor, Tensor | None]:
        log_probabilities, history = step.log_probabilities, step.history
        likeliest = log_probabilities[:, :_ORDERED_TOKENS].topk(4, dim=1).indices
        searched = _chance(torch.cat([likeliest, history], dim=1), self.seed) < self.rate
        if self.predicted is None:
            return searched, None
        return searched, functional.logsigmoid(self.predicted.logits(step.states, log_probabilities))


def _chance(tokens: Tensor, seed: int) -> Tensor:
    """(rows, n) -> (rows,), from 0 to below 1: evenly spread over different rows, the same for equal rows."""
    places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    mixed = _stirred(tokens + places * 0x9E3779B97F4A7 + seed % 2**20 * 0x632BE59BD9B).sum(1)
    return (_stirred(mixed) & ((1 << 24) - 1)).float() / (1 << 24)


def _stirred(numbers: Tensor) -> Tensor:
    """Mixes each number: every bit of the result depends on all its bits (after Steele et al., SplitMix, 2014)."""
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
        numbers = (numbers ^ (numbers >> shift)) * factor
    return numbers
