"""The speed of constrained search beside free search, on a CPU.

    OMP_NUM_THREADS=2 python benchmarks/constrained.py [--sentences 64] [--batches 1 8 32] [--rounds 3]

Each sentence of the development sets must have two tokens from the middle of its free translation. Systems take turns:
free search by the fastest backend, free search by the reference, and constrained search. The table has tokens of the
results per second, medians of all rounds, and in brackets the ratio to the first. With one thread, time is CPU time,
which other programs disturb less.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.reference import ReferenceBackend
from knnmt.decoding.requirements import Requirement, Requirements, Words
from knnmt.decoding.search import search
from knnmt.engine.base import Engine
from knnmt.engine.precision import cpu_name
from knnmt.engine.vocabulary import WrittenVocabulary
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import argument_parser, development_sources, print_header, print_row

Search = Callable[[slice], list[list[Hypothesis]]]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    translator = Translator()
    engine, config = translator.engine, translator.decoding(beam=5)
    sources = sorted(engine.tokenizer.encode_sources(development_sources(options.sentences)), key=len)
    vocabulary = WrittenVocabulary(engine.tokenizer, engine.vocabulary_size)
    words = Words(vocabulary.joins, vocabulary.spaced, vocabulary.closing, vocabulary.blank)
    required = [middle_of(best[0].tokens, words, engine) for best in search(engine, sources, config)]
    systems: dict[str, Search] = {
        "free": lambda part: search(engine, sources[part], config),
        "free, reference": lambda part: search(engine, sources[part], config, make=ReferenceBackend),
        "constrained": lambda part: search(engine, sources[part], config, required=required[part]),
    }
    print(f"{len(sources)} sentences on {cpu_name()}")
    print_header("batch", *systems)
    for batch in options.batches:
        parts = [slice(first, first + batch) for first in range(0, len(sources), batch)]
        speeds: dict[str, list[float]] = {name: [] for name in systems}
        for _ in range(options.rounds):
            for name, system in systems.items():
                speeds[name].append(speed(system, parts))
        medians = [statistics.median(each) for each in speeds.values()]
        print_row(batch, *(f"{median:,.0f} ({median / medians[0]:.2f})" for median in medians))


def middle_of(tokens: tuple[int, ...], words: Words, engine: Engine[Any]) -> Requirements:
    """Two tokens from the middle of a translation, as required content."""
    middle = len(tokens) // 2
    required = (
        [Requirement((tokens[middle : middle + 2],), joined_before=True, joined_after=True)] if len(tokens) > 4 else []
    )
    return Requirements(required, np.zeros(engine.vocabulary_size, bool), words, engine.special_tokens.end)


def speed(search_part: Search, parts: list[slice]) -> float:
    """Tokens per second."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    began = clock()
    found = [best for part in parts for best in search_part(part)]
    return sum(len(best[0].tokens) for best in found if best) / (clock() - began)


if __name__ == "__main__":
    main()
