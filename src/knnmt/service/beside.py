"""Processes that end when the service ends: their standard input is a pipe that the service holds open."""

from __future__ import annotations

import os
from threading import Thread


def end_with_the_service() -> None:
    """End this process when the service has ended for any reason."""
    Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    # Not sys.stdin: at exit Python needs the lock of a thread that reads from it, and aborts without it.
    while os.read(0, 4096):
        pass
    os._exit(1)
