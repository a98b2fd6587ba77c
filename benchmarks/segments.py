"""The gain of a store by how much of a source its chosen segments cover.

    python benchmarks/segments.py [--pairs 15000] [--segments 128] [--lines 400] [--domains it] [--device cuda]

For each domain, a store of `--pairs` training pairs is built (0 for all). Printed: the gain by coverage in text of its
own domain and of others; and the best factor of λ that rises with coverage, chosen on one half of the development text,
with its loss on the other half. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

import torch
from torch import Tensor

from harm import build
from knnmt.adapting.development import search_text
from knnmt.adapting.tuning_by_likelihood import tune_positions
from knnmt.calibration.likelihood import Positions, so_far
from knnmt.config import RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import halves, spread
from knnmt.datastore.overlap import overlap
from knnmt.retrieval.combiner import log_fading
from knnmt.retrieval.open_store import OpenStore
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import DOMAINS, argument_parser, read_domain


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
                best = tune_positions(first.positions, scope=segments).fading.fading
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
        found = search_text(translator.engine, opened, pairs, scope=segments)
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


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--domains", nargs="+", default=DOMAINS)
    parser.add_argument("--pairs", type=int, default=15_000)
    parser.add_argument("--segments", type=int, nargs="+", default=[128])
    parser.add_argument("--lines", type=int, default=400)
    parser.add_argument("--device")
    show_coverage(parser.parse_args())


if __name__ == "__main__":
    main()
