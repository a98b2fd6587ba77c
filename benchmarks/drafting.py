"""Greedy search with drafts from the memory beside greedy search without drafts, and beside the model alone.

    python benchmarks/drafting.py STORE=DOMAIN[:TEXT] ... [--device cuda] [--dtype float32] [--batches 1 2 4 8]
        [--segments 64] [--lines 200 ...] [--rounds 3] [--warm-up 1] [--threads 1] [--pairs 0] [--turns]
        [--split train]

A store that does not exist is built first, from --pairs training pairs of its domain (0 for all). It translates
development lines of its domain, or of another one, TEXT, that its memory does not know; with --split train, lines that
the memory holds. --lines: how many lines; with several numbers, one for each batch size. Systems take turns within
every round, after the warm-up. Time is CPU time with one CPU thread, otherwise wall-clock time; ratios are ratios of
medians. --rounds 0 compares translations but measures no time.

Translations with and without drafts are compared token by token; `drafting_sameness.py` shows why some differ on a
GPU.

--turns: on a GPU, the time of a step for each number of tokens that a step can compute together. Text comes from
KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch

import harm
from knnmt import spread
from knnmt.config import DecodingConfig
from knnmt.decoding import recorded_drafts, recorded_policy, search
from knnmt.decoding.arena import Arenas, Recorded
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.precision import cpu_name
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import argument_parser, print_header, print_row, read_domain

Sources = Sequence[Sequence[int]]


def decode(
    translator: Translator, batches: list[Sources], config: DecodingConfig, retrieval: Retrieval | None, drafts: bool
) -> tuple[list[Hypothesis], Statistics]:
    """The translations of all batches, and the statistics of drafts."""
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


def compare(plain: Sequence[Hypothesis], drafted: Sequence[Hypothesis]) -> tuple[int, float]:
    """How many translations differ, and the largest difference between the scores of the others."""
    pairs = list(zip(plain, drafted, strict=True))
    same = [(one, other) for one, other in pairs if one.tokens == other.tokens]
    return len(pairs) - len(same), max((abs(one.score - other.score) for one, other in same), default=0.0)


def step_times(translator: Translator, batches: list[Sources], config: DecodingConfig, retrieval: Retrieval) -> None:
    """The time of recorded steps, by the number of sentences and the number of tokens of each sentence."""
    for turns in recorded_policy.TURNS:
        with mock.patch.object(recorded_drafts, "turns_for", return_value=turns):
            for _ in range(4):  # until all steps are recorded
                decode(translator, batches[:: max(1, len(batches) // 8)], config, retrieval, drafts=True)
    for arena in translator.engine.kept(Arenas).free:  # type: ignore[attr-defined]
        for key, step in arena._kept.items():
            if isinstance(step, Recorded) and step._graph is not None and key[0] == "drafted":
                _, sentences, slots, source, turns = key[:5]
                with torch.inference_mode(), arena.on_stream():
                    arena.ended.fill_(1)  # so that no sentence continues
                    arena.generated.zero_()  # the step may be shorter than the last sentences
                    took = replayed(step._graph)
                print(
                    f"  {sentences} sentences, {turns} turns, {slots} slots, {source} source: {took:.0f} µs", flush=True
                )


def replayed(graph: torch.cuda.CUDAGraph, times: int = 30) -> float:
    """Microseconds of one replay."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    graph.replay()
    first.record()
    for _ in range(times):
        graph.replay()
    last.record()
    last.synchronize()
    return 1000 * float(first.elapsed_time(last)) / times


def measure(
    translator: Translator,
    batches: list[Sources],
    config: DecodingConfig,
    retrieval: Retrieval,
    rounds: int,
    warm_up: int,
    clock: Callable[[], float],
) -> list[str]:
    """The rest of a table row: speeds, statistics of drafts, and the differences that drafts make."""
    asked = {"alone": (None, False), "plain": (retrieval, False), "drafted": (retrieval, True)}
    if not rounds:
        del asked["alone"]
    speeds: dict[str, list[float]] = {name: [] for name in ("alone", "plain", "drafted")}
    found = {}
    for turn in range(rounds + warm_up if rounds else 1):
        for name, way in asked.items():
            started = clock()
            found[name] = decode(translator, batches, config, *way)
            tokens = sum(len(each.tokens) for each in found[name][0])
            if turn >= warm_up:
                speeds[name].append(tokens / (clock() - started))
    if rounds:
        alone, plain, drafted = (statistics.median(each) for each in speeds.values())
        cells = [f"{alone:,.0f}", *(f"{each:.2f}" for each in (plain / alone, drafted / alone, drafted / plain))]
    else:
        cells = ["-"] * 4
    counted = found["drafted"][1]
    accepted = counted.accepted / max(counted.drafted, 1)
    others, scores = compare(found["plain"][0], found["drafted"][0])
    return [*cells, f"{counted.tokens_a_pass:.2f}", f"{accepted:.0%}", str(others), f"{scores:.1e}"]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--segments", type=int, default=64)
    parser.add_argument("--lines", type=int, nargs="+", default=[200])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, help="rounds before them: 4 on a GPU, which records steps, else 1")
    parser.add_argument("--threads", type=int, help="1 on a CPU unless said; beside a GPU as many as there are")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--split", choices=["dev", "train"], default="dev")
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
    warm_up = given.warm_up or (4 if cuda else 1)
    config = replace(engine.generation, beam=1, n_best=1)
    where = torch.cuda.get_device_name() if cuda else f"{cpu_name()}, {given.threads} threads"
    print(f"{where}, {engine.computes_in}, {given.segments} segments", flush=True)
    columns = ["store", "text", "lines", "batch", "model alone, tokens per second", "no drafts", "with drafts"]
    columns += ["drafts / no drafts", "tokens per pass", "accepted", "different translations", "scores apart"]
    for number, named in enumerate(given.stores):
        place, _, asked_for = named.partition("=")
        domain, _, text = asked_for.partition(":")
        if not Path(place).exists():
            harm.build(Path(place), domain, given.pairs, translator)
        retrieval = translator.retrieval(datastore=place, segments=given.segments)
        assert retrieval is not None
        if not number:
            print_header(*columns)
        pairs = read_domain(text or domain, given.split)
        for size, count in zip(given.batches, lines, strict=True):
            texts = [pair.source for pair in spread(pairs, count)]
            sources = sorted(engine.tokenizer.encode_sources(texts), key=len, reverse=True)
            batches: list[Sources] = [sources[first : first + size] for first in range(0, len(sources), size)]
            cells = measure(translator, batches, config, retrieval, given.rounds, warm_up, clock)
            print_row(domain, text or domain, len(sources), size, *cells)
            if given.turns and cuda:
                step_times(translator, batches, config, retrieval)
    print(f"{time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
