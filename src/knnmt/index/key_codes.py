"""Keys in four bits a number, for the search in compiled code (`native/codes.h`).

Keys are turned so that most of their variance lies in the first numbers, and these alone become codes. A bound of what
a code may be off by says which keys have to be measured, so that the search stays exact whatever the directions are.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from knnmt.datastore.arrays import Array
from knnmt.native.structures import address, made

SAMPLED = 2048  # keys from which the directions are fitted
VARIANCE = 0.93  # the least share of the keys' variance in the kept directions: more takes as long, and more memory
BLOCK = 16  # the number of directions is a multiple of this
STEP = 0.3352  # of 16 equal steps, in standard deviations: the smallest error for normally distributed numbers
MOST_HELD = 1 << 21  # keys whose codes are held: 250 MB for keys of 320 numbers


class KeyCodes:
    """The codes of keys that were needed so far, made at their first use. Threads may share it.

    Codes are held by entry id modulo the capacity; in a store with more entries, later keys replace earlier ones.

    capacity: keys that can be held
    """

    def __init__(self, native: Any, sample: Array, entries: int, most_held: int = MOST_HELD) -> None:
        """sample: (n, dim) keys of the store, any number; entries: how many the store has"""
        self.capacity = min(most_held, entries + entries // 4 + 1)
        finite = np.asarray(sample, np.float32)
        finite = finite[np.isfinite(finite).all(axis=1)]
        self._directions = mean, columns, steps = _directions(finite)
        kept, panel = len(steps), native.knnmt_panel()
        panels = np.ascontiguousarray(columns.reshape(len(mean), kept // panel, panel).transpose(1, 0, 2))
        # Zeros take no memory until they are written.
        ids, codes = np.zeros(self.capacity, np.int64), np.zeros((self.capacity, kept // 2), np.uint8)
        numbers = np.zeros((self.capacity, 4), np.float32)
        self._arrays = (panels, ids, codes, numbers)
        self._compiled = made("KeyCodes", capacity=self.capacity)
        directions = self._compiled["directions"]
        directions["dimensions"], directions["kept"] = len(mean), kept
        for name, array in (("panels", panels), ("mean", mean), ("steps", steps)):
            directions[name] = address(array)
        for name, array in (("ids", ids), ("codes", codes), ("numbers", numbers)):
            self._compiled[name] = address(array)
        self.kept = kept
        self._native, self._lock = native, Lock()

    def prepare(self, sentences: npt.NDArray[np.void]) -> bool:
        """Put together the codes of the entries of structures `SentenceEntries`, whose panels have their memory.

        Returns whether all their keys are finite numbers; codes of others say nothing.
        """
        sentences["panels"]["directions"] = address(self._compiled)  # which come first
        threads = torch.get_num_threads()
        with self._lock:
            given = (address(self._compiled), address(sentences), len(sentences), threads)
            return bool(self._native.knnmt_sentence_prepare(*given))


def sampled_ids(entries: int) -> Array:
    """The ids of entries whose keys stand for all."""
    return np.unique(np.linspace(0, max(entries - 1, 0), min(SAMPLED, entries), dtype=np.int64))


def _directions(sample: npt.NDArray[np.float32]) -> tuple[Array, Array, Array]:
    """The mean of keys, orthonormal columns (dim, kept) in the order of their variance, and the step of each."""
    dim, count = sample.shape[1], max(1, len(sample))
    most = -(-dim // BLOCK) * BLOCK
    mean = (sample.sum(axis=0, dtype=np.float64) / count).astype(np.float32)
    centred = (sample - mean).astype(np.float64)
    variances, axes = np.linalg.eigh(centred.T @ centred / count)
    variances, axes = variances[::-1].clip(min=0), axes[:, ::-1]
    shares = np.cumsum(variances) / (variances.sum() or 1)
    kept = min(most, -(-(1 + int(np.searchsorted(shares, VARIANCE))) // BLOCK) * BLOCK)
    columns, steps = np.zeros((dim, most), np.float32), np.zeros(most, np.float32)
    columns[:, :dim], steps[:dim] = axes, STEP * np.sqrt(variances)
    return mean, columns[:, :kept], np.ascontiguousarray(steps[:kept])
