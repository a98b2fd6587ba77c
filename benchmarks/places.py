"""What it gains that a sentence that is done gives its place to one of the next batch, on a CPU.

    OMP_NUM_THREADS=2 python benchmarks/places.py [--sentences 256] [--batches 8 32] [--beams 5 1] [--rounds 3]

Sentences of the development sets are sorted by length into batches, as in a call of `Translator.translate`. In every
round, the batches are decoded one by one and in one go, with the model alone. Results must be equal. The table has
tokens per second: the median, and in brackets the least and the most.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from knnmt.config import BatchingConfig, DecodingConfig
from knnmt.decoding.search import Batch, search, search_each
from knnmt.engine.base import Engine
from knnmt.engine.batching import batches_by_length
from knnmt.engine.precision import cpu_name
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import argument_parser, development_sources, print_header, print_row


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--beams", type=int, nargs="+", default=[5, 1])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    translator = Translator()
    engine = translator.engine
    sources = engine.tokenizer.encode_sources(development_sources(options.sentences))
    print(f"{len(sources)} sentences on {cpu_name()}")
    print_header("beam", "batch", "one by one", "in one go", "ratio")
    for beam in options.beams:
        for size in options.batches:
            numbers = batches_by_length([len(each) for each in sources], BatchingConfig(sentences=size))
            batches = [Batch([sources[number] for number in batch]) for batch in numbers]
            speeds = measured(engine, batches, translator.decoding(beam=beam), options.rounds)
            medians = [statistics.median(each) for each in speeds]
            cells = [
                f"{median:,.0f} ({min(each):,.0f}–{max(each):,.0f})"
                for median, each in zip(medians, speeds, strict=True)
            ]
            print_row(beam, size, *cells, f"{medians[1] / medians[0]:.2f}")


def measured(
    engine: Engine[Any], batches: Sequence[Batch], config: DecodingConfig, rounds: int
) -> tuple[list[float], list[float]]:
    """Tokens per second one by one and in one go, in every round."""
    speeds: tuple[list[float], list[float]] = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        expected = [search(engine, sources, config) for sources, *_ in batches]
        middle = time.perf_counter()
        results = list(search_each(engine, batches, config))
        ended = time.perf_counter()
        if results != expected:
            raise SystemExit("the results differ")
        tokens = sum(len(best[0].tokens) for batch in results for best in batch if best)
        speeds[0].append(tokens / (middle - began))
        speeds[1].append(tokens / (ended - middle))
    return speeds


if __name__ == "__main__":
    main()
