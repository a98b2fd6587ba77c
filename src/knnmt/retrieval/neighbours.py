"""The results of a search for the rows of a step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LogCounts = tuple[Tensor | None, Tensor | None]
"""Logarithms of how many entries each neighbour stands for, (rows, k): first with the entries that pruning merged with
it, then without; None if each stands for itself."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest entries of each row, nearest first: tensors (rows, k) on the queries' device.

    distances_sq: float32, infinite if there is no neighbour
    tokens: int64, the entries' target tokens, 0 if there is no neighbour
    ids: int64 entry ids, -1 if there is no neighbour
    """

    distances_sq: Tensor
    tokens: Tensor
    ids: Tensor

    @classmethod
    def none(cls, rows: int, k: int, device: torch.device) -> Neighbours:
        """Rows without neighbours."""
        return cls(
            torch.full((rows, k), float("inf"), device=device),
            torch.zeros((rows, k), dtype=torch.long, device=device),
            torch.full((rows, k), -1, dtype=torch.long, device=device),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Tensor) -> Neighbours:
        return Neighbours(self.distances_sq[rows], self.tokens[rows], self.ids[rows])

    def put(self, rows: Tensor, found: Neighbours) -> None:
        """Write `found`, which may have a smaller k, into these rows; the remaining neighbours count as missing."""
        k = found.ids.shape[1]
        self.distances_sq[rows, :k] = found.distances_sq
        self.tokens[rows, :k] = found.tokens
        self.ids[rows, :k] = found.ids
