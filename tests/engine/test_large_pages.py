"""Weights in large pages are the same weights, and their memory is given back."""

from __future__ import annotations

import gc
import mmap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from knnmt.engine import large_pages
from knnmt.engine.large_pages import in_large_pages

PAGE = 2 << 20


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32])
def test_copies_are_equal_and_contiguous(dtype: torch.dtype) -> None:
    originals = [torch.randint(-9, 9, shape).to(dtype) for shape in ((3, 5, 7), (1,), (0, 4), (700, 900), (33, 1))]
    copies = [in_large_pages(each.transpose(0, -1)) for each in originals]
    for original, copied in zip(originals, copies, strict=True):
        assert torch.equal(copied, original.transpose(0, -1))
        assert copied.is_contiguous()
        assert copied.dtype == dtype
    copies[0].zero_()
    assert torch.equal(copies[3], originals[3].transpose(0, -1))  # none overlaps another


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="the system has no large pages")
def test_small_ones_lie_side_by_side_and_large_ones_begin_with_a_page() -> None:
    one, other = (in_large_pages(torch.ones(100, dtype=torch.int8)) for _ in range(2))
    assert one.data_ptr() % 64 == other.data_ptr() % 64 == 0
    assert 0 < (other.data_ptr() - one.data_ptr()) % large_pages._BLOCK <= 128
    large = in_large_pages(torch.ones(large_pages._BLOCK + 1, dtype=torch.int8))
    assert large.data_ptr() % PAGE == 0
    assert bool(large.all())


def test_threads_get_memory_of_their_own() -> None:
    def fill(number: int) -> list[torch.Tensor]:
        return [in_large_pages(torch.full((1000 + place,), number, dtype=torch.int16)) for place in range(200)]

    with ThreadPoolExecutor(8) as workers:
        every = list(workers.map(fill, range(8)))
    assert all(bool((each == number).all()) for number, mine in enumerate(every) for each in mine)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell what is mapped")
def test_memory_is_given_back() -> None:
    size = 3 * large_pages._BLOCK

    def maps() -> set[str]:
        ranges = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
        return {begin for begin, end in ranges if int(end, 16) - int(begin, 16) == size + PAGE}

    before = maps()
    large = in_large_pages(torch.zeros(size, dtype=torch.int8))
    assert len(maps() - before) == 1
    del large
    in_large_pages(torch.zeros(size + PAGE, dtype=torch.int8))  # takes the place of the last block
    gc.collect()
    assert maps() <= before
