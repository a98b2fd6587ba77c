"""Processes of the service's own: at a lower priority, and never longer than the service.

Their standard input is a pipe that the service holds open; its end means that the service is gone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from threading import Thread

_NICENESS = 10
start_process = subprocess.Popen


def start(module: str, *arguments: str, output: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Run a module in a process. output: `subprocess.PIPE` to read what it prints"""
    process = start_process(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=output,
        process_group=0,  # Ctrl-C is for the service; in its own session the process's priority would not count
    )
    with contextlib.suppress(AttributeError, OSError):  # at once, because imports alone take seconds
        os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
    return process


def end_with_the_service() -> None:
    """End this process when the service has ended for any reason."""
    Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    # Not sys.stdin: at exit Python needs the lock of a thread that reads from it, and aborts without it.
    while os.read(0, 4096):
        pass
    os._exit(1)
