"""Token ids on their way to a device, without waiting for what that is at.

A plain copy from the host waits until a GPU has done all that it was asked for. From memory that cannot be paged out it
goes on beside that, so that the host can ask for the next batch meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor


def sent(numbers: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device. The host must not change it any more."""
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)


def padded_rows(rows: Sequence[Sequence[int]], padding: int) -> Tensor:
    """(rows, longest) int64, on the host: rows of different lengths, each filled up."""
    lengths = np.array([len(row) for row in rows])
    filled = np.full((len(rows), int(lengths.max(initial=0))), padding, np.int64)
    filled[np.arange(filled.shape[1]) < lengths[:, None]] = np.fromiter(
        chain.from_iterable(rows), np.int64, int(lengths.sum())
    )
    return torch.from_numpy(filled)
