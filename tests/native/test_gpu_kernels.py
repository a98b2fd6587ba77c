"""The kernels for GPUs do what PyTorch does: here on a CPU, where their threads run by turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.config import Fading, RetrievalConfig
from knnmt.engine import gpu_layers
from knnmt.engine.layers import attend
from knnmt.index import clusters, reranking, selecting
from knnmt.index.clusters import Clusters
from knnmt.index.reranking import Places, nearest_among
from knnmt.index.resident import ResidentKeys
from knnmt.retrieval import graphs
from knnmt.retrieval.graphs import GraphSteps
from knnmt.retrieval.open_store import OpenStore
from support.made_stores import made_store, random_keys, random_values

FADING = Fading(scale=2.0, width=0.8, sentence_scale=3.0, sentence_width=0.9)


@pytest.fixture
def compiled(kernel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (clusters, reranking, graphs, selecting):
        monkeypatch.setattr(module, "kernel", kernel)


@pytest.mark.parametrize(
    ("dtype", "head_dim", "rows", "blocks"),
    [(torch.float16, 16, 3, 1), (torch.float16, 16, 5, 5), (torch.float32, 32, 2, 1), (torch.float32, 32, 3, 6)],
)
def test_a_step_attends_as_pytorch_does(
    kernel: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    head_dim: int,
    rows: int,
    blocks: int,
) -> None:
    """Kernels are compiled here for 4 and 2 rows of a block; more are divided among blocks."""
    monkeypatch.setattr(gpu_layers, "kernel", kernel)
    monkeypatch.setattr(gpu_layers, "_BLOCKS", blocks)
    generator = torch.Generator().manual_seed(rows)
    sentences, heads, seen = 2, 2, 300  # three tiles
    memory = torch.randn((sentences, seen + 20, 2, heads, head_dim), generator=generator).to(dtype)
    slots = memory[:, :seen]
    projected = torch.randn((sentences * rows, 3 * heads * head_dim), generator=generator).to(dtype)
    mask = torch.zeros((sentences, 1, rows, seen + 20), dtype=dtype)
    mask.masked_fill_(torch.rand(mask.shape, generator=generator) < 0.4, float("-inf"))
    mask[..., 100:260] = float("-inf")
    mask[1, :, 0, :260] = float("-inf")  # sees only the last tile
    places = torch.stack([torch.arange(95, 95 + rows), torch.arange(280, 280 + rows)])
    mask[torch.arange(sentences)[:, None], 0, torch.arange(rows), places] = 0
    for row in range(sentences):
        mask[row, ..., places[row, -1] + 1 :] = float("-inf")
    query_key_value = projected.view(sentences, rows, 3, heads, head_dim)
    expected_slots = slots.clone()
    expected_slots[torch.arange(sentences)[:, None], places] = query_key_value[:, :, 1:]
    expected = attend(
        query_key_value[:, :, 0].float(),
        expected_slots[:, :, 0].float(),
        expected_slots[:, :, 1].float(),
        mask[..., :seen].float(),
    )
    found = gpu_layers.attended(projected, slots, mask[..., :seen], places)
    assert found is not None
    exact = dtype == torch.float32
    torch.testing.assert_close(slots, expected_slots, rtol=0, atol=0)
    torch.testing.assert_close(found.float(), expected, rtol=1e-5 if exact else 1e-3, atol=1e-5 if exact else 1e-3)
    # Attention to sources: queries alone, one mask for all rows of a sentence.
    queries = query_key_value[:, :, 0].reshape(sentences * rows, -1)
    of_source = mask[:, :, :1, :seen].clone()
    of_source[0, ..., 290] = 0  # beyond hidden ones
    expected = attend(
        queries.view(sentences, rows, heads, head_dim).float(),
        slots[:, :, 0].float(),
        slots[:, :, 1].float(),
        of_source.float(),
    )
    found = gpu_layers.attended(queries, slots, of_source)
    assert found is not None
    torch.testing.assert_close(found.float(), expected, rtol=1e-5 if exact else 1e-3, atol=1e-5 if exact else 1e-3)


def test_embeddings_are_added_as_pytorch_does(kernel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_layers, "kernel", kernel)
    table, of_positions = torch.randn((9, 130)), torch.randn((5, 130))
    tokens, positions = torch.tensor([[3, 8], [0, 3]]), torch.tensor([[0, 1], [4, 4]])
    for where in (positions, torch.tensor([2])):
        found = gpu_layers.embedded(tokens, where, table, of_positions)
        assert found is not None
        assert found.tolist() == (table[tokens] + of_positions[where]).view(-1, 130).tolist()


@pytest.mark.parametrize(("dtype", "dim"), [(torch.float16, 32), (torch.float32, 80)])
def test_a_sum_is_normalised_as_pytorch_does(
    kernel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, dim: int
) -> None:
    monkeypatch.setattr(gpu_layers, "kernel", kernel)
    generator = torch.Generator().manual_seed(dim)
    x, other = torch.randn((2, 6, dim), generator=generator).mul(3).to(dtype)
    weight, bias = torch.randn((2, dim), generator=generator).to(dtype)
    found = gpu_layers.normalised_sum(x, other, weight, bias, 1e-3)
    assert found is not None
    expected = torch.layer_norm(x.float() + other.float(), (dim,), weight.float(), bias.float(), 1e-3)
    torch.testing.assert_close(found.float(), expected, rtol=1e-3 if dtype == torch.float16 else 1e-5, atol=1e-3)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("columns", "k", "far", "same"),
    [
        (7, 7, float("inf"), False),
        (21_000, 400, 1e30, False),
        (21_000, 400, 1.0, True),
        (21_000, 400, float("inf"), True),
        (21_000, 400, 1.0, False),
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
    of_kernel = GraphSteps(store, config, 3)
    monkeypatch.setattr(graphs, "kernel", lambda *_: None)
    of_pytorch = GraphSteps(store, config, 3)
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
