"""Greedy search with drafts from the memory beside the same without, and beside the model alone.

    python benchmarks/drafting.py STORE=DOMAIN ... [--device cuda] [--dtype float32] [--batches 1 2 4 8] [--segments 64]
        [--lines 200] [--rounds 3] [--other DOMAIN] [--threads 1] [--pairs 0] [--turns]

A store that is not there is built first, of so many training pairs of its domain (--pairs, 0 for all). Each store is
asked with development lines of its domain, or of another that its memory does not know. Systems take turns within every
round, after one that does not count; time is CPU time with one thread of a CPU, else wall-clock time; ratios are those
of medians. Translations with and without drafts are compared, token for token. Where they differ, the difference of the
two best at that step is shown: it is small where computing in another shape may decide between them.
--rounds 0 compares and measures nothing.

--turns: on a GPU, how long a step takes and how many tokens it brings for each number of tokens that a step may compute
together. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

import harm
from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding import recorded_drafts, search
from knnmt.decoding.batch import Batch
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.precision import cpu_name
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.translator.translator import Translator

Sources = Sequence[Sequence[int]]
TIE = 1e-4  # two tokens whose log-probabilities are nearer may come out either way


def decode(
    translator: Translator, batches: list[Sources], config: DecodingConfig, retrieval: Retrieval | None, drafts: bool
) -> tuple[list[Hypothesis], Statistics]:
    """The translations of all batches, and what came of drafts."""
    counted = Statistics()
    before = search.MAX_DRAFTED
    search.MAX_DRAFTED = {"cpu": 1000, "cuda": 1000} if drafts else {}
    try:
        asked = (
            (sources, None if retrieval is None else BatchRetrieval([retrieval] * len(sources), counted))
            for sources in batches
        )
        found = [each for every in search.search_each(translator.engine, asked, config) for each in every]
    finally:
        search.MAX_DRAFTED = before
    return [each[0] for each in found], counted


def apart(translator: Translator, source: Sequence[int], config: DecodingConfig, asked: Retrieval, at: int) -> float:
    """The difference of the two best tokens of plain greedy search after so many tokens of a sentence."""
    batch = Batch(translator.engine, [source], config, BatchRetrieval([asked]))
    with torch.inference_mode():
        for _ in range(at):
            scores, log_probabilities = batch.step()
            best, tokens = log_probabilities.max(-1)
            batch.follow(torch.zeros_like(tokens), tokens, scores + best)
        first, second = batch.step()[1].flatten().topk(2).values.tolist()
    return float(first - second)


def compare(
    translator: Translator,
    sources: Sources,
    config: DecodingConfig,
    asked: Retrieval,
    plain: Sequence[Hypothesis],
    drafted: Sequence[Hypothesis],
) -> tuple[list[float], float]:
    """Of the translations with other tokens how far apart the step's two best were; the others' largest difference."""
    ties, scores = [], [0.0]
    for source, one, other in zip(sources, plain, drafted, strict=True):
        if one.tokens == other.tokens:
            scores.append(abs(one.score - other.score))
        else:
            pairs = zip(one.tokens, other.tokens, strict=False)
            at = next((place for place, (mine, its) in enumerate(pairs) if mine != its), 0)
            ties.append(apart(translator, source, config, asked, at))
    return ties, max(scores)


def by_turns(translator: Translator, batches: list[Sources], config: DecodingConfig, retrieval: Retrieval) -> None:
    """For each number of tokens that a step may compute together: ms a step, tokens a step, tokens a second."""
    chosen = recorded_drafts.turns_for
    for turns in recorded_drafts.TURNS:
        recorded_drafts.turns_for = lambda *_, turns=turns: turns
        for _ in range(2):  # the first records
            began = time.perf_counter()
            with timing.record() as timings:
                found, _ = decode(translator, batches, config, retrieval, drafts=True)
            seconds = time.perf_counter() - began
        tokens, steps = sum(len(each.tokens) for each in found), timings.entries["step"]
        print(
            f"  batch {len(batches[0])}, {turns} turns: {1000 * seconds / steps:.3f} ms a step, "
            f"{tokens / steps:.2f} tokens a step, {tokens / seconds:,.0f} tokens a second",
            flush=True,
        )
    recorded_drafts.turns_for = chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--segments", type=int, default=64)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--other")
    parser.add_argument("--threads", type=int, help="1 on a CPU unless said; beside a GPU as many as there are")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--turns", action="store_true")
    given = parser.parse_args()
    translator = Translator(
        device=given.device, threads=given.threads, **({"dtype": given.dtype} if given.dtype else {})
    )
    engine = translator.engine
    cuda = engine.device.type == "cuda"
    clock = time.process_time if given.threads == 1 and not cuda else time.perf_counter
    config = replace(engine.generation, beam=1, n_best=1)
    where = torch.cuda.get_device_name() if cuda else f"{cpu_name()}, {given.threads} threads"
    print(f"{where}, {engine.computes_in}, {given.segments} segments, {given.lines} lines\n")
    columns = ["store", "text", "batch", "no drafts", "with drafts", "drafts to none", "tokens a pass", "accepted"]
    columns += ["other tokens", "of them no ties", "scores apart"]
    for named in given.stores:
        place, _, domain = named.partition("=")
        if not Path(place).exists():
            harm.build(Path(place), domain, given.pairs, translator)
        retrieval = translator.retrieval(datastore=place, segments=given.segments)
        assert retrieval is not None
        texts = [pair.source for pair in harm.spread(harm.read(given.other or domain, "dev"), given.lines)]
        sources = sorted(engine.tokenizer.encode_sources(texts), key=len)
        print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        for size in given.batches:
            batches: list[Sources] = [sources[first : first + size] for first in range(0, len(sources), size)]
            asked = {"alone": (None, False), "plain": (retrieval, False), "drafted": (retrieval, True)}
            if not given.rounds:
                del asked["alone"]
            speeds: dict[str, list[float]] = {name: [] for name in ("alone", "plain", "drafted")}
            found = {}
            for number in range(given.rounds + 1):
                for name, way in asked.items():
                    began = clock()
                    found[name] = decode(translator, batches, config, *way)
                    tokens = sum(len(each.tokens) for each in found[name][0])
                    if number:
                        speeds[name].append(tokens / (clock() - began))
            alone, plain, drafted = (statistics.median(each) if each else 1.0 for each in speeds.values())
            ratios = [plain / alone, drafted / alone, drafted / plain] if given.rounds else []
            counted = found["drafted"][1]
            ties, scores = compare(translator, sources, config, retrieval, found["plain"][0], found["drafted"][0])
            print(
                f"| {domain} | {given.other or domain} | {size} | "
                f"{' | '.join(f'{each:.2f}' for each in ratios) or '- | - | -'} | {counted.tokens_a_pass:.2f} | "
                f"{counted.accepted / max(counted.drafted, 1):.0%} | {len(ties)} of {len(sources)} | "
                f"{sum(tie > TIE for tie in ties)} | {scores:.1e} |",
                flush=True,
            )
            if ties:
                print("  apart at the first other token:", ", ".join(f"{tie:.1e}" for tie in sorted(ties)), flush=True)
            if given.turns and cuda:
                by_turns(translator, batches, config, retrieval)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
