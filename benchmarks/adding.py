"""Many small additions to a store: how long each takes, and how long it takes then to open the store.

    OMP_NUM_THREADS=1 python benchmarks/adding.py --adds 10000 [--for-fast] [--store STORE]

Each addition is one made-up pair in one publication, by the shipped model. Every tenth is then corrected, and a reader
that has the store open follows. --store: begin with a copy of this one. Times are in milliseconds, in brackets those of
the processor alone, since other work may want it.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.correcting import correct
from knnmt.datastore.store import Datastore
from knnmt.engine.loading import load_engine
from knnmt.retrieval.open_store import OpenStore

NOUNS = ["Auftrag", "Bericht", "Drucker", "Filter", "Hebel", "Kessel", "Motor", "Regler", "Schalter", "Zylinder"]
IN_ENGLISH = ["job", "report", "printer", "filter", "lever", "boiler", "motor", "governor", "switch", "cylinder"]
BUILT = 50
OPENINGS = 20


def pair(number: int) -> SegmentPair:
    german, english = NOUNS[number % 10], IN_ENGLISH[number % 10]
    source = f"Der {german} {number} wird vor dem Öffnen der Klappe {number % 97} ausgeschaltet und geprüft."
    target = f"Switch off and check the {english} {number} before opening the flap {number % 97}."
    return SegmentPair(source, target, f"made#{number}")


class Times:
    """Milliseconds of what was done again and again, by the clock and of the processor."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float]] = []

    def take(self, work: Callable[[], object]) -> None:
        clock, processor = time.perf_counter(), time.process_time()
        work()
        self._found.append((1000 * (time.perf_counter() - clock), 1000 * (time.process_time() - processor)))

    def in_words(self, last: int = 0) -> str:
        found = np.array(self._found[-last:])
        named = zip(("median", "99th percentile", "most"), np.percentile(found, [50, 99, 100], axis=0), strict=True)
        return ", ".join(f"{name} {clock:.1f} [{processor:.1f}]" for name, (clock, processor) in named)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adds", type=int, default=2000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--for-fast", action="store_true", help="with the source side, as Fast kNN-MT needs it")
    arguments = parser.parse_args()
    engine = load_engine("de-en", device="cpu")
    adding, correcting, following, opening = Times(), Times(), Times(), Times()
    with tempfile.TemporaryDirectory() as place:
        config = BuildConfig(for_fast=arguments.for_fast)
        if arguments.store is None:
            store = Datastore.build(Path(place) / "s", map(pair, range(BUILT)), engine, config)
        else:
            store = Datastore.open(shutil.copytree(arguments.store, Path(place) / "s"), engine)
        reader = OpenStore(Datastore.open(store.path))
        for number in range(BUILT, BUILT + arguments.adds):
            adding.take(lambda number=number: store.add([pair(number)], engine))  # type: ignore[misc]
            if number % 10 == 0:
                better = replace(pair(number), target=f"{pair(number).target} Now.")
                correcting.take(lambda better=better: correct(store, [better], engine))  # type: ignore[misc]
                following.take(reader.refresh)
        for _ in range(OPENINGS):
            opening.take(lambda: Datastore.open(store.path))
        print(f"adds      {adding.in_words()}")
        print(f"          of the last tenth {adding.in_words(arguments.adds // 10)}")
        print(f"corrected {correcting.in_words()}")
        print(f"refreshes {following.in_words()}")
        print(f"opening   {opening.in_words()}: {store.entries:,} entries in {len(store.segments):,} segments")


if __name__ == "__main__":
    main()
