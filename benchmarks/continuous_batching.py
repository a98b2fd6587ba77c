"""Simulates, from measured costs, whether the service would gain if sentences could join a batch during decoding.

    OMP_NUM_THREADS=1 python benchmarks/continuous_batching.py [--sentences 128] [--beam 5] [--rounds 3]

It measures the CPU time of encoding and of a step of beam search at several batch sizes, and how many steps each
sentence takes. With these costs, it simulates clients that send one sentence after the other, in two ways: batch after
batch, each with sentences of about the same length, as the service does; and continuously, where the next sentence
takes the place of a finished one at once. Both have one worker. Default text: that of benchmarks/serving.py.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from knnmt.decoding.search import search
from knnmt.engine.precision import cpu_name
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import argument_parser, development_sources
from serving import percentile

SIZES = [1, 2, 4, 8, 12, 16, 24, 32]
_CONSIDERED = 4  # as in service/scheduling/batching.py
_ASKS_AGAIN_SECONDS = 0.002  # after an answer


@dataclass(frozen=True)
class Sentence:
    """source: tokens; steps: until its beam search ends"""

    source: int
    steps: int


class Costs:
    """Seconds of encoding and of steps, interpolated between the measured sizes."""

    def __init__(self, encoding: Sequence[float], steps: Sequence[float], source: float) -> None:
        self._encoding, self._steps, self._source = encoding, steps, source

    def encode(self, batch: Sequence[Sentence]) -> float:
        longest = max(each.source for each in batch)  # all are padded to this length
        return float(np.interp(len(batch), SIZES, self._encoding)) * longest / self._source

    def step(self, size: int) -> float:
        return float(np.interp(size, SIZES, self._steps))

    def batch(self, batch: Sequence[Sentence]) -> list[float]:
        """When each sentence of a batch is done; a finished sentence leaves the batch."""
        now, done, ends = self.encode(batch), 0, [0.0] * len(batch)
        order = sorted(range(len(batch)), key=lambda place: batch[place].steps)
        for left, place in zip(range(len(batch), 0, -1), order, strict=True):
            now += (batch[place].steps - done) * self.step(left)
            done, ends[place] = batch[place].steps, now
        return ends


# Measuring ------------------------------------------------------------------------------------------------------------


def measured(texts: Sequence[str], beam: int, rounds: int) -> tuple[list[Sentence], Costs]:
    translator = Translator()
    engine, config = translator.engine, translator.decoding(beam=beam)
    sources = engine.tokenizer.encode_sources(list(texts))
    marks: list[tuple[float, int]] = []

    def mark(leading: Callable[[], dict[int, list[int]]]) -> None:
        marks.append((time.process_time(), len(leading())))

    sentences = []
    for source in sources:
        marks.clear()
        search(engine, [source], config, on_partial=mark)
        sentences.append(Sentence(len(source), len(marks) + 1))
    middle = sorted(sources, key=len)[3 * len(sources) // 8 : 5 * len(sources) // 8]
    encoding: dict[int, list[float]] = {size: [] for size in SIZES}
    steps: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(rounds):
        for size in SIZES:
            batch = [middle[place % len(middle)] for place in range(size)]
            began = time.process_time()
            engine.start(engine.encode(batch))
            encoding[size].append(time.process_time() - began)
            marks.clear()
            search(engine, batch, config, on_partial=mark)
            pairs = list(pairwise(marks[2:]))  # the first steps have one hypothesis per sentence
            steps[size].append(statistics.median(b[0] - a[0] for a, b in pairs if a[1] == b[1] == size))
    print("size   encoding ms   a step ms   a step ms a sentence")
    for size in SIZES:
        encode, one = 1000 * statistics.median(encoding[size]), 1000 * statistics.median(steps[size])
        print(f"{size:4}   {encode:11.2f}   {one:9.2f}   {one / size:20.3f}")
    medians = [[statistics.median(found[size]) for size in SIZES] for found in (encoding, steps)]
    longest = statistics.median(
        max(len(middle[place % len(middle)]) for place in range(size)) for size in SIZES if size > 1
    )
    return sentences, Costs(medians[0], medians[1], longest)


# Simulating clients ---------------------------------------------------------------------------------------------------


def offline(sentences: Sequence[Sentence], costs: Costs, size: int = 32) -> float:
    """Sentences per second for all sentences, sorted by length first."""
    order = sorted(sentences, key=lambda each: -each.source)
    batches = [order[place : place + size] for place in range(0, len(order), size)]
    return len(order) / sum(max(costs.batch(batch)) for batch in batches)


Waiting = tuple[float, int, Sentence]  # since when, and of which client


def batch_after_batch(shares: list[list[Sentence]], costs: Costs, size: int) -> tuple[float, list[float]]:
    """When all sentences are done, and how long each took."""
    waiting: list[Waiting] = [(0.0, client, share.pop()) for client, share in enumerate(shares) if share]
    now, took = 0.0, []
    while waiting:
        now = max(now, min(since for since, _, _ in waiting))
        first, *others = sorted((each for each in waiting if each[0] <= now), key=lambda each: each[0])
        others = others[: _CONSIDERED * size - 1]
        order = np.argsort([abs(each[2].source - first[2].source) for each in others], kind="stable")
        alike = [others[place] for place in order]
        chosen = [first, *alike[: size - 1]]
        waiting = [each for each in waiting if each not in chosen]
        ends = costs.batch([sentence for _, _, sentence in chosen])
        for (since, client, _), end in zip(chosen, ends, strict=True):
            took.append(now + end - since)
            if shares[client]:
                waiting.append((now + end + _ASKS_AGAIN_SECONDS, client, shares[client].pop()))
        now += max(ends)
    return now, took


def continuous(shares: list[list[Sentence]], costs: Costs, size: int) -> tuple[float, list[float]]:
    """The same for continuous batching."""
    waiting: list[Waiting] = [(0.0, client, share.pop()) for client, share in enumerate(shares) if share]
    running: list[list[Any]] = []  # steps left, since when, and of which client
    now, took = 0.0, []
    while waiting or running:
        if not running:
            now = max(now, min(since for since, _, _ in waiting))
        joining = sorted((each for each in waiting if each[0] <= now), key=lambda each: each[0])[: size - len(running)]
        if joining:
            now += costs.encode([sentence for _, _, sentence in joining])
            waiting = [each for each in waiting if each not in joining]
            running += [[sentence.steps, since, client] for since, client, sentence in joining]
        now += costs.step(len(running))
        for each in running:
            each[0] -= 1
            if not each[0]:
                took.append(now - each[1])
                if shares[each[2]]:
                    waiting.append((now + _ASKS_AGAIN_SECONDS, each[2], shares[each[2]].pop()))
        running = [each for each in running if each[0]]
    return now, took


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 32], help="of batches")
    parser.add_argument("--text", type=Path, help="a file with a sentence a line")
    asked = parser.parse_args()
    if asked.text is None:
        texts = development_sources(asked.sentences)
    else:
        texts = asked.text.read_text(encoding="utf-8").splitlines()[: asked.sentences]
    print(f"{len(texts)} sentences, {cpu_name()}")
    sentences, costs = measured(texts, asked.beam, asked.rounds)
    alone = offline(sentences, costs)
    print(f"offline {alone:.1f} sentences a processor's second")
    print("clients  batch  way               sentences/s  of offline    p50 s   p95 s")
    for clients in asked.clients:
        for size in asked.sizes:
            for way in (batch_after_batch, continuous):
                many = sentences * (4 if clients > 1 else 1)
                end, took = way([many[client::clients] for client in range(clients)], costs, size)
                rate = len(many) / end
                print(
                    f"{clients:7}  {size:5}  {way.__name__:17} {rate:11.1f}  {rate / alone:10.0%}"
                    f"   {percentile(took, 0.5):6.3f}  {percentile(took, 0.95):6.3f}"
                )


if __name__ == "__main__":
    main()
