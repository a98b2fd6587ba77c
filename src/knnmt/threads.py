"""How idle OpenMP threads wait for work: PyTorch and FAISS each bring an OpenMP, and each would spin for milliseconds.

A thread that spins takes its core from whatever else wants to work: from the other OpenMP's threads, and from other
programs, which then take it from ours in the middle of an operation that all threads must end together. On two cores
beside a busy program, decoding was 20 times slower for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TORCH_SPINS = 20_000  # about a millisecond: longer than the pauses between the operations of a step
FAISS_SPINS = 0
_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@contextmanager
def loading(library: str, spins: int) -> Iterator[None]:
    """Let the OpenMP of a library that is imported in this block spin so often and then sleep.

    It can only be told while it is loaded, and by the environment. What the environment already says holds.
    """
    if library in sys.modules or any(name in os.environ for name in _SETTINGS):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = str(spins)
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]
