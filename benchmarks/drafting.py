"""Greedy search with drafts from the memory beside the same without, and beside the model alone.

    python benchmarks/drafting.py STORE=DOMAIN[:TEXT] ... [--device cuda] [--dtype float32] [--batches 1 2 4 8]
        [--segments 64] [--lines 200 ...] [--rounds 3] [--threads 1] [--pairs 0] [--turns]

A store that is not there is built first, of so many training pairs of its domain (--pairs, 0 for all). Each store is
asked with development lines of its domain, or of another, TEXT, that its memory does not know. --lines: how many, of
each size of batch if there are several numbers. Systems take turns within every round, after one that does not count;
time is CPU time with one thread of a CPU, else wall-clock time; ratios are those of medians. --rounds 0 compares and
measures nothing.

Translations with and without drafts are compared, token for token. Where they differ, the difference of the two best at
that step is shown; and on a GPU the largest difference of a token's log-probability between steps of one token and of
eight, of all tokens of these sentences. A tie is no further apart than that, or than 1e-4.

--turns: on a GPU, how long a step takes and how many tokens it brings for each number of tokens that a step may compute
together. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
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


def apart(
    translator: Translator, sources: Sources, config: DecodingConfig, asked: Retrieval, said: Sources
) -> list[float]:
    """The difference of the two best tokens of plain greedy search after what was said of each sentence."""
    batch = Batch(translator.engine, sources, config, BatchRetrieval([asked] * len(sources)))
    ends = [len(each) for each in said]
    found: dict[int, float] = {}
    with torch.inference_mode():
        for length in range(max(ends) + 1):
            scores, log_probabilities = batch.step()
            two_best = log_probabilities[:, 0].topk(2).values
            for row in (row for row in range(len(sources)) if ends[row] == length):
                found[row] = float(two_best[row, 0] - two_best[row, 1])
            following = [each[length] if length < len(each) else each[-1] if each else 0 for each in said]
            tokens = torch.tensor(following, device=scores.device)[:, None]
            batch.follow(torch.zeros_like(tokens), tokens, scores)
    return [found[row] for row in range(len(sources))]


def gains(
    translator: Translator, batches: list[Sources], config: DecodingConfig, asked: Retrieval, turns: int
) -> list[list[tuple[int, float]]]:
    """Tokens of each sentence with their log-probabilities, from recorded steps that all compute so many tokens."""
    seen: dict[int, list[list[tuple[int, float]]]] = {}
    look_at = recorded_drafts._DraftedBatch._look_at

    def noting(batch: Any, chosen: Any, count: int) -> None:
        mine = seen.setdefault(id(batch._tokens), [[] for _ in batch._tokens])
        found = chosen[:, 3 + count : 3 + 2 * count].view(np.float32)
        for row in np.flatnonzero(batch._source_of >= 0):
            taken = range(chosen[row, 0])
            mine[batch._source_of[row]] += [(int(chosen[row, 3 + turn]), float(found[row, turn])) for turn in taken]
        look_at(batch, chosen, count)

    every = []
    with (
        mock.patch.object(recorded_drafts._DraftedBatch, "_look_at", noting),
        mock.patch.object(recorded_drafts, "turns_for", return_value=turns),
    ):
        for sources in batches:
            seen.clear()
            decode(translator, [sources], config, asked, drafts=True)
            every += next(iter(seen.values()))
    return every


def between_shapes(translator: Translator, batches: list[Sources], config: DecodingConfig, asked: Retrieval) -> float:
    """The largest difference of a token's log-probability after the same tokens between steps of one token and of 8."""
    one, several = (gains(translator, batches, config, asked, turns) for turns in (1, 8))
    differences = [0.0]
    for mine, its in zip(one, several, strict=True):
        same = takewhile(lambda both: both[0][0] == both[1][0], zip(mine, its, strict=False))
        differences += [abs(this[1] - that[1]) for this, that in same]
    return max(differences)


def compare(
    translator: Translator,
    sources: Sources,
    config: DecodingConfig,
    asked: Retrieval,
    plain: Sequence[Hypothesis],
    drafted: Sequence[Hypothesis],
) -> tuple[list[float], float]:
    """How far apart a step's two best were where the tokens differ, and the largest difference of the other
    translations' scores.
    """
    scores = [0.0]
    others, said = [], []
    for source, one, other in zip(sources, plain, drafted, strict=True):
        if one.tokens == other.tokens:
            scores.append(abs(one.score - other.score))
        else:
            pairs = zip(one.tokens, other.tokens, strict=False)
            at = next((place for place, (mine, its) in enumerate(pairs) if mine != its), 0)
            others.append(source)
            said.append(one.tokens[:at])
    return apart(translator, others, config, asked, said) if others else [], max(scores)


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


