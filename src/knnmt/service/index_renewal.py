"""`IndexRenewal` updates the index of a store that has grown, while the service keeps running.

Entries that are newer than an index are searched exactly beside it, so corrections count at once in any case. When some
ten thousand entries are newer, the index is renewed in its own process: `python -m knnmt.service.index_renewal STORE`.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

from knnmt.datastore.lock import while_unlocked
from knnmt.datastore.store import Datastore
from knnmt.errors import KnnmtError
from knnmt.index.saved import lags, update_index
from knnmt.service.child_process import end_with_the_service, start

_log = logging.getLogger("knnmt.service")
_LOCKED_SECONDS = 30.0  # a process of a killed service may live this much longer


class IndexRenewal:
    """Renews the indexes of the stores that a translator has open, one at a time. Threads may share it.

    refresh: is called with a store whose index was renewed
    """

    def __init__(self, refresh: Callable[[Path], None]) -> None:
        self._refresh = refresh
        self._pool = ThreadPoolExecutor(1, "knnmt-index")
        self._lock = Lock()
        self._renewals: dict[Path, Future[None]] = {}  # that are not over, or have failed
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = Event()

    def consider(self, store: Datastore) -> Future[None] | None:
        """Renew the index of a store if that is worthwhile. The renewal that is under way or has failed is returned."""
        try:
            behind = lags(store)
        except KnnmtError as error:  # the store has no index and is searched exactly
            _log.warning("%s", error)
            return None
        with self._lock:
            if not behind or self._closed.is_set():
                return None
            if store.path not in self._renewals:
                self._renewals[store.path] = self._pool.submit(self._renew, store.path)
            return self._renewals[store.path]

    def close(self) -> None:
        """End. An unfinished renewal starts again after a later correction."""
        with self._lock:
            self._closed.set()
            if self._process is not None:
                self._process.kill()
        self._pool.shutdown()

    def _renew(self, path: Path) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            process = self._process = start("knnmt.service.index_renewal", str(path))
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
            del self._renewals[path]
        self._refresh(path)


def main() -> None:
    """Renew the index of one store, in this process."""
    end_with_the_service()
    try:
        while_unlocked(lambda: update_index(Datastore.open(sys.argv[1])), _LOCKED_SECONDS)
    except KnnmtError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
