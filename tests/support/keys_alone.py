"""Entries that are nothing but their keys, for the search in compiled code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from knnmt.index.key_codes import KeyCodes


class KeysAlone:
    """Entries with these keys, (n, dim) float16, whose codes may be fitted to other keys or be held in few places."""

    def __init__(self, keys: Tensor, sample: Tensor | None = None, most_held: int = 1 << 20) -> None:
        self.keys, self.dim = keys, keys.shape[1]
        self._sample, self._most_held = keys if sample is None else sample, most_held
        self._codes: KeyCodes | None = None

    def addresses(self, ids: Tensor) -> Tensor:
        return ids * 2 * self.dim + self.keys.data_ptr()

    def values_of(self, ids: Tensor) -> Tensor:
        return torch.zeros_like(ids, dtype=torch.int32)

    def counts_of(self, _ids: Tensor, _merged: bool) -> None:
        return None

    def require_sound(self, measured: Tensor) -> None:
        assert bool(measured.isfinite().all())

    def codes(self, native: Any) -> KeyCodes:
        if self._codes is None:
            self._codes = KeyCodes(native, self._sample.numpy(), len(self.keys), self._most_held)
        return self._codes
