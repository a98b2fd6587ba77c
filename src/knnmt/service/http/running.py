"""Runs the service: uvicorn, signals, and a shutdown that loses nothing."""

from __future__ import annotations

import ctypes
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, Timer
from types import FrameType
from typing import Any

import uvicorn

from knnmt.service.http.app import make_app
from knnmt.service.http.connections import Connections
from knnmt.service.service import Service

_ANSWERING_SECONDS = 0.5  # to tell clients whose requests are not done
_CLOSING_SECONDS = 1.2  # the longest that everything else may take after the requests
_WAITING = 2048  # connections that are not yet accepted
_OTHER_FILES = 1_000  # file descriptors for everything but connections
# Decoding needs Python's lock again after every operation of compiled code, and waits so long for a thread that has it.
# With the usual 5 ms, a batch of the reference backend takes three times as long beside one busy thread, with 0.5 ms
# twice as long.
SWITCH_SECONDS = 0.00005
TRIM_SECONDS = 20.0  # between two times at which what was freed goes back to the system; without, some 400 MB stay
# Of glibc's allocator: M_ARENA_MAX, because by default each of many threads keeps what it has freed for itself; and
# M_MMAP_THRESHOLD, because large blocks between small ones, which stay, leave gaps.
ALLOCATOR = ((-8, 2), (-3, 1 << 20))


class _Server(uvicorn.Server):
    """uvicorn's server, which tells the service at once when it has to end."""

    service: Service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.service.ready:
            self.service.ready = False
            seconds = self.service.config.limits.ending_seconds
            for later, end in ((0.0, self.service.refuse), (_CLOSING_SECONDS, self.service.abandon)):
                last = Timer(seconds + later, end)
                last.daemon = True
                last.start()
        super().handle_exit(sig, frame)


def run(service: Service, begun: Callable[[str], None]) -> None:
    """Answer requests until a signal; then finish those that have started, within a time limit.

    begun: is called with the address
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(
        logging.ERROR
    )  # its warnings are about requests: anybody could fill the log
    sys.setswitchinterval(SWITCH_SECONDS)
    config, limits = service.config, service.config.limits
    _allow_files(limits.connections + _OTHER_FILES)
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((config.host, config.port))
    listening.listen(_WAITING)  # whoever gets the address may send requests at once
    host = f"[{config.host}]" if family is socket.AF_INET6 else config.host
    server = _Server(
        uvicorn.Config(
            make_app(service),
            http=Connections(limits).protocol,
            log_config=None,
            access_log=False,  # it would contain what people translate, if that is part of a URL
            server_header=False,
            timeout_keep_alive=math.ceil(limits.idle_seconds),
            backlog=_WAITING,
            timeout_graceful_shutdown=math.ceil(limits.ending_seconds + _ANSWERING_SECONDS),
        )
    )
    server.service = service
    begun(f"http://{host}:{listening.getsockname()[1]}")
    # At the end uvicorn raises the signal again for an earlier handler; there is none here.
    before = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _little_memory():
            server.run(sockets=[listening])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        listening.close()


@contextmanager
def _little_memory() -> Iterator[None]:
    """Let all threads share what they have freed, and give it back to the system, if the C library is glibc."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt"):
        yield
        return
    for option, value in ALLOCATOR:
        library.mallopt(option, value)
    ended = Event()
    Thread(target=lambda: _give_back(library, ended), name="knnmt-memory", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _give_back(library: Any, ended: Event) -> None:
    while not ended.wait(TRIM_SECONDS):
        library.malloc_trim(0)


def _allow_files(count: int) -> None:
    """Let the process open so many files, as far as the system permits it."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
