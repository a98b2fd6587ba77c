"""Code that is compiled for a GPU at its first use, by the compiler that comes with PyTorch: `kernel(name, device)`.

Like the other compiled code it is optional, and KNNMT_NATIVE=0 turns it off.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

_HERE = Path(__file__).parent


@cache
def kernel(name: str, device: torch.device, **constants: int) -> Callable[..., Any] | None:
    """knnmt_<name> of <name>.cu for a device, with these constants, or None if it cannot be compiled."""
    if os.environ.get("KNNMT_NATIVE") == "0" or device.type != "cuda":
        return None
    numbers = "".join(f"constexpr int {constant} = {number};\n" for constant, number in constants.items())
    source = numbers + re.sub(r'#include "(\w+\.h)"', lambda found: _text(found[1]), _text(f"{name}.cu"))
    try:
        with torch.cuda.device(device), _without_toolkit():
            compiled: Callable[..., Any] = torch.cuda._compile_kernel(source, f"knnmt_{name}")
    except (AttributeError, ImportError, OSError, RuntimeError):  # another PyTorch, or no compiler with it
        return None

    def launch(**how: Any) -> None:
        with torch.cuda.device(device):  # it runs on this device's stream; the current device may be another
            compiled(**how)

    return launch


def _text(file: str) -> str:
    return (_HERE / file).read_text(encoding="utf-8")


@contextmanager
def _without_toolkit() -> Iterator[None]:
    """Let PyTorch's compiler run without CUDA's headers. It fails if there are none, although our code needs none."""
    from torch.utils import cpp_extension

    found = cpp_extension.CUDA_HOME
    cpp_extension.CUDA_HOME = found or str(_HERE)
    try:
        yield
    finally:
        cpp_extension.CUDA_HOME = found
