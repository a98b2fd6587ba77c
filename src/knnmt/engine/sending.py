"""Numbers on their way to a device, without waiting for what that is at.

A plain copy from the host waits until a GPU has done all that it was asked for. From memory that cannot be paged out it
goes on beside that, so that the host can ask for the next batch meanwhile.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sent(numbers: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device. The host must not change it any more."""
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)
