"""Copies numbers to a device without waiting for its running work.

A plain copy from the host waits until a GPU has finished everything. A copy from pinned memory runs beside it, so the
host can prepare the next batch meanwhile.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sent(numbers: Tensor, device: torch.device) -> Tensor:
    """Send a tensor from the host to a device. The host must not change the tensor afterwards."""
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)
