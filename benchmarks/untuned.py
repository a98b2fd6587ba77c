"""Constants of a store's estimated settings, which `knnmt build` uses as they are: other values on new text.

    python benchmarks/untuned.py DIRECTORY [--models de-en en-de] [--pairs 2000] [--lines 200] [--constants T λ]
    python benchmarks/untuned.py --lengths

For each model and each of four domains, DIRECTORY gets a store of that many training pairs, spread over all. Text of
dev is forced through the model: up to `--lines` pairs of each half of the store's own domain, a quarter as many of each
other domain, and half as many pairs of the store itself, in int8, whose states differ from the stored ones. Then one
constant at a time takes another value, the settings are estimated again, and their loss is compared with that of the
present value. The table has means over the four stores in thousandths of a nat per token, with half of the 95% interval
of 1,000 bootstrap resamples of sentences; below 0 is better.

Before that, it shows how far the states of each text are from their nearest entries, relative to the keys' median
length. DIRECTORY also keeps the forced passes. Text comes from KNNMT_DATA (default ../shared).

--lengths: the percentage of translations of dev that are called very short, by a fixed part of the source's length and
by the shortest 0.5% of 10,000 training pairs: of the references, which are right, and of their first halves.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt import Translator
from knnmt.adapting.development import Development, search_text
from knnmt.calibration import estimates as calibration
from knnmt.calibration.held_out import HeldOutQueries, sample
from knnmt.calibration.likelihood import so_far
from knnmt.config import RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import halves, spread
from knnmt.datastore.overlap import unseen
from knnmt.datastore.store import Datastore
from knnmt.index.base import SearchResult
from knnmt.protection.content import MIN_BYTES, text_length
from knnmt.retrieval import open_store
from knnmt.retrieval.combiner import DistanceCombiner
from knnmt.retrieval.neighbours import Neighbours
from knnmt_lab.scripts import argument_parser, directed, print_header, print_row, read_domain

DOMAINS = ("business", "it", "law", "medical")
TEXTS = ("own, choosing", "own, reported", "other, choosing", "other, reported", "stored, int8")
RESAMPLES = 1000
MAX_K = 32
PACKAGES = {"estimates": "calibration", "likelihood": "calibration"}  # the others are in retrieval
# "T" and "λ" stand for the estimates themselves, times a factor.
TRIED: dict[str, tuple[Any, ...]] = {
    "T": (0.5, 0.7, 1.4, 2.0),
    "λ": (0.8, 0.9, 1.04),
    "estimates.DEFAULT_K": (4, 16, 32),
    "estimates._TEMPERATURES": ((0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.5, 4.0, 8.0),),
    "likelihood._MOST_WEIGHTS": ((0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98),),
    "likelihood._SCALES": ((0.2, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2.2, 2.8),),
    "likelihood._WIDTHS": ((0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8),),
    "likelihood._KEPT_GAIN": (0.0, 1.0),
    "likelihood._USUAL_SENTENCES": (0.9, 0.99),
    "likelihood._SENTENCE_WIDTH": (0.02, 0.1, 0.15, 0.2),
    "combiner.SAME_WEIGHT": (0.9, 0.999),
    "combiner.LOG_ADVANTAGE": (5.0, 12.0),
    "open_store.UNIT_SAME_DISTANCE": (0.02, 0.03, 0.05, 0.06, 0.08, 0.1),
}


@dataclass
class Case:
    """A store, and the texts of `TEXTS` after their forced pass."""

    translator: Translator
    opened: open_store.OpenStore
    texts: Sequence[Development]

    @classmethod
    def of(cls, place: Path, domain: str, model: str, translator: Translator, pairs: int, lines: int) -> Case:
        engine = translator.engine
        if not place.exists():
            Datastore.build(place, spread(directed(read_domain(domain, "train"), model), pairs), engine)
        opened = open_store.OpenStore(Datastore.open(place), engine.device, exact=True)
        if (passed := place.with_suffix(f".{lines}.pt")).exists():
            return cls(translator, opened, torch.load(passed, weights_only=False))
        texts: list[list[SegmentPair]] = [spread(unseen(opened.datastore, half), lines) for half in dev(domain, model)]
        for half in (0, 1):
            others = (spread(dev(other, model)[half], lines // 4) for other in DOMAINS if other != domain)
            texts.append([pair for some in others for pair in some])
        found = [search_text(engine, opened, text, MAX_K) for text in texts]
        eight_bits = Translator(model, dtype="int8", settings="raw").engine
        found.append(search_text(eight_bits, opened, spread(list(opened.datastore.pairs()), lines // 2), MAX_K))
        torch.save(found, passed)
        return cls(translator, opened, found)

    @cached_property
    def held_out(self) -> tuple[HeldOutQueries, SearchResult]:
        """Entries of the store with their nearest entries in other sentences."""
        held_out = sample(self.opened.index.entries)
        return held_out, held_out.search(self.opened.index, MAX_K)

    def estimate(self) -> RetrievalConfig:
        """The settings that `knnmt build` estimates."""
        held_out, found = self.held_out
        some = found[0][:, : calibration.DEFAULT_K], found[1][:, : calibration.DEFAULT_K]
        estimated = calibration.calibrate(held_out, some, self.translator.engine)
        assert estimated is not None
        return estimated.config()

    @cached_property
    def present(self) -> RetrievalConfig:
        return self.estimate()

    def losses(self, config: RetrievalConfig, same_distance: float) -> list[NDArray[np.float64]]:
        """Of each text, (sentences, 2): the sum of the losses of a sentence's tokens, and their number."""
        combiner, found = DistanceCombiner(config, same_distance), []
        for text in self.texts:
            every, counts = text.neighbours, text.log_counts[0]
            near = Neighbours(*(each[:, : config.k] for each in (every.distances_sq, every.tokens, every.ids)))
            sentence = so_far(every.distances_sq[:, 0].sqrt(), text.sentences)
            weights, log_lambda = combiner.weigh(
                near, None if counts is None else counts[:, : config.k].exp(), sentence
            )
            knn = (weights.double().exp() * (near.tokens == text.tokens[:, None])).sum(1)
            mixed = text.base + log_lambda.double().exp() * (knn - text.base)
            columns = torch.stack([-mixed.clamp(min=1e-30).log(), torch.ones_like(mixed)], 1)
            found.append(torch.zeros(text.pairs, 2).double().index_add(0, text.sentences, columns).numpy())
        return found

    def show_states(self) -> None:
        """How far states are from their nearest entries, relative to the keys' median length."""
        unit = self.opened.snapshot.same_distance / open_store.UNIT_SAME_DISTANCE
        for name, text in zip(TEXTS, self.texts, strict=True):
            distances = text.neighbours.distances_sq[:, 0].sqrt() / unit
            quantiles = torch.quantile(distances, torch.tensor([0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999])).tolist()
            print(f"  {name:<16} 0.1% to 99.9%: {', '.join(f'{each:.3f}' for each in quantiles)}", flush=True)


