"""Retrieval by segment beside search of the whole store: likelihood and BLEU.

    python benchmarks/segments.py [--pairs 0] [--segments 64 128] [--lines 1000] [--device cuda] [--hypotheses FILE]
    python benchmarks/segments.py --score FILE
    python benchmarks/segments.py --coverage [--pairs 15000] [--segments 128] [--lines 400] [--domains it]

For each of the four domains, a store of `--pairs` training pairs is built (0 for all). One half of the development text
tunes k, T and λ of each way by likelihood; `--lines` lines of the other half are translated, beam 5. The first way is
exact search of the whole store. BLEU is from sacrebleu, with a paired bootstrap against the first way; if it is not
installed, write the translations to a file and score them elsewhere. The choice of `knnmt tune` is printed as well.

With `--coverage`: the gain of the memory by how much of a source is covered, in text of its own domain and of others;
and the best factor of λ that rises with coverage, chosen on one half of the text, with its loss on the other half.
Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harm import build
from knnmt.config import RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import halves, spread
from knnmt.datastore.overlap import overlap
from knnmt.fitting.development import pass_over, search_text
from knnmt.fitting.likelihood import Positions, so_far
from knnmt.fitting.search_choice import choose_search
from knnmt.fitting.tuning import tune_positions
from knnmt.retrieval.combiner import log_fading
from knnmt.retrieval.open_store import OpenStore
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import DOMAINS, argument_parser, read_domain

TUNING = 500  # pairs


def translate_all(arguments: argparse.Namespace) -> dict[str, Any]:
    translator = Translator(device=arguments.device, dtype="float32", exact=True, settings="raw")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for domain in arguments.domains:
            place = Path(scratch) / domain
            build(place, domain, arguments.pairs, translator)
            opened = translator.memories.open(place).opened
            first, second = (overlap(opened.datastore, half).new for half in halves(read_domain(domain, "dev")))
            tuning, lines = spread(first, TUNING), second[: arguments.lines]
            found[f"{domain}|reference"] = [pair.target for pair in lines]
            choice = choose_search(translator.engine, opened, pass_over(translator.engine, opened, tuning))
            print(f"{domain}: search {choice.in_words if choice else 'of the whole store: it is small'}", flush=True)
            for segments in (None, *arguments.segments):
                name = "whole" if segments is None else f"{segments} segments"
                positions = search_text(translator.engine, opened, tuning, way=segments).positions()
                best = tune_positions(positions, way=segments).fading
                held = search_text(translator.engine, opened, spread(lines, TUNING), way=segments).positions()
                started = time.perf_counter()
                results = translator.translate(
                    [pair.source for pair in lines],
                    batch_size=100,
                    max_tokens=200,
                    datastore=place,
                    profile=best.fading,
                )
                seconds = time.perf_counter() - started
                found[f"{domain}|{name}"] = [each.text for each in results]
                print(
                    f"{domain}, {name}: loss {held.loss(best.fading):.4f} (alone {held.loss(None):.4f}); k {best.k}, T "
                    f"{best.fading.temperature:.3g}, λ to {best.fading.interpolation_weight:g}; {seconds:.0f} s",
                    flush=True,
                )
                if arguments.hypotheses:
                    arguments.hypotheses.write_text(json.dumps(found), encoding="utf-8")
            translator.memories.close(place)
    return found


def show_coverage(arguments: argparse.Namespace) -> None:
    translator = Translator(device=arguments.device, dtype="float32", exact=True, settings="raw")
    with tempfile.TemporaryDirectory() as scratch:
        for domain in arguments.domains:
            place = Path(scratch) / domain
            build(place, domain, arguments.pairs, translator)
            opened = translator.memories.open(place).opened
            own = [
                spread(overlap(opened.datastore, half).new, arguments.lines)
                for half in halves(read_domain(domain, "dev"))
            ]
            others = {
                each: spread(read_domain(each, "dev"), arguments.lines // 4) for each in DOMAINS if each != domain
            }
            for segments in arguments.segments:
                first, second = (Covered.of(translator, opened, pairs, segments) for pairs in own)
                best = tune_positions(first.positions, way=segments).fading.fading
                print(f"{domain}, {segments} segments: {first.loss(best):.4f} tuning, {second.loss(best):.4f} reported")
                tried = product((-0.2, 0.0, 0.05, 0.1, 0.2, 0.3, 0.4), (0.02, 0.05, 0.1, 0.2, 0.4))
                factor = min(tried, key=lambda each: first.loss(best, each))
                found = ", ".join(f"{each.loss(best, factor):.4f}" for each in (first, second))
                print(f"  λ times sigmoid((covered - {factor[0]}) / {factor[1]}): {found}")
                second.show(domain, best)
                for name, pairs in others.items():
                    Covered.of(translator, opened, pairs, segments).show(name, best)
            translator.memories.close(place)


@dataclass(frozen=True)
class Covered:
    """Text with its neighbours by segment, and how much of each position's source is covered."""

    positions: Positions
    covered: Tensor

    @classmethod
    def of(cls, translator: Translator, opened: OpenStore, pairs: Sequence[SegmentPair], segments: int) -> Covered:
        found = search_text(translator.engine, opened, pairs, way=segments)
        chosen = opened.snapshot.choose_segments(found.sources, segments)
        covered = torch.tensor([each.covered for each in chosen.coverage])
        return cls(found.positions(), covered[found.sentences])

    def losses(self, config: RetrievalConfig, factor: tuple[float, float] | None = None) -> Tensor:
        """The loss of each position; with a factor (middle, width), λ falls where less is covered."""
        positions, nearest = self.positions, self.positions.nearest
        assert config.fading is not None
        fading = log_fading(config.fading, nearest, so_far(nearest, positions.sentences)).exp()
        weight = fading.masked_fill(nearest.isinf(), 0) * config.interpolation_weight
        if factor is not None:
            weight = weight * torch.sigmoid((self.covered - factor[0]) / factor[1])
        knn = positions.first(config.k).knn(config.squared_temperature)
        return -(positions.base + weight * (knn - positions.base)).clamp(min=1e-30).log()

    def loss(self, config: RetrievalConfig, factor: tuple[float, float] | None = None) -> float:
        return float(self.losses(config, factor).mean())

    def show(self, name: str, config: RetrievalConfig) -> None:
        alone, mixed = -self.positions.base.log(), self.losses(config)
        print(f"  text of {name}: alone {alone.mean():.4f}, with the store {mixed.mean():.4f}")
        bounds = [0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.01]
        for low, high in pairwise(bounds):
            here = (self.covered >= low) & (self.covered < high)
            if bool(here.any()):
                told = f"{int(here.sum()):6,} positions, {alone[here].mean():.3f} alone, {mixed[here].mean():.3f} with"
                print(f"    {low:.1f} to {high:.1f} covered: {told}")


