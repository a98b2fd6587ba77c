"""The builds of compiled code that this machine can run, slower ones as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from knnmt import native

_BUILDS = {"avx512amx": "avx512_vnni"}  # which does without AMX where there is none
_BUILDS |= {"avx512vnni": "avx512_vnni", "avx512": "avx512bw", "avx2vnni": "avx_vnni", "avx2": "avx2"}
_BUILDS |= {"neondot": "asimddp", "neon": "asimd"}
INT8_SOURCES = {"product8.cpp", "product8.h", "tiles.cpp", "tiles.h"}  # which ask for more than a kind of vectors


def builds_that_run() -> list[str]:
    flags = native._cpu_flags()
    return [name for name, flag in _BUILDS.items() if flag in flags and native.load(name) is not None]


def vector_builds_that_run() -> list[str]:
    """One build for each kind of vectors: the others differ from it in products in int8 alone (`INT8_SOURCES`)."""
    run = builds_that_run()
    return [found for kind in ("avx512", "avx2", "neon") if (found := next(_of_kind(kind, run), None)) is not None]


def _of_kind(kind: str, builds: list[str]) -> Iterator[str]:
    return (name for name in builds if name.startswith(kind))


def assert_rows_are_alone(product: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """A row's product depends neither on the other rows nor on the number of threads."""
    together = product(x)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(together, torch.cat([product(x[row : row + 1]) for row in range(len(x))]))
            assert torch.equal(together, product(x))
    finally:
        torch.set_num_threads(before)