def dev(domain: str, model: str) -> tuple[list[SegmentPair], list[SegmentPair]]:
    """The choosing and the reported half."""
    return halves(directed(read_domain(domain, "dev"), model))


def results(cases: Sequence[Case], constant: str, value: Any) -> list[list[NDArray[np.float64]]]:
    """The losses of each case with a value of a constant."""
    module, _, name = constant.partition(".")
    package, found = PACKAGES.get(module, "retrieval"), []
    usual = open_store.UNIT_SAME_DISTANCE
    with patch(f"knnmt.{package}.{module}.{name}", value) if name else nullcontext():
        for case in cases:
            config = case.present if package == "retrieval" else case.estimate()
            if constant == "T":
                config = replace(config, temperature=config.temperature * value)
            if constant == "λ":
                config = replace(config, interpolation_weight=min(config.interpolation_weight * value, 0.99))
            same = case.opened.snapshot.same_distance * open_store.UNIT_SAME_DISTANCE / usual
            found.append(case.losses(config, same))
    return found


def difference(now: Sequence[NDArray[np.float64]], other: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """The mean over stores of the difference in loss per token, and half of its 95% interval."""
    rng, total, drawn = np.random.default_rng(0), 0.0, np.zeros(RESAMPLES)
    for before, after in zip(now, other, strict=True):
        gain, tokens = after[:, 0] - before[:, 0], before[:, 1]
        draws = rng.integers(len(gain), size=(RESAMPLES, len(gain)))
        total += gain.sum() / tokens.sum()
        drawn += gain[draws].sum(1) / tokens[draws].sum(1)
    return 1000 * total / len(now), 1000 * 1.96 * float(drawn.std()) / len(now)


def measure(model: str, arguments: argparse.Namespace) -> None:
    translator = Translator(model, dtype="float32", settings="raw")
    cases = []
    for domain in DOMAINS:
        place = arguments.directory / f"{domain}-{model}-{arguments.pairs}"
        cases.append(Case.of(place, domain, model, translator, arguments.pairs, arguments.lines))
        print(f"{model}, {domain}: {cases[-1].present.signature()}", flush=True)
        cases[-1].show_states()
    now = results(cases, "T", 1.0)
    print_header(model, "value", *TEXTS)
    of_texts = [
        np.mean([case[number][:, 0].sum() / case[number][:, 1].sum() for case in now]) for number in range(len(TEXTS))
    ]
    print_row("loss, nats", "present", *(f"{each:.4f}" for each in of_texts))
    for constant in arguments.constants:
        for value in TRIED[constant]:
            tried = results(cases, constant, value)
            cells = []
            for number in range(len(TEXTS)):
                mean, half = difference([each[number] for each in now], [each[number] for each in tried])
                cells.append(f"{mean:+.1f} ± {half:.1f}{' *' if abs(mean) > half else ''}")
            print_row(constant, value, *cells)


def ratios(pairs: Sequence[SegmentPair], words: float = 1.0) -> NDArray[np.float64]:
    """The length of the target, of which only this part of the words counts, by that of the source."""
    found = []
    for pair in pairs:
        if (size := text_length(pair.source)) >= MIN_BYTES:
            target = pair.target.split()
            found.append(text_length(" ".join(target[: round(words * len(target))])) / size)
    return np.array(found)


def measure_lengths(model: str) -> None:
    """The mean over the domains of the percentage that is called very short."""
    kinds = [f"{text}, {half}" for text in ("right", "halved") for half in ("choosing", "reported")]
    print_header(f"very short: {model}", *kinds)
    own = [
        float(np.quantile(ratios(spread(directed(read_domain(domain, "train"), model), 10_000)), 0.005))
        for domain in DOMAINS
    ]
    for limits in (*([each] * len(DOMAINS) for each in (0.2, 0.25, 0.3, 0.35, 0.4, 0.45)), own):
        cells = []
        for words, half in product((1.0, 0.5), (0, 1)):
            texts = [ratios(dev(domain, model)[half], words) for domain in DOMAINS]
            cells.append(100 * np.mean([(each < limit).mean() for each, limit in zip(texts, limits, strict=True)]))
        name = ", ".join(f"{limit:.2f}" for limit in dict.fromkeys(limits))
        print_row(name, *(f"{each:.2f}" for each in cells))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path())
    parser.add_argument("--lengths", action="store_true")
    parser.add_argument("--models", nargs="+", default=["de-en", "en-de"])
    parser.add_argument("--constants", nargs="+", choices=list(TRIED), default=list(TRIED))
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.lengths:
        for model in arguments.models:
            measure_lengths(model)
        return
    torch.set_num_threads(arguments.threads)
    arguments.directory.mkdir(parents=True, exist_ok=True)
    for model in arguments.models:
        measure(model, arguments)


if __name__ == "__main__":
    main()
