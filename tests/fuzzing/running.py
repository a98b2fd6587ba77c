"""Runs each case in a process of its own, with little time and memory, and keeps what should not have happened."""

from __future__ import annotations

import faulthandler
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fuzzing.cases import make_case, use_case
from knnmt.translator.translator import Translator

_WALL_SECONDS = 120
_MEMORY = 2 << 30  # bytes beyond what the process had
_FAILED = 99


@dataclass(frozen=True, slots=True)
class Finding:
    """Something other than success or an error of our own. what: its kind and place, the same for the same mistake."""

    what: str
    details: str


def tried(use: Callable[[], object], seconds: int = 20) -> Finding | None:
    """What goes wrong when a child process does this in so many seconds of the processor."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _in_child(use, seconds, writing)
    os.close(writing)
    ended = _wait(child)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as pipe:
        said = pipe.read()
    if ended == 0:
        return None
    if ended == _FAILED:
        what, _, details = said.partition("\n")
        return Finding(what, details)
    name = signal.Signals(-ended).name if ended < 0 else f"exit status {ended}"
    what = f"more than {seconds} s" if name in ("SIGXCPU", "SIGALRM") else name
    return Finding(what, said)


def _in_child(use: Callable[[], object], seconds: int, pipe: int) -> None:
    """Ends the process."""
    status = _FAILED
    try:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        spent = int(time.process_time()) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (spent, spent + 5))
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(_WALL_SECONDS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use()
        status = 0
    except BaseException as error:
        details = "".join(traceback.format_exception(error))[-6000:]
        os.write(pipe, f"{type(error).__name__} in {_place(error)}\n{details}".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)


def _place(error: BaseException) -> str:
    """The last line of our own that an error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}knnmt{os.sep}" in frame.filename] or frames
    return f"{own[-1].filename.rpartition(f'{os.sep}knnmt{os.sep}')[2]}:{own[-1].lineno}"


def _wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fuzz(
    seed: int, seconds: float, stores: list[Path], translator: Translator | None, findings: Path
) -> Iterator[tuple[str, Finding | None]]:
    """Cases until the time is over, each with its name; the input of the first of each kind of finding is kept."""
    until, number, known = time.monotonic() + seconds, 0, set[str]()
    while time.monotonic() < until:
        name = f"{seed}-{number}"
        number += 1
        with TemporaryDirectory() as place:
            make_case(Random(name), Path(place), stores)
            kept = Path(place, "kept")
            found = tried(lambda: use_case(_copied(Path(place), kept), translator))  # noqa: B023
            shutil.rmtree(kept, ignore_errors=True)
            if found is not None and found.what not in known:
                known.add(found.what)
                shutil.copytree(place, findings / name, dirs_exist_ok=True)
        yield name, found


def _copied(case: Path, place: Path) -> Path:
    """A copy to use, for using a store changes it."""
    return Path(shutil.copytree(case, place, ignore=shutil.ignore_patterns("kept")))


def replay(case: Path, translator: Translator | None) -> Finding | None:
    """A kept input once more."""
    with TemporaryDirectory() as place:
        return tried(lambda: use_case(_copied(case, Path(place, "again")), translator))


def report(found: Finding, name: str) -> None:
    """Say a finding."""
    sys.stdout.write(f"{name}: {found.what}\n{found.details}\n")
    sys.stdout.flush()
