"""Handling of Ctrl-C: it does not cut a line in two, and a message says what it means for the work."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer


class Interrupts:
    """While open, Ctrl-C raises KeyboardInterrupt as usual, but waits for the end of `shielded` blocks."""

    def __enter__(self) -> Interrupts:
        self._shielded = False
        self._waiting = False
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if not self._shielded or self._waiting:  # a second Ctrl-C does not wait
            raise KeyboardInterrupt
        self._waiting = True

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Let the block end before an interruption is raised."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self._waiting:
            raise KeyboardInterrupt


@contextmanager
def ends_with(advice: str, place: Path | None = None, done: str = "") -> Iterator[None]:
    """Turn Ctrl-C into a message about its effect, and the exit status that a shell expects.

    place: the file or directory that the work produces; once it is new or has changed, `done` is printed instead
    """
    before = _identity(place)
    try:
        yield
    except KeyboardInterrupt:
        word = advice if _identity(place) == before else done
        typer.echo(f"\nknnmt: interrupted; {word}", err=True)
        raise typer.Exit(130) from None


def _identity(place: Path | None) -> tuple[int, int] | None:
    try:
        found = place and place.stat()
    except OSError:
        found = None
    return (found.st_ino, found.st_mtime_ns) if found else None
