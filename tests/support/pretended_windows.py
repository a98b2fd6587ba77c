"""A process that takes itself for one of Windows: without the modules, names and liberties that only POSIX has.

Windows itself is not here. What it refuses is refused: to open a directory, to remove a file that is open or mapped, to
put another in its place, to rename a directory with such a file in it. Other packages are imported first, for they have
builds of their own for Windows.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module, reload
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

OTHERS = """asyncio concurrent.futures ctypes multiprocessing socket subprocess tempfile numpy torch safetensors.numpy
safetensors.torch tokenizers typer rich.console rich.progress rich.table rich.text lxml.etree zstandard
rapidfuzz.process faiss sacrebleu matplotlib.pyplot fastapi uvicorn.server prometheus_client"""
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NAMES = """O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fork forkpty fchmod fchown chown getuid geteuid getpgid killpg
mkfifo pread pwrite register_at_fork sched_getaffinity setsid statvfs sysconf"""
SIGNALS = "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2"


class _NoPosix:
    """Finds none of the modules that Windows does not have."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name in MODULES:
            raise ImportError(f"No module named {name!r} on Windows", name=name)
        return None


def pretend() -> None:
    """Be a process of Windows from here on."""
    for name in OTHERS.split():
        import_module(name)
    os.supports_dir_fd.clear()
    reload(shutil)  # which then removes directories by their paths
    sys.modules["msvcrt"] = _msvcrt()
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _NoPosix())
    for module, names in ((os, NAMES), (signal, SIGNALS)):
        for name in names.split():
            delattr(module, name)
    os.O_BINARY = 0  # type: ignore[attr-defined]
    os.open = _refusing(os.open, lambda path, *_: Path(path).is_dir())
    os.unlink = os.remove = _refusing(os.unlink, _in_use)
    os.replace = _refusing(os.replace, lambda one, other: _in_use(one) or _in_use(other))
    os.rename = _refusing(os.rename, lambda one, other: _in_use(one) or Path(other).exists())
    sys.platform = "win32"


def _msvcrt() -> ModuleType:
    """Locks that two openings of one file cannot both have."""
    import fcntl

    module = ModuleType("msvcrt")

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (2, 1)
        assert os.lseek(descriptor, 0, os.SEEK_CUR) >= 1 << 30, "what is locked cannot be read by others"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, "Permission denied") from error

    vars(module).update(LK_NBLCK=2, locking=locking)
    return module


def _refusing(function: Callable[..., Any], refused: Callable[..., bool]) -> Callable[..., Any]:
    def on_windows(*places: Any, **options: Any) -> Any:
        assert not {"dir_fd", "src_dir_fd", "dst_dir_fd"} & options.keys(), "not on Windows"
        if refused(*places):
            raise PermissionError(errno.EACCES, "Access is denied", str(places[0]))
        return function(*places, **options)

    return on_windows


def _in_use(place: Any) -> bool:
    """Whether this process has a file open or mapped, or one below a directory."""
    path = os.path.realpath(place)
    return any(used == path or used.startswith(f"{path}/") for used in used())


def used() -> set[str]:
    """The files that this process has open or mapped."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    used = {line[line.index("/") :] for line in lines if "/" in line}
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the directory itself
            used.add(str(descriptor.readlink()))
    return used
