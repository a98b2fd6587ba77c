"""Token ids on their way to a device, without waiting for what that is at.

A plain copy from the host waits until a GPU has done all that it was asked for. From memory that cannot be paged out it
goes on beside that, so that the host can ask for the next batch meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def sent(numbers: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device. The host must not change it any more."""
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)


def places_in_rows(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each element of rows one after the other, which row it is in and its place there, int64 each."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    numbers = np.repeat(np.arange(len(rows)), lengths)
    return numbers, np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def padded_rows(rows: Sequence[Sequence[int]], padding: int) -> Tensor:
    """(rows, longest) int64, on the host: rows of different lengths, each filled up."""
    numbers, places = places_in_rows(rows)
    filled = np.full((len(rows), max(map(len, rows), default=0)), padding, np.int64)
    filled[numbers, places] = np.fromiter(chain.from_iterable(rows), np.int64, len(numbers))
    return torch.from_numpy(filled)
