"""The cost of shards per sentence: choosing and fetching in one store, in shards of this process, and by Ray.

    python benchmarks/shards.py STORE [--shards 4] [--segments 64] [--batch 8] [--sentences 64] [--ray]

STORE is split, and sources of its own sentences are the queries. The store holds each of them, so the answers are as
large as possible. The script prints the median of batches, in milliseconds per sentence, and the bytes returned.
"""

from __future__ import annotations

import pickle
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from knnmt.datastore.combining import split_store
from knnmt.datastore.store import Datastore
from knnmt.distributed.shard_set import ShardPlace, ShardSet
from knnmt.distributed.sharded_store import ShardedStore
from knnmt.engine.loading import load_engine
from knnmt.engine.precision import cpu_name
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.sentence_stores import SentenceStores
from knnmt_lab.scripts import argument_parser


def median_ms(do: Callable[[list[list[int]]], object], sources: list[list[int]], batch: int) -> float:
    """Milliseconds per sentence, the median of all batches but the first."""
    taken = []
    for first in range(0, len(sources) - batch + 1, batch):
        started = time.perf_counter()
        do(sources[first : first + batch])
        taken.append((time.perf_counter() - started) / batch * 1e3)
    return statistics.median(taken[1:])


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--segments", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--ray", action="store_true", help="also in processes that Ray starts")
    given = parser.parse_args()
    torch.set_num_threads(1)
    store = Datastore.open(given.store)
    engine = load_engine(device="cpu")
    every = [pair.source for pair in store.pairs()]
    step = max(1, len(every) // given.sentences)
    sources = engine.tokenizer.encode_sources(every[::step][: given.sentences])
    whole = OpenStore(store, exact=True).snapshot
    print(
        f"{cpu_name()}: {store.manifest.live_sentences:,} sentences, {store.entries:,} entries, {given.shards} shards"
    )

    def in_one(some: list[list[int]]) -> object:
        chosen = whole.choose_segments(some, given.segments)
        return [SentenceStores(whole.index.entries, [ids], whole.device) for ids in chosen.entries]

    print(f"one store          {median_ms(in_one, sources, given.batch):8.2f} ms a sentence")
    with tempfile.TemporaryDirectory() as temporary:
        pairs = -(-len(every) // given.shards)
        places = split_store(store, Path(temporary) / "parts", pairs=pairs)
        own = Datastore(store.path, replace(store.manifest, segments=()), [])
        for name, cluster in (("this process", None), ("Ray", "local")):
            if cluster is None or given.ray:
                found = ShardSet(tuple(ShardPlace(str(place)) for place in places), cluster, 300.0)
                started = time.perf_counter()
                sharded = ShardedStore(own, found.opened(), seconds=300.0)
                opening = time.perf_counter() - started
                taken = median_ms(lambda some: sharded.for_batch(some, given.segments), sources, given.batch)  # noqa: B023
                print(f"shards in {name:<12} {taken:5.2f} ms a sentence; opened in {opening:.2f} s")
                shard = found.opened()[0] if cluster is None else None
                if shard is not None:
                    state = shard.ask("state").result()
                    hashes = whole.source_index.hashes_of(
                        whole.source_index.choose([source[:-1] for source in sources[:1]], given.segments).sentences[0]
                    )
                    arrays = shard.ask("sentences", state.name, hashes).result()
                    print(
                        f"  the keys and texts of one sentence from one shard: {len(pickle.dumps(arrays)) / 1e6:.2f} MB"
                    )


if __name__ == "__main__":
    main()
