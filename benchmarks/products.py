"""Products of a few rows with float32 weights in panels beside PyTorch's own, with one thread, in CPU time.

    python benchmarks/products.py [--rows 1 5 16 40 80] [--times 10]

There are so many weights of each shape that no cache holds them, as in a step of a model. Each cell says how many times
as fast as PyTorch the compiled product is, and how many times as fast with weights in 24 bits as in float32, by the
best of `--times` passes over all weights, in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from knnmt.engine.layers import Projection
from knnmt.engine.precision import cpu_name
from knnmt.engine.product import float_product
from knnmt_lab.scripts import argument_parser, print_header, print_row

SHAPES = [(320, 1280), (512, 1536), (512, 2048), (2048, 512), (1024, 4096), (512, 20005)]  # inputs, outputs
NUMBERS = 20_000_000  # numbers in all weights of a shape: 80 MB


def seconds(products: Sequence[Callable[[torch.Tensor], torch.Tensor]], x: torch.Tensor) -> float:
    started = time.process_time()
    for product in products:
        product(x)
    return time.process_time() - started


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 5, 16, 40, 80])
    parser.add_argument("--times", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(cpu_name())
    print_header("inputs, outputs", *(f"{rows} rows" for rows in arguments.rows))
    for inputs, outputs in SHAPES:
        weights = [torch.randn(outputs, inputs) for _ in range(max(1, NUMBERS // (inputs * outputs)))]
        ours, in_24_bits = (
            [product for weight in weights if (product := float_product(weight, None, of_steps)) is not None]
            for of_steps in (False, True)
        )
        theirs = [Projection(weight.t().contiguous(), None) for weight in weights]
        cells = []
        for rows in arguments.rows:
            x = torch.randn(rows, inputs)
            turns = [[seconds(each, x) for each in (ours, in_24_bits, theirs)] for _ in range(arguments.times)]
            mine, smaller, pytorchs = (min(each) for each in zip(*turns, strict=True))
            speed = rows * inputs * outputs * len(weights) / mine / 1e9
            cells.append(f"{pytorchs / mine:.2f}, {mine / smaller:.2f} ({speed:.0f})")
        print_row(f"{inputs:,}, {outputs:,}", *cells)
    print("in brackets: billions of multiplications a second in float32")


if __name__ == "__main__":
    main()
