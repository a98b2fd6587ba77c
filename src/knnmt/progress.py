"""Progress reports of long work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Progress = Callable[[int, int], None]  # called with the amount done and the total
Bars = Callable[[str, str], AbstractContextManager[Progress]]  # makes a Progress for a description and a unit


def ignore(*_: object) -> None:
    """Do nothing with what is reported."""


def no_bars(_description: str, _unit: str) -> AbstractContextManager[Progress]:
    """Show nothing."""
    return nullcontext(ignore)
