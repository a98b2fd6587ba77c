"""Exact search by codes of keys, beside brute force."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.key_codes import STEP
from knnmt.native import library, load
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.sentence_search import CompiledSentenceSearch
from support.datastore_pairs import some_pairs
from support.keys_alone import KeysAlone
from support.native_builds import builds_that_run


@pytest.fixture(scope="module", autouse=True)
def two_threads() -> Iterator[None]:
    """So that the keys of a sentence are divided."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def searched(
    entries: KeysAlone, chosen: list[np.ndarray[Any, Any]], build: str | None = None
) -> CompiledSentenceSearch:
    native = library() if build is None else load(build)
    if native is None:
        pytest.skip("nothing was compiled: no C++ compiler")
    return CompiledSentenceSearch(native, entries, chosen)  # type: ignore[arg-type]


def assert_nearest(own: CompiledSentenceSearch, keys: Tensor, chosen: list[Any], queries: Tensor, k: int) -> None:
    """By distances: of entries that are as near, any may be found."""
    found_sq, found = own.search(queries, k)
    width = len(queries) // len(chosen)
    for row, query in enumerate(queries):
        mine = torch.from_numpy(chosen[row // width])
        finite = bool(query.isfinite().all()) and bool(query.square().sum().isfinite())
        distances_sq = (keys[mine].double() - query.double()).square().sum(1) if finite else torch.zeros(0)
        nearest_sq = distances_sq.sort().values[:k]
        count = len(nearest_sq)
        assert found[row, count:].tolist() == [-1] * (k - count)
        assert bool(found_sq[row, count:].isinf().all())
        ids = found[row, :count]
        assert len(set(ids.tolist())) == count
        assert set(ids.tolist()) <= set(mine.tolist())
        taken = distances_sq[torch.searchsorted(mine, ids)]
        smallest = 1e-6 * float(1 + query.square().sum())
        assert taken.tolist() == pytest.approx(nearest_sq.tolist(), rel=1e-5, abs=smallest)
        assert found_sq[row, :count].tolist() == pytest.approx(nearest_sq.tolist(), rel=1e-5, abs=smallest)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dim=st.sampled_from([1, 3, 8, 16, 17, 40, 129]),
    count=st.sampled_from([1, 2, 15, 16, 33, 400, 1300]),
    k=st.sampled_from([1, 4, 8, 40]),
    size=st.sampled_from([1e-6, 1e-2, 1.0, 200.0, 15000.0]),
    shape=st.sampled_from(["normal", "equal", "some equal", "one dimension", "far from 0", "one large"]),
    fitted=st.sampled_from(["to them", "to others", "to one", "to none"]),
    most_held=st.sampled_from([1, 7, 1 << 20]),
    queries=st.sampled_from(["near", "the keys", "far", "unlike numbers"]),
)
def test_the_nearest_are_found_whatever_the_keys_and_the_directions(
    seed: int, dim: int, count: int, k: int, size: float, shape: str, fitted: str, most_held: int, queries: str
) -> None:
    chance = torch.Generator().manual_seed(seed)

    def normal(rows: int) -> Tensor:
        return torch.randn(rows, dim, generator=chance)

    keys = normal(count)
    if shape == "equal":
        keys[:] = keys[0].clone()
    elif shape == "some equal":
        keys[::2] = keys[0].clone()
    elif shape == "one dimension":
        keys[:, 1:] = 0
    elif shape == "far from 0":
        keys = 3 + 1e-3 * keys
    elif shape == "one large":
        keys[::3, 0] *= 4
    keys = (size * keys).clamp(-65000, 65000).half()
    others = {"to them": keys, "to others": 1 + normal(50).half(), "to one": keys[:1], "to none": keys[:0]}
    near = keys[torch.randint(count, (6,), generator=chance)].float()
    rows = {
        "near": near + 0.3 * size * normal(6),
        "the keys": near,
        "far": near + 1e4 * size * normal(6),
        "unlike numbers": near,
    }[queries]
    if queries == "unlike numbers":
        rows[0, 0], rows[1, -1], rows[2, 0], rows[3, 0] = torch.tensor([float("nan"), float("inf"), 1e15, 1e20])
    chosen = [np.arange(count), np.arange(0, count, 3), np.empty(0, np.int64)]
    entries = KeysAlone(keys, others[fitted], most_held)
    assert_nearest(searched(entries, chosen), keys, chosen, rows, k)
    again = [np.arange(0, count, 2), np.arange(count), np.arange(count)[-1:]]  # some of which are known by now
    assert_nearest(searched(entries, again), keys, again, rows, k)


@pytest.mark.parametrize("build", builds_that_run())
@pytest.mark.parametrize("count", [40_000, 9_000])
def test_sentences_with_the_same_entries_are_searched_in_one_pass(build: str, count: int) -> None:
    """More keys than are looked at together, and more rows than are multiplied together."""
    chance = torch.Generator().manual_seed(count)
    keys = (torch.randn(count, 24, generator=chance) * torch.linspace(4, 0.1, 24)).half()
    every = np.arange(count)
    chosen = [every, every, np.arange(0, count, 7), every]
    own = searched(KeysAlone(keys), chosen, build)
    queries = keys[torch.randint(count, (4 * 5,), generator=chance)].float() + 0.2 * torch.randn(
        20, 24, generator=chance
    )
    assert_nearest(own, keys, chosen, queries, 9)
    own.keep([3, 0])
    assert_nearest(own, keys, [every, every], queries[:10], 3)


@pytest.mark.parametrize("build", builds_that_run())
def test_every_build_finds_the_same(build: str) -> None:
    chance = torch.Generator().manual_seed(1)
    keys = torch.randn(3000, 100, generator=chance).half()
    queries = torch.randn(10, 100, generator=chance)
    chosen = [np.arange(3000), np.arange(0, 3000, 2)]
    expected = searched(KeysAlone(keys), chosen).search(queries, 8)
    found = searched(KeysAlone(keys), chosen, build).search(queries, 8)
    assert found[1].tolist() == expected[1].tolist()
    assert found[0].numpy() == pytest.approx(expected[0].numpy(), rel=1e-6)


def test_a_store_that_grows_keeps_the_codes_it_has(tiny: TransformerEngine, tmp_path: Path) -> None:
    native = library()
    if native is None:
        pytest.skip("nothing was compiled: no C++ compiler")
    opened = OpenStore(Datastore.build(tmp_path / "s", some_pairs(100), tiny))
    before = opened.snapshot.index.entries
    codes = before.codes(native)
    Datastore.open(tmp_path / "s").add(some_pairs(3, start=300), tiny)
    opened.refresh()
    after = opened.snapshot.index.entries
    assert after.entries > before.entries
    assert after.codes(native) is codes
    Datastore.open(tmp_path / "s").add(some_pairs(200, start=1000), tiny)
    opened.refresh()
    grown = opened.snapshot.index.entries
    assert grown.codes(native).capacity >= grown.entries
    chosen = [np.arange(grown.entries)]
    own = CompiledSentenceSearch(native, grown, chosen)
    queries = torch.from_numpy(grown.keys_of(chosen[0][::50]).astype(np.float32)) + 0.01
    keys = torch.from_numpy(grown.keys_of(chosen[0]))
    assert_nearest(own, keys, chosen, queries, 4)


def test_what_rounding_takes_from_a_query_is_bounded() -> None:
    """The query's second number is less than half a step of its first: codes alone find the key where that is least."""
    long, short = (size * 2**0.5 / STEP for size in (64.0, 2.0))
    sample = torch.tensor([[long, 0], [-long, 0], [0, short], [0, -short]])
    keys = torch.tensor([[96.0, 1.0], [96.0, -1.0], [96.0, 3.0], [96.0, 7.0], [96.0, -7.0]]).half()
    found = searched(KeysAlone(keys, sample), [np.arange(5)]).search(torch.tensor([[96.0, 7.0]]), 1)
    assert found[1].tolist() == [[3]]


def test_what_rounding_takes_from_sums_is_bounded() -> None:
    """Codes say exactly what these keys are, but their long first numbers leave few digits of float32 to the others."""
    long, short = (size * 2**0.5 / STEP for size in (8192.0, 2.0))
    sample = torch.tensor([[long, 0], [-long, 0], [0, short], [0, -short]]).clamp(-65000, 65000)
    for first in (4096.0, 12288.0, 20480.0, 28672.0):
        keys = torch.tensor([[first, second] for second in range(-15, 16, 2)]).half()
        queries = torch.tensor([[first, 0.5 * second] for second in range(-30, 31)])
        distances_sq = (keys.double()[None] - queries.double()[:, None]).square().sum(2)
        for row, query in enumerate(queries):
            found_sq, found = searched(KeysAlone(keys, sample), [np.arange(16)]).search(query[None], 1)
            assert float(distances_sq[row, found[0, 0]]) == float(distances_sq[row].min()) == float(found_sq[0, 0])
