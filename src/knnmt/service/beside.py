"""Processes beside the service, which end with it: their standard input is a pipe that it holds open."""

from __future__ import annotations

import os
from threading import Thread


def end_with_the_service() -> None:
    """End this process when the service has ended, however that came about."""
    Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    # Not by sys.stdin: Python, when it ends, wants the lock that a thread holds who waits there, and aborts without.
    while os.read(0, 4096):
        pass
    os._exit(1)
