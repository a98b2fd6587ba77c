"""Makes the stores for the benchmarks of search and retrieval: built once from real text, in one directory.

    python benchmarks/stores.py DIRECTORY [--pairs 75000] [--dim 256] [--prune 2]

DIRECTORY gets `full` (1.3 million entries of the software domain by default), `pca` (its keys reduced), `pruned`, and
`pca-pruned`, each with the index that `knnmt build` would choose. Existing stores are used as they are. The text is
every third training pair of the software domain under KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from knnmt.calibration.index_choice import prepare
from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Engine
from knnmt.engine.loading import load_engine
from knnmt.index.saved import read_saved
from knnmt.index.store_index import StoreIndex
from knnmt_lab.scripts import argument_parser, read_domain


def made(place: Path, engine: Engine[Any], make: Callable[[], object]) -> Datastore:
    """The store at a place; made and indexed if it does not exist."""
    started = time.perf_counter()
    if not place.exists():
        make()
    store = Datastore.open(place, engine)
    if read_saved(store) is None:
        choice = prepare(store, engine, first_good=True)
        print(f"{place}: {choice.chosen.name}; {choice.reason}", flush=True)
    print(
        f"{place}: {store.entries:,} entries of {store.manifest.dim}, {time.perf_counter() - started:.0f} s", flush=True
    )
    return store


def make_stores(directory: Path, pairs: int, dim: int, k: int) -> None:
    engine = load_engine("de-en", device="cpu")

    def build() -> Datastore:
        chosen = islice(islice(read_domain("it", "train"), 0, None, 3), pairs)
        return Datastore.build(directory / "full", chosen, engine)

    full = made(directory / "full", engine, build)
    reduced = made(directory / "pca", engine, lambda: reduce(full, directory / "pca", dim))
    for store, name in ((full, "pruned"), (reduced, "pca-pruned")):
        made(
            directory / name,
            engine,
            lambda store=store, name=name: prune(store, directory / name, StoreIndex(store).search, k),  # type: ignore[misc]
        )


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pairs", type=int, default=75_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--prune", type=int, default=2)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    make_stores(arguments.directory, arguments.pairs, arguments.dim, arguments.prune)


if __name__ == "__main__":
    main()
