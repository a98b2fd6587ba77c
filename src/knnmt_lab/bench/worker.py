"""The process of one measured system: it translates on request, and reports the time.

Run as `python -m knnmt_lab.bench.worker DESCRIPTION`. It writes lines of JSON: first a description of the
system, then an answer for every request on standard input, until that ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from knnmt import KnnmtError, stage_times
from knnmt.errors import SlowSearchWarning

# Rows, searches, and both of them at first steps.
Searches = tuple[int, int, int, int]
NO_SEARCHES: Searches = (0, 0, 0, 0)
# texts and batch size -> translations, tokens of the best hypotheses (including ends of sentences), searches
Translate = Callable[[list[str], int], tuple[list[str], int, Searches]]


def serve(load: Callable[[], tuple[Translate, Mapping[str, Any]]]) -> None:
    """Load a system, write the description that `load` returns, and answer requests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this ends: Ctrl-C reaches both
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries must not get among the answers
    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    try:
        translate, about = load()
        print(json.dumps(about), file=answers, flush=True)
        while True:
            print(json.dumps(_measure(translate, **json.loads(requests.get()))), file=answers, flush=True)
    except BaseException as error:
        said = str(error) if isinstance(error, KnnmtError) else traceback.format_exc()
        print(said, file=sys.stderr, flush=True)
        os._exit(1)  # an orderly end would wait for the thread that waits for requests


def _listen(requests: SimpleQueue[str]) -> None:
    """Pass requests on. When they end, this process ends, even during work: nobody will read the answer."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _measure(translate: Translate, texts: list[str], batch_size: int) -> dict[str, Any]:
    # Recording costs 2 microseconds per stage, with at most six stages in a step of milliseconds: it is always on.
    with stage_times() as timings:
        started = time.perf_counter()
        translations, tokens, searches = translate(texts, batch_size)
        seconds = time.perf_counter() - started
    return {
        "texts": translations,
        "tokens": tokens,
        "seconds": seconds,
        "stage_seconds": timings.seconds,
        "searches": searches,
        "resident_mib": _resident_mib(),
    }


def _resident_mib() -> int | None:
    """The memory of this process in RAM, including touched parts of memory maps; None if the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def load_translator(
    datastore: str | None, settings: dict[str, Any], **options: Any
) -> tuple[Translate, Mapping[str, Any]]:
    """A system of this package; `options` and `settings` are those of `Translator`."""
    from knnmt import Statistics, Translator, machine

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowSearchWarning)  # the report says it
        translator = Translator(datastore=datastore, **options, **{"settings": "raw", **settings})

    def translate(texts: list[str], batch_size: int) -> tuple[list[str], int, Searches]:
        counted = Statistics()
        found = translator.translate(texts, batch_size=batch_size, statistics=counted)
        tokens = sum(len(each.tokens) for each in found)
        searches = (counted.rows, counted.searches, counted.first_rows, counted.first_searches)
        return [each.text for each in found], tokens, searches

    retrieval = translator.retrieval()
    about = {
        "machine": machine(translator),
        "signature": translator.signature(),
        "hint": retrieval.store.index.hint if retrieval is not None and retrieval.config.scope is None else None,
    }
    return translate, about


if __name__ == "__main__":
    serve(lambda: load_translator(**json.loads(sys.argv[1])))
