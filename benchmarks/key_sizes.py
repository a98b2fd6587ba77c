"""The cost of shorter keys: BLEU on a store's own kind of text with keys in float16, in 8 bits, and reduced by PCA.

    python benchmarks/key_sizes.py [--pairs 15000] [--domain it] [--lines 300] [--dims 160 80] [--place .bench/keys]

A store of `--pairs` training pairs is built. The other stores are made from it: every number of a key rounded to 8 bits
(255 steps between the smallest and the largest of its dimension), keys reduced by PCA, and both. Each store has its own
settings for 64 segments, tuned by the likelihood of odd development lines, because distances between shorter keys are
smaller. The even development lines are translated with 64 segments each, beam 5. The search itself always compares keys
in 8 bits and measures the nearest ones as stored, so it loses nothing. "+/-" is the standard deviation of the
difference from float16 over 300 bootstrap samples. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from knnmt import spread
from knnmt.adapting.development import search_text
from knnmt.adapting.tuning_by_likelihood import tune_positions
from knnmt.compression.pca import KeyProjection, reduce
from knnmt.compression.transforming import making, publish
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.merging import without_removed
from knnmt.datastore.store import Datastore
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import Retrieval
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import DOMAINS, argument_parser, print_header, read_domain

SEGMENTS = 64
_SAMPLES = 300
_TUNING_LINES = 300
_OTHER_BYTES = 4 + 4 + 4 + 2 + 2 + 1  # bytes of an entry: value, sentence, position, alignment and the model's scores


def base_store(place: Path, domain: str, pairs: int, translator: Translator) -> Datastore:
    if not place.exists():
        chosen = spread(read_domain(domain, "train"), pairs)
        Datastore.build(place, chosen, translator.engine)
    return Datastore.open(place)


def in_eight_bits(store: Datastore, output: Path) -> Datastore:
    """The same store with rounded keys, which are written as float16 again."""
    keys = [segment.arrays["keys"].astype(np.float32) for segment in store.segments]
    least, most = np.min([k.min(0) for k in keys], 0), np.max([k.max(0) for k in keys], 0)
    step = np.maximum((most - least) / 255, 1e-12)

    def parts() -> Iterator[dict[str, np.ndarray]]:
        for segment, mine in zip(store.segments, keys, strict=True):
            rounded = np.rint((mine - least) / step) * step + least
            yield {**without_removed(segment), "keys": rounded.astype(np.float16)}

    projection = KeyProjection.of(store)
    with making(store, output) as directory:
        stored = None if projection is None else projection.write(directory)
        return publish(directory, output, replace(store.manifest, projection=stored), "rounded", parts())


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=15000)
    parser.add_argument("--domain", default="it", choices=DOMAINS)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--dims", type=int, nargs="*", default=[160, 80])
    parser.add_argument("--place", type=Path, default=Path(".bench/keys"))
    arguments = parser.parse_args()
    arguments.place.mkdir(parents=True, exist_ok=True)
    translator = Translator(device="cpu", dtype="float32", settings="raw")
    name = f"{arguments.domain}-{arguments.pairs}"
    store = base_store(arguments.place / name, arguments.domain, arguments.pairs, translator)
    stores = {"float16": (store, 2 * store.manifest.dim)}

    def also(what: str, bytes_each: int, make: Callable[[Path], object]) -> Datastore:
        place = arguments.place / f"{name}-{what.replace(' ', '')}"
        if not place.exists():
            make(place)
        stores[what] = (Datastore.open(place), bytes_each)
        return stores[what][0]

    also("8 bits", store.manifest.dim, partial(in_eight_bits, store))
    for dim in arguments.dims:
        reduced = also(f"PCA {dim}", 2 * dim, partial(reduce, store, dim=dim))
        also(f"PCA {dim} in 8 bits", dim, partial(in_eight_bits, reduced))
    compare(translator, stores, arguments.domain, arguments.lines)


def tuned(translator: Translator, store: Datastore, lines: list[SegmentPair]) -> Retrieval:
    """A store with settings tuned on these lines. Stored forms of sources are not used: only retrieval is compared."""
    opened = OpenStore(store, translator.engine.device)
    positions = search_text(translator.engine, opened, lines, scope=SEGMENTS).positions()
    return Retrieval(opened, replace(tune_positions(positions, scope=SEGMENTS).fading.fading, forms=False))


def compare(translator: Translator, stores: dict[str, tuple[Datastore, int]], domain: str, count: int) -> None:
    import sacrebleu

    development = read_domain(domain, "dev")
    lines, tuning = development[::2][:count], development[1::2][:_TUNING_LINES]
    references = [pair.target for pair in lines]
    metric, chance = sacrebleu.BLEU(), np.random.default_rng(0)
    samples = [chance.integers(0, len(lines), len(lines)) for _ in range(_SAMPLES)]

    def scored(texts: list[str]) -> tuple[float, np.ndarray]:
        found = metric._extract_corpus_statistics(texts, [references])
        statistics = np.array(found)
        each = [metric._compute_score_from_stats(statistics[mine].sum(0).tolist()).score for mine in samples]
        return float(metric._compute_score_from_stats(statistics.sum(0).tolist()).score), np.array(each)

    sources = [pair.source for pair in lines]
    alone = translator.translate(sources, beam=5, max_tokens=200, batch_size=16)
    print(f"{domain}, {len(lines)} lines; the model alone: {scored([each.text for each in alone])[0]:.2f} BLEU\n")
    print_header("keys", "bytes of a key", "of an entry", "BLEU", "to float16", "+/-", "settings")
    whole: tuple[float, np.ndarray] | None = None
    for what, (store, size) in stores.items():
        retrieval = tuned(translator, store, tuning)
        found = translator.translate(sources, retrieval=retrieval, beam=5, max_tokens=200, batch_size=16)
        mine = scored([each.text for each in found])
        whole = whole or mine
        difference = mine[1] - whole[1]
        print(
            f"| {what} | {size} | {size + _OTHER_BYTES} | {mine[0]:.2f} | {mine[0] - whole[0]:+.2f} "
            f"| {difference.std():.2f} | {retrieval.config.signature()} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
