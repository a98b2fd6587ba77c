"""Products in int8 with the tiles of AMX, which `tiles_on_a_cpu.h` computes where the CPU has none."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from knnmt import native
from knnmt.engine import product
from knnmt.engine.product import Int8Projection
from support.made_once import made_once
from support.native_builds import assert_rows_are_alone

HERE = Path(__file__).parent
SOURCES = Path(native.__file__).parent
FEWEST = 11  # as in tiles.h


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which(os.environ.get("CXX") or "c++")
    if compiler is None or "avx512_vnni" not in native._cpu_flags():
        pytest.skip("nothing can be compiled, or not for this CPU: no C++ compiler, or no AVX-512 with VNNI")
    options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-march=x86-64-v4", "-mavx512vnni"]
    options += [f"-I{SOURCES}", f'-DKNNMT_TILES="{HERE / "tiles_on_a_cpu.h"}"']
    sources = [str(SOURCES / name) for name in ("product8.cpp", "tiles.cpp")]
    place = made_once(
        tmp_path_factory,
        "tiles",
        lambda scratch: subprocess.run([compiler, *options, *sources, "-o", str(scratch / "tiles.so")], check=True),
    )
    found = ctypes.CDLL(str(place / "tiles.so"))
    found.knnmt_product.argtypes = [*[ctypes.c_void_p] * 4, *[ctypes.c_int32] * 2]
    found.knnmt_product.restype = None
    found.knnmt_tile_products.restype = ctypes.c_int64
    return found


@pytest.fixture
def tiles(compiled: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    monkeypatch.setattr(product, "library", lambda: compiled)
    return compiled


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 6, 8, 9, 10, 11, 16, 17, 31, 33, 40, 81])
def test_tiles_find_what_pytorch_finds_in_every_bit(tiles: ctypes.CDLL, rows: int, fine: bool) -> None:
    """Rows that fill tiles or do not, whole and partial panels, odd numbers of them, inputs that are no fours."""
    codes = rows * (2 if fine else 1)
    for inputs, outputs in ((64, 40), (128, 16), (191, 33), (192, 100), (190, 50), (512, 70)):
        x = torch.randn(rows, inputs)
        x[rows // 2] = 0
        projection = Int8Projection(torch.randn(outputs, inputs), torch.randn(outputs) if rows % 2 else None, fine)
        before = tiles.knnmt_tile_products()
        assert torch.equal(projection(x), projection.in_pytorch(x))
        used = tiles.knnmt_tile_products() > before
        assert used == (codes >= FEWEST and (inputs + 3) // 4 * 4 % 64 == 0)


def test_a_row_depends_neither_on_the_others_nor_on_the_threads(tiles: ctypes.CDLL) -> None:
    assert_rows_are_alone(Int8Projection(torch.randn(97, 128), torch.randn(97), True), torch.randn(23, 128))


def test_more_codes_than_stay_near_are_multiplied_in_blocks(tiles: ctypes.CDLL) -> None:
    x, projection = torch.randn(67, 8192), Int8Projection(torch.randn(50, 8192), None, True)
    assert torch.equal(projection(x), projection.in_pytorch(x))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_are_whole(tiles: ctypes.CDLL, sign: int) -> None:
    x, projection = torch.full((12, 4096), 3.0), Int8Projection(torch.full((33, 4096), 0.5 * sign), None, True)
    assert torch.equal(projection(x), projection.in_pytorch(x))
