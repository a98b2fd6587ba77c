"""Greedy search with drafts from the memory beside the same without, and beside the model alone, on a CPU.

    python benchmarks/drafting.py STORE=DOMAIN ... [--batches 1 2 4 8] [--segments 64] [--lines 200] [--rounds 3]
        [--other DOMAIN] [--threads 1]

Each store is asked with the first development lines of its domain, or of another that its memory does not know.
Systems take turns within every round; time is CPU time with one thread, wall-clock time with more; ratios are those of
medians. Translations with and without drafts are compared, token for token. Text comes from KNNMT_DATA (default
../shared).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

import harm
from knnmt.config import DecodingConfig
from knnmt.decoding.drafted import drafted_search
from knnmt.decoding.greedy import greedy_search
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.precision import cpu_name
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.translator.translator import Translator

Sources = Sequence[Sequence[int]]


def decode(
    translator: Translator, batches: list[Sources], config: DecodingConfig, retrieval: Retrieval | None, drafts: bool
) -> tuple[list[Hypothesis], Statistics]:
    """The translations of all batches, and what came of drafts."""
    counted, found = Statistics(), []
    for sources in batches:
        ways = None if retrieval is None else BatchRetrieval([retrieval] * len(sources), counted)
        if drafts:
            assert ways is not None
            steps = ways.in_turn()
            assert steps is not None, "a store with keys in float16 and compiled code"
            found += drafted_search(translator.engine, sources, config, ways, steps)
        else:
            found += greedy_search(translator.engine, sources, config, ways)
    return [each[0] for each in found], counted


def differences(plain: Sequence[Hypothesis], drafted: Sequence[Hypothesis]) -> tuple[int, float]:
    """How many translations have other tokens, and the largest difference of the others' scores."""
    others = sum(one.tokens != other.tokens for one, other in zip(plain, drafted, strict=True))
    same = [(one, other) for one, other in zip(plain, drafted, strict=True) if one.tokens == other.tokens]
    return others, max((abs(one.score - other.score) for one, other in same), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--segments", type=int, default=64)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--other")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    translator = Translator(device="cpu", threads=given.threads)
    clock = time.process_time if given.threads == 1 else time.perf_counter
    config = replace(translator.engine.generation, beam=1, n_best=1)
    print(f"{cpu_name()}, {given.threads} threads, {given.segments} segments, {given.lines} lines\n")
    columns = ["store", "text", "batch", "no drafts", "with drafts", "drafts to none", "tokens a pass", "accepted"]
    columns += ["other tokens", "scores apart"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for named in given.stores:
        place, _, domain = named.partition("=")
        retrieval = translator.retrieval(datastore=place, segments=given.segments)
        texts = [pair.source for pair in harm.spread(harm.read(given.other or domain, "dev"), given.lines)]
        sources = sorted(translator.engine.tokenizer.encode_sources(texts), key=len)
        for size in given.batches:
            batches: list[Sources] = [sources[first : first + size] for first in range(0, len(sources), size)]
            asked = {"alone": (None, False), "plain": (retrieval, False), "drafted": (retrieval, True)}
            speeds: dict[str, list[float]] = {name: [] for name in asked}
            found = {}
            for _ in range(given.rounds):
                for name, way in asked.items():
                    began = clock()
                    found[name] = decode(translator, batches, config, *way)
                    tokens = sum(len(each.tokens) for each in found[name][0])
                    speeds[name].append(tokens / (clock() - began))
            alone, plain, drafted = (statistics.median(each) for each in speeds.values())
            counted = found["drafted"][1]
            rows = counted.rows
            passes = rows - counted.accepted
            other, apart = differences(found["plain"][0], found["drafted"][0])
            print(
                f"| {domain} | {given.other or domain} | {size} | {plain / alone:.2f} | {drafted / alone:.2f} | "
                f"{drafted / plain:.2f} | {rows / passes:.2f} | {counted.accepted / max(counted.drafted, 1):.0%} | "
                f"{other} | {apart:.1e} |",
                flush=True,
            )


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
