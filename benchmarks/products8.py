"""Products in int8 by two builds of compiled code, such as that for AMX and that for VNNI, beside one another.

    python benchmarks/products8.py [--builds avx512amx avx512vnni] [--rows 1 5 16 40 80 240] [--threads 1] [--times 7]

There are so many weights of each shape that a core's caches do not hold them. Each cell has billions of multiplications
per second of the builds (of two digits, each counts once) by the median of `--times` passes over all weights, in turns;
and how many times as fast as the last build the first is, with the range over the turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from unittest.mock import patch

import torch

from knnmt import native
from knnmt.engine import product
from knnmt.engine.precision import cpu_name
from knnmt.engine.product import CompiledProduct, Int8Projection
from knnmt_lab.scripts import argument_parser, print_header, print_row

SHAPES = [(1024, 4096), (4096, 1024), (1024, 42024), (512, 58101), (320, 20005)]  # inputs, outputs
NUMBERS = 128_000_000  # numbers in all weights of a shape, a byte each


def made(
    build: str, shared: dict[tuple[int, int], list[Int8Projection]], weight: torch.Tensor
) -> list[CompiledProduct]:
    """So many products with this weight; builds that lay it out in the same way share its copies."""
    found = native.load(build)
    if found is None:
        raise SystemExit(f"{build}: no such build for these sources")
    layout = (found.knnmt_panel(), found.knnmt_offset())
    if layout not in shared:
        with patch.object(product, "library", lambda: found):
            shared[layout] = [Int8Projection(weight, None) for _ in range(max(2, NUMBERS // weight.numel()))]
    return [
        CompiledProduct(found, (each.inputs, each.outputs), *each._memory)
        for copy in shared[layout]
        if (each := copy.compiled)
    ]


def seconds(products: Sequence[CompiledProduct], digits: int, x: torch.Tensor, y: torch.Tensor) -> float:
    """Of one product, written to the same memory as those before, as several compiled steps do."""
    for each in products:
        each.matrix["digits"] = digits
    scratch = torch.empty(len(x) * (digits * (x.shape[1] + 4) + 4), dtype=torch.uint8)
    places, threads = (x.data_ptr(), y.data_ptr(), scratch.data_ptr()), torch.get_num_threads()
    started = time.perf_counter()
    for each in products:
        each._native.knnmt_product(each.address, *places, len(x), threads)
    return (time.perf_counter() - started) / len(products)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--builds", nargs="+", default=["avx512amx", "avx512vnni"])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 5, 16, 40, 80, 240])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--shapes", type=int, nargs="*", default=range(len(SHAPES)), help="which of them")
    arguments = parser.parse_args()
    print(f"{cpu_name()}, {arguments.threads} threads: {' / '.join(arguments.builds)}")
    print_header("inputs, outputs", "digits", *(f"{rows} rows" for rows in arguments.rows))
    for inputs, outputs in (SHAPES[number] for number in arguments.shapes):
        shared: dict[tuple[int, int], list[Int8Projection]] = {}
        weight = torch.randn(outputs, inputs)
        builds = [made(build, shared, weight) for build in arguments.builds]
        usual = torch.get_num_threads()
        torch.set_num_threads(arguments.threads)
        for digits in (1, 2):
            cells = []
            for rows in arguments.rows:
                x, y = torch.randn(rows, inputs), torch.zeros(rows, outputs)
                turns = [[seconds(each, digits, x, y) for each in builds] for _ in range(arguments.times + 1)][1:]
                speeds = [rows * inputs * outputs / statistics.median(each) / 1e9 for each in zip(*turns, strict=True)]
                ratios = [turn[-1] / turn[0] for turn in turns]
                each_speed = " / ".join(f"{speed:.0f}" for speed in speeds)
                middle = statistics.median(ratios)
                cells.append(f"{each_speed}: {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
            print_row(f"{inputs:,}, {outputs:,}", digits, *cells)
        torch.set_num_threads(usual)


if __name__ == "__main__":
    main()
