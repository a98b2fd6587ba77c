"""The form of `robust-fading` chosen on development text that is never reported.

    python benchmarks/combiner_forms.py [--domain it] [--pairs 4000] [--seeds 1] [--device cuda]

A store of `--pairs` training pairs of a domain. The half of the development text that is not reported is divided again:
three fifths teach, one fifth decides when to stop, and one fifth is judged. Text of other kinds is the same half of the
other domains (`--others` pairs of each). Printed: nats a token of the judged fifth, how much less likely other text
becomes than by the model alone, and the CPU seconds of a training. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from finetune import memory_of
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import halves, spread
from knnmt.datastore.store import Datastore
from knnmt.retrieval.combiner import log_fading
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.trained.networks import NETWORKS, FadingRobust, Robust
from knnmt.translator.translator import Translator
from knnmt_lab.combiner_rows import CombinerRows, collect_rows
from knnmt_lab.combiner_training import CombinerConfig, best_fading, train_combiner
from knnmt_lab.scripts import DOMAINS, argument_parser, print_header, print_row, read_domain

NEIGHBOURS = 32


class WholeFactor(FadingRobust):
    factor = staticmethod(log_fading)
    caution = 1.0


class Uncautious(FadingRobust):
    caution = 1.0


FORMS = (
    ("robust, k 8", Robust, 8),
    ("times the whole factor, k 16", WholeFactor, 16),
    ("times the sentence's factor, k 16", Uncautious, 16),
    ("the same at 0.95 of its distance, k 8", FadingRobust, 8),
    ("the same at 0.95 of its distance, k 16", FadingRobust, 16),
    ("the same at 0.95 of its distance, k 32", FadingRobust, 32),
)


def fifths(pairs: Sequence[SegmentPair]) -> tuple[list[SegmentPair], ...]:
    """Three fifths to teach, one to stop by, and one to judge."""
    return [pair for place, pair in enumerate(pairs) if place % 5 > 1], list(pairs[1::5]), list(pairs[::5])


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--domain", default="it")
    parser.add_argument("--pairs", type=int, default=4000, help="of the store; 0 for all")
    parser.add_argument("--teaching", type=int, default=1000, help="pairs of the half, at most")
    parser.add_argument("--others", type=int, default=70)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--updates", type=int, default=5000, help="at most")
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    translator = Translator(device=given.device, threads=given.threads, dtype="float32", settings="raw")
    others = [each for each in DOMAINS if each != given.domain]
    with tempfile.TemporaryDirectory() as scratch:
        store = Datastore.build(Path(scratch) / "store", memory_of(given.domain, given.pairs), translator.engine)
        opened = OpenStore(store, translator.engine.device, exact=True)

        def rows(pairs: Sequence[SegmentPair]) -> CombinerRows:
            return collect_rows(translator.engine, opened, pairs, NEIGHBOURS, None)

        parts = fifths(spread(halves(read_domain(given.domain, "dev"))[0], given.teaching))
        teaching, stopping, judged = map(rows, parts)
        elsewhere = [rows(spread(halves(read_domain(each, "dev"))[0], given.others)) for each in others]
        fading = best_fading(teaching, None)
        alone = [each.positions().loss(None) for each in (judged, *elsewhere)]
        faded = [each.positions().loss(fading) for each in (judged, *elsewhere)]
        print_header(f"{given.domain}, {given.pairs:,} pairs", "own text", f"text of {', '.join(others)}", "CPU s")
        print_row("the model alone", f"{alone[0]:.4f}", "", "")
        print_row(f"λ that fades, k {fading.k}", f"{faded[0]:.4f}", _harm(faded, alone), "")
        for label, network, k in FORMS:
            began, found = time.process_time(), []
            method = "robust" if network is Robust else "robust-fading"
            NETWORKS[method] = network  # the forms differ in nothing else
            for seed in range(1, given.seeds + 1):
                config = CombinerConfig(method, updates=given.updates, seed=seed)
                trained = train_combiner(opened, teaching, stopping, replace(fading, k=k), fading, config)
                found.append([trained.losses(each)["trained"] for each in (judged, *elsewhere)])
            means = [fmean(each) for each in zip(*found, strict=True)]
            seconds = (time.process_time() - began) / given.seeds
            print_row(label, f"{means[0]:.4f}", _harm(means, alone), f"{seconds:.0f}")


def _harm(losses: Sequence[float], alone: Sequence[float]) -> str:
    return ", ".join(f"{one - other:+.3f}" for one, other in zip(losses[1:], alone[1:], strict=True))


if __name__ == "__main__":
    main()
