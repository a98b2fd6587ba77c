"""A progress bar, drawn only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from knnmt.cli.streams import unguarded

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")


def _bar(unit: str) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(file=unguarded(sys.stderr)), transient=True)


class Tally:
    """A count of what is done, with or without a bar. Call it with the number of newly finished items."""

    def __init__(self, bar: Progress | None = None) -> None:
        self.done = 0
        self._bar = bar

    def __call__(self, more: int) -> None:
        self.done += more
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], more)

    def close(self) -> None:
        """Remove the bar, to make room for lines that stay on the terminal."""
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def tally(description: str, total: int | None, unit: str, shown: bool = True) -> Iterator[Tally]:
    """A count to call with newly finished items. It draws a bar if asked to and if there is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield Tally()
        return
    with _bar(unit) as progress:
        progress.add_task(description, total=total, speed="")
        yield Tally(progress)


def track(items: Iterable[Item], description: str, total: int | None, unit: str) -> Iterator[Item]:
    """Pass `items` through, drawing a bar on standard error if that is a terminal."""
    with tally(description, total, unit) as finished:
        for item in items:
            yield item
            finished(1)


@contextmanager
def counter(description: str, total: Callable[[], int | None], unit: str) -> Iterator[Callable[[int, int], None]]:
    """A function to call with units and entries done. It draws a bar with entries per second on a terminal.

    `total` is called only then, because counting may take a moment.
    """
    if not sys.stderr.isatty():
        yield lambda _units, _entries: None
        return
    with _bar(unit) as progress:
        task = progress.add_task("counting", total=None, speed="")
        progress.update(task, total=total(), description=description)
        progress.reset(task)

        def update(units: int, entries: int) -> None:
            elapsed = progress.tasks[task].elapsed or 0.0
            speed = f"{entries / elapsed:,.0f} entries/s" if elapsed else ""
            progress.update(task, completed=units, speed=speed)

        yield update


@contextmanager
def progress_bars(description: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A function to call with the amount done and the total. The bar shows from the first call until all is done.

    Between two such tasks the terminal is free for other lines.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    shown: Progress | None = None

    def update(done: int, total: int) -> None:
        nonlocal shown
        if shown is None:
            shown = _bar(unit)
            shown.start()
            shown.add_task(description, total=total, speed="")
        shown.update(shown.task_ids[0], completed=done)
        if done >= total:
            shown.stop()
            shown = None

    try:
        yield update
    finally:
        if shown is not None:
            shown.stop()
