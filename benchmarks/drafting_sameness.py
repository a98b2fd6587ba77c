"""Shows where recorded steps with drafts differ from steps without drafts, and why.

    python benchmarks/drafting_sameness.py STORE=DOMAIN ... [--device cuda] [--dtype float32] [--batches 16 64]
        [--lines 1000] [--segments 64] [--pairs 0] [--split train]

Steps of different shapes round differently. This changes a log-probability a little. If it changes which entries at
nearly the same distance are the k nearest, it changes the log-probability a lot. Development lines are translated
greedily without drafts, and with 8 tokens in every step; with --split train, lines that the memory holds. For each
token up to the first different one, the script compares log-probabilities and neighbours:

    tokens               number of compared tokens
    same neighbours      largest difference of a token's log-probability if both found the same entries
    moved                largest change of the distance to an entry
    other neighbours     number of tokens with different entries
    apart                largest difference of distance between an entry that only one of the two found and the last
                         that the other found: a tie for the last place if it is at most as large as "moved"
    difference           largest difference of a token's log-probability in these cases
    other translations   number, and for each: the difference of the two best at the first different token, how many
                         entries of that step differ, and the distance between those

A store that does not exist is built first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import harm
from knnmt import spread
from knnmt.config import DecodingConfig
from knnmt.decoding import arena, recorded, recorded_drafts, recorded_places
from knnmt.decoding.recorded_places import TAKEN, TOKENS
from knnmt.retrieval.recorded import RecordedSteps
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import argument_parser, print_header, print_row, read_domain

Sources = Sequence[Sequence[int]]


@dataclass
class Step:
    """A step of a sentence: its best token's log-probability, the margin to the next token, and its neighbours."""

    token: int
    gain: float
    apart: float
    distances: np.ndarray
    ids: np.ndarray