def measure(
    translator: Translator,
    batches: list[Sources],
    config: DecodingConfig,
    retrieval: Retrieval,
    rounds: int,
    clock: Callable[[], float],
) -> None:
    """The rest of a row of the table: speeds, what came of drafts, and what they changed."""
    asked = {"alone": (None, False), "plain": (retrieval, False), "drafted": (retrieval, True)}
    if not rounds:
        del asked["alone"]
    speeds: dict[str, list[float]] = {name: [] for name in ("alone", "plain", "drafted")}
    found = {}
    for turn in range(rounds + 1):
        for name, way in asked.items():
            started = clock()
            found[name] = decode(translator, batches, config, *way)
            tokens = sum(len(each.tokens) for each in found[name][0])
            if turn:
                speeds[name].append(tokens / (clock() - started))
    if rounds:
        alone, plain, drafted = (statistics.median(each) for each in speeds.values())
        print(f"{alone:,.0f} | {plain / alone:.2f} | {drafted / alone:.2f} | {drafted / plain:.2f}", end="")
    else:
        print(" | ".join("-" * 4), end="")
    counted = found["drafted"][1]
    accepted = counted.accepted / max(counted.drafted, 1)
    print(f" | {counted.tokens_a_pass:.2f} | {accepted:.0%} | ", end="", flush=True)
    sources = [source for batch in batches for source in batch]
    ties, scores = compare(translator, sources, config, retrieval, found["plain"][0], found["drafted"][0])
    shapes = TIE
    if ties and translator.engine.device.type == "cuda":
        shapes = max(TIE, between_shapes(translator, batches, config, retrieval))
    print(f"{len(ties)} | {sum(tie > shapes for tie in ties)} | {scores:.1e} |", flush=True)
    if ties:
        shown = ", ".join(f"{tie:.1e}" for tie in sorted(ties))
        print(f"  apart at the first other token: {shown}; between shapes: {shapes:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--segments", type=int, default=64)
    parser.add_argument("--lines", type=int, nargs="+", default=[200])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="1 on a CPU unless said; beside a GPU as many as there are")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--turns", action="store_true")
    given = parser.parse_args()
    if given.device == "cpu" and given.threads is None:
        given.threads = 1
    lines = given.lines * len(given.batches) if len(given.lines) == 1 else given.lines
    began = time.perf_counter()
    translator = Translator(
        device=given.device, threads=given.threads, **({"dtype": given.dtype} if given.dtype else {})
    )
    engine = translator.engine
    cuda = engine.device.type == "cuda"
    clock = time.process_time if given.threads == 1 and not cuda else time.perf_counter
    config = replace(engine.generation, beam=1, n_best=1)
    where = torch.cuda.get_device_name() if cuda else f"{cpu_name()}, {given.threads} threads"
    print(f"{where}, {engine.computes_in}, {given.segments} segments", flush=True)
    columns = ["store", "text", "lines", "batch", "model alone, tokens a second", "no drafts", "with drafts"]
    columns += ["drafts to none", "tokens a pass", "accepted", "other tokens", "of them no ties", "scores apart"]
    for number, named in enumerate(given.stores):
        place, _, asked_for = named.partition("=")
        domain, _, text = asked_for.partition(":")
        if not Path(place).exists():
            harm.build(Path(place), domain, given.pairs, translator)
        retrieval = translator.retrieval(datastore=place, segments=given.segments)
        assert retrieval is not None
        if not number:
            print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
        pairs = harm.read(text or domain, "dev")
        for size, count in zip(given.batches, lines, strict=True):
            texts = [pair.source for pair in harm.spread(pairs, count)]
            sources = sorted(engine.tokenizer.encode_sources(texts), key=len)
            batches: list[Sources] = [sources[first : first + size] for first in range(0, len(sources), size)]
            print(f"| {domain} | {text or domain} | {len(sources)} | {size} | ", end="", flush=True)
            measure(translator, batches, config, retrieval, given.rounds, clock)
            if given.turns and cuda:
                by_turns(translator, batches, config, retrieval)
    print(f"{time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
