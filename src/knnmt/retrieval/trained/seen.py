"""The inputs of trained combiners: the neighbours of some rows, and the model's own probabilities for them.

They are the same in training, where rows are kept, and in a step, where everything is computed on demand.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.step import SentenceSoFar, Step

LEAST = -30.0  # the smallest log-probability that a network is shown
BEST = 8  # how many of the model's highest probabilities are inputs


class Seen(Protocol):
    """Some rows with their k nearest entries, nearest first.

    distances_sq: (rows, k), infinite if there is no neighbour
    tokens: (rows, k), undefined if there is no neighbour
    distinct: (rows, k), how many different tokens the neighbours up to each have (`distinct_counts`)
    log_counts: (rows, k), of how many entries each neighbour stands for, or None if each stands for itself
    queries: (rows, d), the states; keys: (rows, k, d), the neighbours' keys, zeros if there is no neighbour
    said_there: (rows, k), the model's log-probability of the neighbour's token at the entry's own state
    said_here: (rows, k), the same at the row's state
    best: (rows, 8), the highest log-probabilities of the model at the row's state, descending
    sentence: distances of the sentence so far, including this row's
    """

    @property
    def distances_sq(self) -> Tensor: ...
    @property
    def tokens(self) -> Tensor: ...
    @property
    def distinct(self) -> Tensor: ...
    @property
    def log_counts(self) -> Tensor | None: ...
    @property
    def queries(self) -> Tensor: ...
    @property
    def keys(self) -> Tensor: ...
    @property
    def said_there(self) -> Tensor: ...
    @property
    def said_here(self) -> Tensor: ...
    @property
    def best(self) -> Tensor: ...
    @property
    def sentence(self) -> SentenceSoFar: ...


class SeenInStep:
    """The rows of a step. If a store has fewer than k entries, the other neighbours are missing."""

    def __init__(self, step: Step, neighbours: Neighbours, k: int) -> None:
        self._step = step
        found = neighbours.ids.shape[1]
        if found < k:
            wider = Neighbours.none(len(neighbours), k, neighbours.ids.device)
            wider.put(torch.arange(len(neighbours), device=neighbours.ids.device), neighbours)
            neighbours = wider
        self._neighbours = neighbours
        self.distances_sq, self.tokens = neighbours.distances_sq, neighbours.tokens

    @cached_property
    def distinct(self) -> Tensor:
        return distinct_counts(self.tokens, self.distances_sq.isinf())

    @cached_property
    def log_counts(self) -> Tensor | None:
        counts = self._step.counts(self._neighbours)
        return None if counts is None else counts.log()

    @property
    def queries(self) -> Tensor:
        return self._step.queries

    @cached_property
    def keys(self) -> Tensor:
        return self._step.keys(self._neighbours)

    @cached_property
    def said_there(self) -> Tensor:
        return self._step.own_log_probabilities(self._neighbours).clamp(min=LEAST)

    @cached_property
    def said_here(self) -> Tensor:
        return self._step.log_probabilities.gather(1, self.tokens).clamp(min=LEAST)

    @property
    def sentence(self) -> SentenceSoFar:
        return self._step.sentence

    @cached_property
    def best(self) -> Tensor:
        return best_of(self._step.log_probabilities)


def best_of(log_probabilities: Tensor) -> Tensor:
    """(rows, vocabulary) -> (rows, 8), the highest values, descending."""
    highest = log_probabilities.topk(min(BEST, log_probabilities.shape[1]), dim=1).values
    return torch.nn.functional.pad(highest, (0, BEST - highest.shape[1]), value=LEAST).clamp(min=LEAST)


def distinct_counts(tokens: Tensor, missing: Tensor) -> Tensor:
    """(rows, k): how many different tokens the first 1, 2, … k neighbours have. missing: (rows, k) bool"""
    earlier = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool, device=tokens.device).tril(-1)
    same = (tokens[:, :, None] == tokens[:, None, :]) & ~missing[:, None, :]
    new = ~(same & earlier).any(2) & ~missing
    return new.cumsum(1).float()