def score(found: dict[str, Any]) -> None:
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    for domain in DOMAINS:
        names = [name for name in found if name.startswith(f"{domain}|") and not name.endswith("|reference")]
        if not names:
            continue
        systems = [(name.partition("|")[2], found[name]) for name in names]
        references = [found[f"{domain}|reference"]]
        for (name, _), (_, text) in zip(systems, [(each, found[each]) for each in names], strict=True):
            print(f"{domain:8} {name:14} BLEU {BLEU().corpus_score(text, references).score:.2f}")
        test = PairedTest(systems, {"BLEU": BLEU(references=references)}, None, test_type="bs", n_samples=1000)
        for name, results in zip([name for name, _ in systems], test()[1]["BLEU"], strict=True):
            print(f"{domain:8} {name:14} {results}")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--domains", nargs="+", default=DOMAINS)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--segments", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--device")
    parser.add_argument("--hypotheses", type=Path)
    parser.add_argument("--score", type=Path)
    parser.add_argument("--coverage", action="store_true")
    arguments = parser.parse_args()
    if arguments.score:
        score(json.loads(arguments.score.read_text(encoding="utf-8")))
        return
    if arguments.coverage:
        show_coverage(arguments)
        return
    found = translate_all(arguments)
    if not arguments.hypotheses:
        score(found)


if __name__ == "__main__":
    main()
