"""A service on a port of this machine, for clients that speak to nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import uvicorn


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The address of an application that is served until the block ends."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
