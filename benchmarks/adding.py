"""Times many small additions to a store, and then opening the store.

    OMP_NUM_THREADS=1 python benchmarks/adding.py --adds 10000 [--for-fast] [--store STORE]
    OMP_NUM_THREADS=1 python benchmarks/adding.py --entries 100000 1000000 20000000 --adds 50

Each addition is one made-up pair in one publication, by the shipped model. Every tenth pair is then corrected, and a
reader that has the store open follows. --store: begin with a copy of this store. Times are in milliseconds, with CPU
time in brackets, because other programs may run.

--entries: corrections by the service's own writer, in stores that already hold this many entries, and the time of the
next translation of the corrected text, which must be the correction. Such a store is made up from the same words, and
its keys are zeros. It needs as much space as a real store, 640 bytes per entry and more.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from knnmt.calibration.estimates import Calibration
from knnmt.config import DEFAULT_SEGMENTS
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.correcting import correct
from knnmt.datastore.manifest import SEGMENTS
from knnmt.datastore.postings import posting_arrays, word_arrays
from knnmt.datastore.prepared import Slice
from knnmt.datastore.segment import sentence_arrays, source_arrays
from knnmt.datastore.slices import cut_slices, write_segment
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Engine
from knnmt.engine.loading import load_engine
from knnmt.retrieval.open_store import OpenStore
from knnmt.service.writing import Writers
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import argument_parser

NOUNS = ["Auftrag", "Bericht", "Drucker", "Filter", "Hebel", "Kessel", "Motor", "Regler", "Schalter", "Zylinder"]
IN_ENGLISH = ["job", "report", "printer", "filter", "lever", "boiler", "motor", "governor", "switch", "cylinder"]
BUILT = 50
OPENINGS = 20
DIFFERENT = 4  # segments of a made-up store; the others repeat their texts with other tokens
CORRECTED = 9_000_000  # the number of a pair that no store has


def pair(number: int) -> SegmentPair:
    german, english = NOUNS[number % 10], IN_ENGLISH[number % 10]
    source = f"Der {german} {number} wird vor dem Öffnen der Klappe {number % 97} ausgeschaltet und geprüft."
    target = f"Switch off and check the {english} {number} before opening the flap {number % 97}."
    return SegmentPair(source, target, f"made#{number}")


class Times:
    """Milliseconds of repeated work, by the clock and of the CPU."""

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


# Stores of any size, all made up --------------------------------------------------------------------------------------


def made_up_store(path: Path, entries: int, engine: Engine[Any]) -> Datastore:
    """A store with at least this many entries, as if it had been searched by segment before."""
    store = Datastore.build(path, map(pair, range(BUILT)), engine, BuildConfig())
    manifest, records = store.manifest, list(store.manifest.segments)
    numbers = count(manifest.next_segment)
    for arrays in segments_of_made_up_store(engine):
        if sum(each.entries for each in records) >= entries:
            break
        records.append(write_segment(path / SEGMENTS, f"{next(numbers):05d}-made.safetensors", arrays))
    manifest.changed(tuple(records), next(numbers)).write(path)
    replace(Calibration.unknown(DEFAULT_SEGMENTS), queries=1).save(path)
    return Datastore.open(path, engine)


def segments_of_made_up_store(engine: Engine[Any]) -> Iterator[dict[str, Array]]:
    pairs = map(pair, count(BUILT))
    slices = cut_slices(pairs, engine.tokenizer, engine.max_positions, Counter(), BuildConfig().accelerators)
    first = [made_up_segment(part, engine.dim) for part in islice(slices, DIFFERENT)]
    for copy in count():
        for arrays in first:
            tokens = ((arrays["source_tokens"] + copy) % engine.vocabulary_size).astype(np.int32)
            hashes = arrays["source_hashes"] ^ np.int64(copy * 0x9E3779B97F4A7)
            own = {"source_tokens": tokens, "source_hashes": hashes}
            yield {**arrays, **own, **posting_arrays(tokens, arrays["source_offsets"])}


def made_up_segment(part: Slice, dim: int) -> dict[str, Array]:
    entries = part.entries
    sentences, positions = part.targets.places()
    return {
        "keys": np.zeros((entries, dim), np.float16),
        "values": part.targets.numbers,
        "sentences": sentences.astype(np.int32),
        "positions": positions.astype(np.int32),
        **sentence_arrays(part.texts, part.targets),
        "lines": part.lines,
        "source_hashes": part.hashes,
        **word_arrays(part.words),
        **source_arrays(part.sources),
        "alignment": np.zeros(entries, np.uint16),
        "log_probabilities": np.zeros(entries, np.float16),
        "first_choices": np.zeros(entries, np.uint8),
    }


def correct_in(entries: int, corrections: int, engine: Engine[Any]) -> None:
    """Correct a store of this many entries as the service does, and print how long each correction took."""
    correcting, translating = Times(), Times()
    with tempfile.TemporaryDirectory() as place:
        path = made_up_store(Path(place).resolve() / "s", entries, engine).path
        translator = Translator(datastore=path, settings="raw")
        writers = Writers(translator)
        translator.translate(pair(0).source)  # so that the set-up at the first text is done
        for number in range(corrections + 1):
            better = replace(pair(CORRECTED + number % 3), target=f"This is correction {number}.")
            correcting.take(lambda better=better: writers.of(path).put("replace", [better]).result())  # type: ignore[misc]
            found: list[str] = []
            translating.take(
                lambda better=better, found=found: found.append(  # type: ignore[misc]
                    translator.translate(better.source, exact_matches="use").text
                )
            )
            assert found == [better.target], found
        writers.close()
        held = Datastore.open(path).manifest
        print(f"{held.entries:,} entries in {len(held.segments):,} segments")
        print(f"  corrections  {correcting.in_words(corrections)}")
        print(f"  the next text {translating.in_words(corrections)}", flush=True)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--adds", type=int, default=2000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--for-fast", action="store_true", help="with the source side, as Fast kNN-MT needs it")
    parser.add_argument("--entries", type=int, nargs="+", help="sizes of made-up stores to correct")
    arguments = parser.parse_args()
    engine = load_engine("de-en", device="cpu")
    if arguments.entries is not None:
        for entries in arguments.entries:
            correct_in(entries, arguments.adds, engine)
        return
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