class Tracing:
    """Notes the results of recorded steps, which run without recording meanwhile."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[np.ndarray, ...]] = deque()
        self.traces: list[list[Step]] = []

    def begin(self, sentences: int) -> None:
        self._under_way.clear()
        self.traces = [[] for _ in range(sentences)]

    def note(self, found: Any, log_probabilities: torch.Tensor, offsets: torch.Tensor) -> None:
        """Note a step, (sentences, turns, ...)."""
        sentences, turns, _ = log_probabilities.shape
        best, _ = log_probabilities.topk(2)
        gains, margins = best[..., 0] + offsets.view(sentences, turns), best[..., 0] - best[..., 1]
        near = [each.view(sentences, turns, -1) for each in found]
        self._under_way.append(tuple(each.cpu().numpy() for each in (gains, margins, *near)))

    def take(self, source_of: np.ndarray, counts: Sequence[int], tokens: np.ndarray) -> None:
        """Take `counts` chosen tokens of each sentence, and the oldest noted step. A forced token has no noted step.

        tokens (sentences, turns): the chosen ones. Of two with the same probability either may be chosen.
        """
        if not self._under_way:
            return
        gains, margins, distances, ids = self._under_way.popleft()
        for row in np.flatnonzero(source_of >= 0).tolist():
            for turn in range(counts[row]):
                at = row, turn
                step = Step(int(tokens[at]), float(gains[at]), float(margins[at]), distances[at], ids[at])
                self.traces[source_of[row]].append(step)


@contextmanager
def traced(turns: int) -> Iterator[Tracing]:
    """Note all steps inside this context; steps with drafts have this many turns."""
    tracing = Tracing()
    mix, mix_in_turn, best_in_turn = RecordedSteps.mix, RecordedSteps.mix_in_turn, RecordedSteps.best_in_turn
    look_at, read = recorded._FixedBatch._look_at, recorded_places.Places.read

    def noting_mix(steps: Any, found: Any, log_probabilities: Any, scores: Any) -> Any:
        after = mix(steps, found, log_probabilities, scores)
        tracing.note(found, log_probabilities, after - scores)
        return after

    def noting_mix_in_turn(steps: Any, found: Any, log_probabilities: Any) -> Any:
        mixed = mix_in_turn(steps, found, log_probabilities)
        tracing.note(found, log_probabilities, mixed.offsets)
        return mixed

    def noting_best_in_turn(steps: Any, found: Any, scores: Any, rules: Any, generated: Any) -> Any:
        best, tokens, mixed = best_in_turn(steps, found, scores, rules, generated)
        log_probabilities = scores.float().log_softmax(-1)
        mix_in_turn(steps, found, log_probabilities)
        log_probabilities[..., rules.forbidden] = float("-inf")
        tracing.note(found, log_probabilities, mixed.offsets)
        return best, tokens, mixed

    def taking(
        batch: Any, chosen: Any, length: int
    ) -> None:  # of two candidates of one hypothesis, the one in column 6
        tokens = np.take_along_axis(chosen[:, 4:6], chosen[:, 6:7].astype(np.int64), 1)
        tokens[chosen[:, 4] == batch._told.end] = batch._told.end
        tracing.take(batch._source_of, [1] * len(batch._source_of), tokens)
        look_at(batch, chosen, length)

    def taking_drafts(places: Any, result: Any, count: int) -> Any:
        source_of = np.array([-1 if each is None else each.number for each in places.sentences])
        tracing.take(source_of, result[:, TAKEN].tolist(), result[:, TOKENS : TOKENS + count])
        return read(places, result, count)

    with (
        mock.patch.object(arena, "_USES_BEFORE_RECORDING", 1 << 60),
        mock.patch.object(RecordedSteps, "mix", noting_mix),
        mock.patch.object(RecordedSteps, "mix_in_turn", noting_mix_in_turn),
        mock.patch.object(RecordedSteps, "best_in_turn", noting_best_in_turn),
        mock.patch.object(recorded._FixedBatch, "_look_at", taking),
        mock.patch.object(recorded_places.Places, "read", taking_drafts),
        mock.patch.object(recorded_drafts, "turns_for", return_value=turns),
    ):
        yield tracing


def both_ways(
    translator: Translator, sources: Sources, config: DecodingConfig, retrieval: Retrieval
) -> tuple[list[list[Step]], list[list[Step]]]:
    """The steps of a batch without and with drafts."""
    engine: Any = translator.engine
    with traced(turns=8) as tracing:
        tracing.begin(len(sources))
        recorded.recorded_search(engine, sources, config, BatchRetrieval([retrieval] * len(sources)))
        plain = tracing.traces
        tracing.begin(len(sources))
        batch = BatchRetrieval([retrieval] * len(sources))
        told = batch.recorded()
        assert told is not None
        recorded_drafts.recorded_drafts(engine, sources, config, batch, told)
        return plain, tracing.traces


class Differences:
    """The results of the comparison."""

    def __init__(self) -> None:
        self.tokens = self.others = 0
        self.same_neighbours = self.other_neighbours = self.apart = self.moved = 0.0
        self.translations: list[tuple[float, int, float]] = []

    def add(self, plain: list[Step], drafted: list[Step]) -> None:
        for one, other in zip(plain, drafted, strict=False):
            left, apart = exchanged(one, other)
            self.moved = max(self.moved, moved(one, other))
            if left:
                self.others += 1
                self.apart = max(self.apart, apart)
            if one.token != other.token:
                self.translations.append((min(one.apart, other.apart), left, apart))
                return
            self.tokens += 1
            difference = abs(one.gain - other.gain)
            if left:
                self.other_neighbours = max(self.other_neighbours, difference)
            else:
                self.same_neighbours = max(self.same_neighbours, difference)


def exchanged(one: Step, other: Step) -> tuple[int, float]:
    """How many entries only the first step found, and their distance from the last entry that the other found."""
    left, furthest = 0, 0.0
    for mine, its in ((one, other), (other, one)):
        alone = ~np.isin(mine.ids, its.ids) & (mine.ids >= 0)
        left = max(left, int(alone.sum()))
        if alone.any():
            last = np.sqrt(its.distances[its.ids >= 0].max(initial=0.0))
            furthest = max(furthest, float(np.abs(np.sqrt(mine.distances[alone]) - last).max()))
    return left, furthest


def moved(one: Step, other: Step) -> float:
    """The largest change of the distance to an entry that both found."""
    distances = dict(zip(other.ids.tolist(), np.sqrt(other.distances).tolist(), strict=True))
    pairs = zip(one.ids.tolist(), np.sqrt(one.distances).tolist(), strict=True)
    return max((abs(mine - distances[each]) for each, mine in pairs if each >= 0 and each in distances), default=0.0)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batches", type=int, nargs="+", default=[16])
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--segments", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--split", choices=["dev", "train"], default="dev")
    given = parser.parse_args()
    translator = Translator(device=given.device, dtype=given.dtype)
    config = replace(translator.engine.generation, beam=1, n_best=1)
    print(f"{given.device}, {translator.engine.computes_in}, {given.segments} segments\n", flush=True)
    columns = [
        "domain",
        "batch",
        "lines",
        "tokens",
        "same neighbours",
        "moved",
        "other neighbours",
        "apart",
        "difference",
    ]
    print_header(*columns, "other translations")
    for named in given.stores:
        place, _, domain = named.partition("=")
        if not Path(place).exists():
            harm.build(Path(place), domain, given.pairs, translator)
        retrieval = translator.retrieval(datastore=place, segments=given.segments)
        assert retrieval is not None
        texts = [pair.source for pair in spread(read_domain(domain, given.split), given.lines)]
        sources = sorted(translator.engine.tokenizer.encode_sources(texts), key=len)
        for size in given.batches:
            found = Differences()
            for first in range(0, len(sources), size):
                plain, drafted = both_ways(translator, sources[first : first + size], config, retrieval)
                for one, other in zip(plain, drafted, strict=True):
                    found.add(one, other)
            others = ", ".join(
                f"{best:.1e} ({left} entries, {apart:.1e})" for best, left, apart in sorted(found.translations)
            )
            print_row(
                domain,
                size,
                len(sources),
                f"{found.tokens:,}",
                f"{found.same_neighbours:.1e}",
                f"{found.moved:.1e}",
                found.others,
                f"{found.apart:.1e}",
                f"{found.other_neighbours:.1e}",
                f"{len(found.translations)}{': ' + others if others else ''}",
            )


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
