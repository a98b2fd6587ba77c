"""The threads of OpenMP, of which PyTorch and FAISS each have one: how they wait for work, and what happens at forks.

A thread that spins while it waits takes its core from other work: from the other OpenMP's threads, and from other
programs, which then take it from ours in the middle of an operation that all threads must finish together. On two cores
beside a busy program, this made decoding 20 times slower. Compiled code has threads of its own (native/team.cpp), which
would wait for the cores that OpenMP's threads spin on.

GNU's OpenMP keeps threads for the thread that asked for them. A process forked from it does not have them, and would
wait for them forever. So they are ended before a fork, and both processes make new ones when they need them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from knnmt.errors import SettingError

TORCH_SPINS = 1_000  # about 50 microseconds
FAISS_SPINS = 0
_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@contextmanager
def loading(library: str, spins: int) -> Iterator[None]:
    """Let the OpenMP of a library that is imported in this block spin for a while and then sleep.

    It can only be set while the library is loaded, and by the environment. Existing environment variables take
    precedence.
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

_HARD = 2  # of the two ways to pause in OpenMP 5: nothing is kept
_ready = False  # forking: its threads could not be waited for
_alone = False  # whether this process can only compute with one thread


def require_threads(count: int) -> None:
    """Raise an error for more than one thread in a forked process that would wait for the others forever."""
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
    """The files of the GNU OpenMPs that this process has loaded."""
    if "torch" not in sys.modules and "faiss" not in sys.modules:
        return set()
    from pathlib import Path  # imported here, so that `import knnmt` stays cheap

    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return set()
    return {line[line.index("/") :] for line in lines if "/libgomp" in line}


def _send_home(path: str) -> bool:
    """End the threads that an OpenMP keeps for this thread; False if it cannot."""
    import ctypes

    try:
        return int(ctypes.CDLL(path).omp_pause_resource_all(_HARD)) == 0
    except (OSError, AttributeError):  # older than OpenMP 5
        return False


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_process)
