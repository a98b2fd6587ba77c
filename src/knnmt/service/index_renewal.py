"""`IndexRenewal` updates the index of a store after many corrections, while the service keeps running.

Entries that are newer than an index are searched exactly beside it, so corrections count at once in any case. When some
ten thousand entries are newer, the index is renewed in its own process at a lower priority: `python -m
knnmt.service.index_renewal STORE`. This process ends when its input ends, because then the service is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

from knnmt.datastore.store import Datastore
from knnmt.errors import KnnmtError
from knnmt.index.saved import lags, update_index
from knnmt.service.beside import end_with_the_service

_log = logging.getLogger("knnmt.service")
_NICENESS = 10
start_process = subprocess.Popen


class IndexRenewal:
    """Renews the indexes of the stores that a translator has open, one at a time. Threads may share it.

    refresh: is called with a store whose index was renewed
    """

    def __init__(self, refresh: Callable[[Path], None]) -> None:
        self._refresh = refresh
        self._pool = ThreadPoolExecutor(1, "knnmt-index")
        self._lock = Lock()
        self._considered: set[Path] = set()  # whose index is being renewed, or could not be renewed
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = Event()

    def consider(self, store: Datastore) -> None:
        """Renew the index of a store if that is worthwhile."""
        try:
            behind = lags(store)
        except KnnmtError as error:  # the store has no index and is searched exactly
            _log.warning("%s", error)
            return
        with self._lock:
            if behind and not self._closed.is_set() and store.path not in self._considered:
                self._considered.add(store.path)
                self._pool.submit(self._renew, store.path)

    def close(self) -> None:
        """End. An unfinished renewal starts again after a later correction."""
        with self._lock:
            self._closed.set()
            if self._process is not None:
                self._process.kill()
        self._pool.shutdown()

    def _renew(self, path: Path) -> None:
        command = [sys.executable, "-P", "-m", "knnmt.service.index_renewal", str(path)]
        with self._lock:
            if self._closed.is_set():
                return
            process = start_process(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0)
            self._process = process
        with process:
            status = process.wait()
        with self._lock:
            self._process = None
            if self._closed.is_set():
                return
            if status:  # it would fail again after each correction
                _log.error(
                    "%s: the index could not be renewed (status %s); newer entries are searched exactly", path, status
                )
                return
            self._considered.discard(path)
        self._refresh(path)


def main() -> None:
    """Renew the index of one store, in this process."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICENESS)
    end_with_the_service()
    try:
        update_index(Datastore.open(sys.argv[1]))
    except KnnmtError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
