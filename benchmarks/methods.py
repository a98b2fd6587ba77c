"""Trained combiners beside fading λ: likelihood of held-out text of a store's own kind, and of another kind.

Run: .venv/bin/python benchmarks/methods.py medical=STORE koran=STORE … --pairs 300 --seeds 5 --segments 64

Each STORE holds the domain that it is named after; development text is KNNMT_DATA/DOMAIN/dev.tsv.xz (default
../shared/data). One half of it is for training (a fifth of this half decides when to stop), the other is reported. The
text of another kind is the reported half of the next named domain. One search finds the neighbours for all methods and
seeds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from knnmt.adapting.development_text import read_development
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import divide
from knnmt.datastore.store import Datastore
from knnmt.retrieval.open_store import OpenStore
from knnmt.translator.translator import Translator
from knnmt_lab.combiner_rows import CombinerRows, collect_rows
from knnmt_lab.combiner_training import CombinerConfig, best_fading, train_combiner
from knnmt_lab.scripts import argument_parser, domain_file, print_header, print_row

NEIGHBOURS = 16


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("stores", nargs="+", metavar="DOMAIN=STORE")
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--other-pairs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--segments", type=int, help="search by segment; by default the whole store is searched")
    parser.add_argument("--methods", default="meta-k,robust,kernel-smoothed,robust-fading")
    parser.add_argument("--save", action="store_true", help="keep the combiner of the first seed with its store")
    given = parser.parse_args()
    places = dict(each.split("=", 1) for each in given.stores)
    translator = Translator(threads=1, settings="raw")
    stores = {name: Datastore.open(Path(place), translator.engine) for name, place in places.items()}
    texts = {
        name: read_development(store, domain_file(name, "dev"), given.pairs, on_message=lambda _: None)
        for name, store in stores.items()
    }
    print_header("domain", "entries", "method", "nats a token", "seeds", "other text", "updates", "CPU s a seed")
    names = list(stores)
    for number, name in enumerate(names):
        opened = OpenStore(stores[name])

        def rows(pairs: Sequence[SegmentPair], opened: OpenStore = opened) -> CombinerRows:
            return collect_rows(translator.engine, opened, pairs, NEIGHBOURS, given.segments)

        began = time.process_time()
        teaching, validating = (rows(each) for each in divide(texts[name].tuning, 0.8))
        reported = rows(texts[name].reported)
        other = names[(number + 1) % len(names)]
        elsewhere = rows(texts[other].reported[: given.other_pairs]) if other != name else None
        collecting = time.process_time() - began
        config = best_fading(teaching, given.segments)
        entries = f"{stores[name].manifest.live_entries:,}"
        compared = False
        for method in given.methods.split(","):
            own, others, updates, seconds = [], [], [], []
            for seed in range(given.seeds):
                began = time.process_time()
                asked = CombinerConfig(method, seed=seed)
                found = train_combiner(opened, teaching, validating, replace(config, k=asked.usual_k), config, asked)
                seconds.append(time.process_time() - began)
                losses = found.losses(reported)
                harm = found.losses(elsewhere) if elsewhere is not None else dict.fromkeys(losses, float("nan"))
                if not compared:
                    compared = True
                    for each, label in (("alone", "the model alone"), ("fading", "fading λ")):
                        print_row(name, entries, label, f"{losses[each]:.4f}", "", f"{other} {harm[each]:.4f}", "", "")
                own.append(losses["trained"])
                others.append(harm["trained"])
                updates.append(found.combiner.record.updates)
                if given.save and seed == 0:
                    found.combiner.write(stores[name].path)
            spread = f"{min(own):.4f}-{max(own):.4f}"
            print(
                f"| {name} | {entries} | {method} | {statistics.mean(own):.4f} | {spread} | "
                f"{other} {statistics.mean(others):.4f} | {statistics.mean(updates):.0f} | "
                f"{statistics.mean(seconds):.0f} |",
                flush=True,
            )
        print(f"\n<!-- {name}: {len(teaching)} rows teach; collecting took {collecting:.0f} CPU s -->", flush=True)


if __name__ == "__main__":
    main()
