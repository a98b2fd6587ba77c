"""Progress reports of long work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Progress = Callable[[int, int], None]  # is called with how much is done, of how much
Bars = Callable[[str, str], AbstractContextManager[Progress]]  # gives one, for a description and a unit


def unheard(_done: int, _total: int) -> None:
    """Tell nobody."""


def no_bars(_description: str, _unit: str) -> AbstractContextManager[Progress]:
    """Show nobody."""
    return nullcontext(unheard)
