"""Whether processes have ended, for tests that end them."""

from __future__ import annotations

import time
from pathlib import Path


def lives(number: int) -> bool:
    """Whether a process runs; one that ended while nobody asked after it does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end_soon(*numbers: int) -> bool:
    """Whether all of these processes end within half a minute."""
    deadline = time.monotonic() + 30
    while any(map(lives, numbers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(lives, numbers))
