"""What is compiled for a GPU when it is first needed, by the compiler that comes with PyTorch: `kernel(name, device)`.

As with the other compiled code, nothing depends on it, and KNNMT_NATIVE=0 turns it off.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

_HERE = Path(__file__).parent


@cache
def kernel(name: str, device: torch.device) -> Callable[..., Any] | None:
    """knnmt_<name> of <name>.cu for a device, or None where it cannot be compiled."""
    if os.environ.get("KNNMT_NATIVE") == "0" or device.type != "cuda":
        return None
    source = (_HERE / f"{name}.cu").read_text(encoding="utf-8")
    try:
        with torch.cuda.device(device):
            compiled: Callable[..., Any] = torch.cuda._compile_kernel(source, f"knnmt_{name}")
    except (AttributeError, OSError, RuntimeError):  # another PyTorch, or no compiler with it
        return None
    return compiled
