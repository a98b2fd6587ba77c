"""How often the last tokens of a hypothesis stand in a store's target sentences, and how many tokens follow them there.

He et al. (2021) call these frequency and fertility. An n-gram is known by a 64-bit hash, so that four sorted columns of
numbers are all that is kept; two n-grams of one hash are as good as never seen.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from knnmt.datastore.arrays import Array
from knnmt.datastore.store import Datastore

Numbers = TypeVar("Numbers", Array, Tensor)
ORDERS = (1, 2, 3, 4)
_BEFORE = -1  # stands before the first token of a sentence, as often as is needed
_FACTOR = 0x5851F42D4C957F2D  # odd, so that no bit of what it multiplies is lost modulo 2^64


class NgramCounts:
    """Counts of the n-grams of a store's target sentences that were not removed, n from 1 to 4."""

    def __init__(self, store: Datastore, device: torch.device | str = "cpu") -> None:
        histories, followers = _places(store)
        self._columns: list[tuple[Tensor, Tensor]] = []
        for order in ORDERS:
            hashes = _hashes(histories[:, -order:])
            known, frequency = np.unique(hashes, return_counts=True)
            distinct = np.unique(_hashes(followers[:, None], hashes), return_index=True)[1]
            fertility = np.unique(hashes[distinct], return_counts=True)[1]
            logs = np.log1p(np.stack([frequency, fertility], axis=1)).astype(np.float32)
            self._columns.append((torch.from_numpy(known).to(device), torch.from_numpy(logs).to(device)))

    def __call__(self, history: Tensor) -> Tensor:
        """history (rows, generated) -> (rows, 8): log(1 + frequency) and log(1 + fertility) of the last 1 to 4."""
        short = max(0, ORDERS[-1] - history.shape[1])
        last = torch.nn.functional.pad(history, (short, 0), value=_BEFORE)
        found = []
        for order, (known, logs) in zip(ORDERS, self._columns, strict=True):
            if not len(known):
                found.append(torch.zeros((len(history), 2), device=history.device))
                continue
            hashes = _hashes(last[:, -order:])
            places = torch.searchsorted(known, hashes).clamp(max=len(known) - 1)
            found.append(logs[places] * (known[places] == hashes)[:, None])
        return torch.cat(found, dim=1)


def _hashes(ngrams: Numbers, hashed: Numbers | None = None) -> Numbers:
    """(n, order) token ids -> (n,), modulo 2^64; the same for arrays and tensors. `hashed`: of what stands before."""
    hashed = ngrams[:, 0] * 0 if hashed is None else hashed
    for place in range(ngrams.shape[1]):
        hashed = (hashed + ngrams[:, place] + 2) * _FACTOR
    return hashed


def _places(store: Datastore) -> tuple[Array, Array]:
    """Every place of the sentences not removed: the 4 tokens before it, (places, 4), and its own token, (places,)."""
    histories, followers = [np.empty((0, ORDERS[-1]), np.int64)], [np.empty(0, np.int64)]
    for segment in store.segments:
        tokens, offsets = segment.arrays["target_tokens"].astype(np.int64), segment.offsets("target_offsets")
        lengths = np.diff(offsets)
        owners = np.repeat(np.arange(len(lengths)), lengths)
        positions = np.arange(len(tokens)) - np.repeat(offsets[:-1], lengths)
        live = ~np.isin(owners, segment.removed)
        before = np.stack([_moved(tokens, positions, back) for back in reversed(ORDERS)], axis=1)
        histories.append(before[live])
        followers.append(tokens[live])
    return np.concatenate(histories), np.concatenate(followers)


def _moved(tokens: Array, positions: Array, back: int) -> Array:
    """The token so many places before each, or what stands before a sentence."""
    moved: Array = np.where(positions >= back, np.roll(tokens, back), _BEFORE)
    return moved
