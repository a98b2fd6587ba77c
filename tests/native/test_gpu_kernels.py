"""The kernels for GPUs do what PyTorch does: here on a CPU, with a thread for each of theirs."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from made_stores import made_store, random_keys, random_values

from knnmt import native
from knnmt.config import Fading, RetrievalConfig
from knnmt.index import clusters, reranking, selecting
from knnmt.index.clusters import Clusters
from knnmt.index.reranking import Places, nearest_among
from knnmt.index.resident import ResidentKeys
from knnmt.retrieval import recorded
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.recorded import RecordedSteps

HERE = Path(__file__).parent
KERNELS = Path(native.__file__).parent / "gpu"
FADING = Fading(scale=2.0, width=0.8, sentence_scale=3.0, sentence_width=0.9)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, torch.device], Callable[..., None]]:
    """As `knnmt.native.gpu.kernel`."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("nothing can be compiled: no C++ compiler")
    built = tmp_path_factory.mktemp("kernels") / "kernels.so"
    options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread", f"-I{KERNELS}", f"-I{HERE}"]
    subprocess.run([compiler, *options, str(HERE / "kernels_on_a_cpu.cpp"), "-o", str(built)], check=True)
    loaded = ctypes.CDLL(str(built))

    def of_name(name: str, _device: torch.device) -> Callable[..., None]:
        def run(grid: tuple[int, int, int], block: tuple[int, int, int], args: list[Any]) -> None:
            passed = [ctypes.c_void_p(each.data_ptr()) if isinstance(each, torch.Tensor) else each for each in args]
            getattr(loaded, f"run_{name}")(grid[0], grid[1], block[0], *passed)

        return run

    return of_name


@pytest.fixture
def compiled(kernel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (clusters, reranking, recorded, selecting):
        monkeypatch.setattr(module, "kernel", kernel)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("columns", "k", "far", "same"),
    [
        (7, 7, float("inf"), False),
        (21_000, 400, 1e30, False),
        (21_000, 400, 1.0, True),
        pytest.param(21_000, 400, float("inf"), True, marks=pytest.mark.soak),
        pytest.param(21_000, 400, 1.0, False, marks=pytest.mark.soak),
    ],
)
def test_the_smallest_of_rows(columns: int, k: int, far: float, same: bool) -> None:
    generator = torch.Generator().manual_seed(columns)
    values = torch.full((1, columns), -2.5) if same else torch.randn((1, columns), generator=generator)
    values[0, ::50] = values[0].sort().values[k // 2]  # equal ones, of which not all are taken
    values[0, columns // 2 :: 3] = far  # where it is very far, all others are in the same step
    chosen = selecting.columns_of_smallest(values, k)
    assert all(len(set(row)) == k for row in chosen.tolist())
    torch.testing.assert_close(values.gather(1, chosen).sort(1).values, values.sort(1).values[:, :k], rtol=0, atol=0)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(("candidates", "k"), [(40, 8), (5, 9)])
def test_candidates_are_measured_and_ordered(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, candidates: int, k: int
) -> None:
    generator = torch.Generator().manual_seed(k)
    keys = torch.randn((90, 44), generator=generator).to(dtype)[:, :41]  # keys with something behind them
    queries = torch.randn((2, 41), generator=generator)
    ids = torch.stack([torch.randperm(90, generator=generator)[:candidates] for _ in range(2)])
    ids[0, 1::3] = -1
    queries[1, 3] = float("nan")
    found = nearest_among(keys, queries, ids, k)
    assert found[0][1].isinf().all()
    assert (found[1][1] < 0).all()
    monkeypatch.setattr(reranking, "kernel", lambda *_: None)
    expected = nearest_among(keys, queries, ids, k)
    torch.testing.assert_close(found[0][0], expected[0][0])
    assert found[1][0].tolist() == expected[1][0].tolist()


@pytest.mark.usefixtures("compiled")
def test_places_in_tiles_stand_for_their_keys() -> None:
    keys = torch.arange(12.0)[:, None]
    places = Places(torch.tensor([[2, 0]]), torch.tensor([[3, -1, 5], [0, 1, 2], [7, 8, 9]]))
    distances_sq, ids = nearest_among(keys, torch.tensor([[6.5]]), torch.tensor([[5, 0, 4, 1]]), 4, places)
    assert ids.tolist() == [[7, 5, 8, -1]]
    assert distances_sq.tolist() == [[0.25, 2.25, 2.25, float("inf")]]


@pytest.mark.parametrize("dim", [20, 330])
def test_tiles_are_scored_where_they_lie(kernel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, dim: int) -> None:
    keys = torch.from_numpy(random_keys(700, dim)).half()
    searched = Clusters(ResidentKeys([keys], 700, dim, torch.float16, torch.device("cpu")))
    searched.mask(torch.arange(700) % 7 > 0)
    asked = torch.randn((2, searched._scan.rows.shape[1] + 8)).half()[:, 8:]
    near = torch.stack([torch.randperm(searched.tiles)[:5] for _ in range(2)])
    expected = searched._scores(asked, near)
    monkeypatch.setattr(clusters, "kernel", kernel)
    torch.testing.assert_close(searched._scores(asked, near), expected.view(-1, 64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fading", [None, FADING])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(("width", "k", "weight"), [(1, 1, 0.5), (5, 8, 0.6), (4, 40, 0.999), (2, 3, 0.0)])
def test_a_mixture_is_what_the_equations_say(
    compiled: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    fading: Fading | None,
    counted: bool,
    width: int,
    k: int,
    weight: float,
) -> None:
    made = made_store(tmp_path / "s", random_keys(90, 6), random_values(90, kinds=12))
    store = OpenStore(made, exact=True).snapshot
    if counted:
        vars(store)["merged_counts"] = torch.randint(1, 9, (90,)).float()
        monkeypatch.setattr(type(store), "counts", lambda self, ids, _merged: self.merged_counts[ids.clamp(min=0)])
    config = RetrievalConfig(k=k, interpolation_weight=weight, temperature=2.0, fading=fading, use_counts=True)
    of_kernel = RecordedSteps(store, config, 3)
    monkeypatch.setattr(recorded, "kernel", lambda *_: None)
    of_pytorch = RecordedSteps(store, config, 3)
    generator = torch.Generator().manual_seed(k)
    for _ in range(3):
        states = torch.randn((3, width, 6), generator=generator)
        distances_sq, ids = of_kernel.look(states)
        distances_sq[-1, 1:], ids[-1, 1:] = float("inf"), -1  # a row that found one
        distances_sq[0], ids[0] = float("inf"), -1  # and one that found none
        distances_sq[1:2, 0] = 0.0  # and one that found the very same state
        scores = torch.randn((3, width), generator=generator)
        expected = torch.randn((3, width, 20), generator=generator).log_softmax(-1)
        mixed = expected.clone()
        found = of_kernel.mix((distances_sq, ids), mixed, scores)
        torch.testing.assert_close(found, of_pytorch.mix((distances_sq, ids), expected, scores))
        torch.testing.assert_close(mixed, expected)
