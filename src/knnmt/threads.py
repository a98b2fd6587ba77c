"""The threads of OpenMP, of which PyTorch and FAISS each bring one: how they wait for work, and what forks do to them.

A thread that spins while it waits takes its core from whatever else wants to work: from the other OpenMP's threads, and
from other programs, which then take it from ours in the middle of an operation that all threads must end together. On
two cores beside a busy program, decoding was 20 times slower for it.

GNU's OpenMP keeps threads for the one that asked for them. A process that is forked from that one has not got them, and
would wait for them forever. So they end before a fork, and both processes make new ones when they need some.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from knnmt.errors import SettingError

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


# Forks ----------------------------------------------------------------------------------------------------------------

_HARD = 2  # of the two ways to pause that OpenMP 5 knows: nothing is kept
_ready = False  # to be forked: nobody would be waited for
_alone = False  # whether this process can compute with one thread only


def require_threads(count: int) -> None:
    """Refuse more than one thread in a process that was forked where others would be waited for forever."""
    if _alone and count > 1:
        raise SettingError(
            f"{count} threads were requested in a process that was forked after its parent had computed with "
            "several threads. Its OpenMP cannot restart, so only one thread works here. Start processes by spawn, "
            "or import and load after the fork"
        )


def _before_fork() -> None:
    global _ready
    sent_home = [_send_home(path) for path in _gnu_openmps()]
    _ready = all(sent_home)


def _after_fork() -> None:
    global _ready
    _ready = False


def _in_forked_process() -> None:
    global _alone
    torch = sys.modules.get("torch")
    if not _ready and torch is not None:
        _alone = _alone or torch.get_num_threads() > 1
        torch.set_num_threads(1)  # FAISS and compiled code use as many
    _after_fork()


def _gnu_openmps() -> set[str]:
    """The files of those that this process has loaded."""
    if "torch" not in sys.modules and "faiss" not in sys.modules:
        return set()
    from pathlib import Path  # only now: `import knnmt` costs nothing

    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return set()
    return {line[line.index("/") :] for line in lines if "/libgomp" in line}


def _send_home(path: str) -> bool:
    """End the threads that an OpenMP keeps for this one; False where it cannot."""
    import ctypes

    try:
        return int(ctypes.CDLL(path).omp_pause_resource_all(_HARD)) == 0
    except (OSError, AttributeError):  # older than OpenMP 5
        return False


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_process)
