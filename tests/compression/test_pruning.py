"""Greedy merging beside a plain one, and what must hold of every result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from knnmt.compression.pca import KeyProjection, reduce
from knnmt.compression.pruning import merge, nearest, prune, prune_by
from knnmt.datastore import merging
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.index.store_index import StoreIndex
from support.datastore_pairs import some_pairs
from support.made_stores import column, live_ids, made_store, plain_search, random_keys, random_values


def plainly(keys: Array, values: Array, k: int, seed: int) -> dict[int, int]:
    """Entries that stay, with their counts: the published algorithm, one step a line."""
    counts = dict.fromkeys(range(len(keys)), 1)
    for entry in np.random.default_rng(seed).permutation(len(keys)).tolist():
        if entry not in counts:
            continue
        distances_sq = ((keys.astype(np.float64) - keys[entry]) ** 2).sum(axis=1)
        others = [other for other in distances_sq.argsort(kind="stable").tolist() if other != entry]
        for other in others[:k]:
            if values[other] == values[entry] and counts.get(other) == 1:
                counts[entry] += counts.pop(other)
    return counts


@given(
    entries=st.integers(1, 40),
    k=st.integers(1, 6),
    seed=st.integers(0, 99),
    places=st.integers(1, 12),
    removed=st.integers(0, 3),
)
def test_pruning_is_the_plain_algorithm(
    tmp_path_factory: pytest.TempPathFactory, entries: int, k: int, seed: int, places: int, removed: int
) -> None:
    """Keys on a coarse grid: many are equal, and then an entry is not always among its own nearest."""
    keys = np.random.default_rng(seed).integers(0, places, (entries, 2)).astype(np.float32)
    values = random_values(entries, seed)
    place = tmp_path_factory.mktemp("s")
    store = made_store(place / "s", keys, values)
    if removed and entries > 4:
        store.remove(matching(origin=f"own#{removed % ((entries + 3) // 4)}"))
    live = live_ids(store)
    expected = plainly(keys[live], values[live], k, seed)
    made = prune(store, place / "new", plain_search(store), k, seed)
    kept = live[sorted(expected)]
    np.testing.assert_array_equal(column(made, "keys"), keys[kept])
    np.testing.assert_array_equal(column(made, "values"), values[kept])
    assert column(made, "counts").tolist() == [expected[entry] for entry in sorted(expected)]
    assert column(made, "counts").sum() == store.manifest.live_entries
    assert list(made.pairs()) == list(store.pairs())
    assert list(made.verify()) == []


@given(entries=st.integers(2, 60), k=st.integers(1, 5), seed=st.integers(0, 99))
def test_what_absorbs_is_never_absorbed(entries: int, k: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    neighbours = np.stack([generator.permutation(np.delete(np.arange(entries), i))[:k] for i in range(entries)])
    neighbours[generator.random(neighbours.shape) < 0.1] = -1
    values = random_values(entries, seed, kinds=2)
    absorbers = merge(neighbours, values, seed)
    gone = np.flatnonzero(absorbers >= 0)
    assert (absorbers[absorbers[gone]] == -1).all()
    assert (values[absorbers[gone]] == values[gone]).all()
    assert all(entry in neighbours[absorbers[entry]] for entry in gone)
    np.testing.assert_array_equal(absorbers, merge(neighbours, values, seed))


def test_equal_keys_that_hide_an_entry_from_itself_do_not_cost_it_a_neighbour(tmp_path: Path) -> None:
    store = made_store(tmp_path / "s", np.zeros((6, 2), np.float32), [1] * 6)
    found = nearest(store, plain_search(store), 2)
    assert found.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1], [0, 1]]
    lonely = made_store(tmp_path / "t", np.zeros((1, 2), np.float32), [1])
    assert nearest(lonely, plain_search(lonely), 2).tolist() == [[-1, -1]]


def test_blocks_do_not_matter(tmp_path: Path) -> None:
    store = made_store(tmp_path / "s", random_keys(300, 4), random_values(300, kinds=2))
    steps: list[int] = []
    neighbours = nearest(store, plain_search(store), 2, lambda n, _: steps.append(n), block_rows=17)
    np.testing.assert_array_equal(neighbours, nearest(store, plain_search(store), 2))
    assert steps == sorted(set(steps))
    assert len(steps) >= 300 // 17
    assert steps[-1] == 300
    values = column(store, "values")
    np.testing.assert_array_equal(merge(neighbours, values, 3, block_rows=11), merge(neighbours, values, 3))


def test_the_order_comes_from_the_seed(tmp_path: Path) -> None:
    store = made_store(tmp_path / "s", random_keys(300, 4), random_values(300, kinds=2))
    made = prune(store, tmp_path / "a", plain_search(store), seed=3)
    again = prune(store, tmp_path / "b", plain_search(store), seed=3)
    assert again.manifest == made.manifest  # which has the checksums of all files
    other = prune(store, tmp_path / "c", plain_search(store), seed=4)
    assert other.manifest.segments != made.manifest.segments
    assert made.manifest.transforms == ("prune:k=2,seed=3",)
    assert 100 < made.entries < 300


def test_every_array_of_an_entry_goes_with_it_and_sentences_stay_whole(tmp_path: Path) -> None:
    keys = np.arange(24, dtype=np.float32)[:, None] * np.ones((1, 2), np.float32)
    keys[4:8] = 50  # one sentence whose four entries are one point; the others lie apart, with values of their own
    store = made_store(tmp_path / "s", keys, [*range(4), *[9] * 4, *range(20, 36)])
    made = prune(store, tmp_path / "new", plain_search(store), k=3)
    assert column(made, "counts").tolist() == [1] * 4 + [4] + [1] * 16
    (segment,) = made.segments
    assert segment.arrays["counts"].dtype == np.int32
    assert segment.target_tokens(1).tolist() == [9] * 4
    assert segment.arrays["source_tokens"].tolist() == np.repeat(np.arange(6), 2).tolist()
    kept = made.entry(4)
    assert segment.arrays["alignment"][4] == kept.position % 2
    assert (kept.value, kept.pair.origin) == (9, "own#1")


def test_a_segment_may_lose_all_its_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = np.zeros((12, 2), np.float32)
    keys[8:] = 0.1  # the last segment's four entries lie among the first eight
    store = made_store(tmp_path / "s", keys, [1] * 12)
    monkeypatch.setattr(merging, "SLICE_ENTRIES", 1)
    made = [prune(store, tmp_path / f"p{seed}", plain_search(store), k=11, seed=seed) for seed in range(12)]
    empty = [each for each in made if each.segments[-1].record.entries == 0]
    assert empty
    for each in empty:
        assert each.entries == 1
        assert list(each.verify()) == []
        assert len(list(each.pairs())) == 3
        assert StoreIndex(each).search(torch.zeros(1, 2), 2)[1].tolist() == [[0, -1]]
        again, _ = reduce(
            prune(each, each.path.with_suffix(".p"), StoreIndex(each).search), each.path.with_suffix(".r"), 1
        )
        assert column(again, "counts").tolist() == [12]
        again.remove(matching(origin="own#2"))
        again.compact()
        assert list(again.verify()) == []


def test_counts_multiply_through(tmp_path: Path) -> None:
    store = made_store(tmp_path / "s", np.zeros((12, 2), np.float32), [1] * 12)
    once = prune(store, tmp_path / "a", plain_search(store), k=2)
    twice = prune(once, tmp_path / "b", plain_search(once), k=2, seed=1)
    assert twice.manifest.transforms == ("prune:k=2,seed=0", "prune:k=2,seed=1")
    assert twice.entries < once.entries < 12
    assert column(twice, "counts").sum() == column(once, "counts").sum() == 12


@pytest.mark.parametrize("key_dtype", ["float16", "float32"])
def test_pca_and_pruning_follow_each_other_and_every_entry_knows_where_it_came_from(
    tmp_path: Path, tiny: TransformerEngine, key_dtype: str
) -> None:
    pairs = some_pairs(12)
    store = Datastore.build(tmp_path / "s", pairs, tiny, BuildConfig(key_dtype=key_dtype))
    store.remove(matching(origin="own.tsv#3"))
    reduced, _ = reduce(store, tmp_path / "r", 16)
    first = prune(reduced, tmp_path / "rp", plain_search(reduced), k=2)
    pruned = prune(store, tmp_path / "p", plain_search(store), k=2)
    second, _ = reduce(pruned, tmp_path / "pr", 16)
    third, _ = reduce(first, tmp_path / "rpr", 6)
    originals = {(entry.pair.origin, entry.position): entry for entry in map(store.entry, range(store.entries))}
    for made, transforms in (
        (first, ("pca:16", "prune:k=2,seed=0")),
        (second, ("prune:k=2,seed=0", "pca:16")),
        (third, ("pca:16", "prune:k=2,seed=0", "pca:6")),
    ):
        assert made.manifest.transforms == transforms
        assert made.entries < store.manifest.live_entries
        assert column(made, "counts").sum() == store.manifest.live_entries
        assert list(made.pairs()) == [pair for pair in pairs if pair.origin != "own.tsv#3"]
        assert list(made.verify()) == []
        Datastore.open(made.path, engine=tiny)  # whose dimension is not that of the keys any more
        projection = KeyProjection.of(made)
        assert projection is not None
        for entry in map(made.entry, range(made.entries)):
            original = originals[entry.pair.origin, entry.position]
            assert entry.value == entry.target_tokens[entry.position] == original.value
            assert entry.pair == original.pair
            query = torch.from_numpy(original.key.astype(np.float32))[None]
            tolerance = 1e-4 if key_dtype == "float32" else 2e-2
            np.testing.assert_allclose(projection(query)[0], entry.key.astype(np.float32), atol=tolerance)
        with pytest.raises(SettingError, match=r"its keys were transformed after building \(.*nothing can be added"):
            made.add(pairs, tiny)


def test_a_search_that_knows_other_entries_is_refused(tmp_path: Path) -> None:
    store = made_store(tmp_path / "s", random_keys(40, 3), random_values(40))
    stale = plain_search(store)
    store.remove(matching(origin="own#2"))
    with pytest.raises(SettingError, match=r"found entries that .* does not have: index the store again"):
        prune(store, tmp_path / "new", stale)
    assert not (tmp_path / "new.making").exists()


def test_settings_that_cannot_work_are_said(tmp_path: Path) -> None:
    store = made_store(tmp_path / "s", random_keys(8, 3), random_values(8))
    with pytest.raises(SettingError, match="k must be at least 1, got 0"):
        prune(store, tmp_path / "new", plain_search(store), k=0)
    with pytest.raises(SettingError, match="seed must not be negative, got -1"):
        prune(store, tmp_path / "new", plain_search(store), seed=-1)


@pytest.mark.parametrize("k", [1, 5, 80])
def test_the_index_package_searches_as_the_plain_reference(tmp_path: Path, k: int) -> None:
    store = made_store(tmp_path / "s", random_keys(60, 6), random_values(60))
    store.remove(matching(match=r"Satz (2|11)$"))
    queries: Tensor = torch.from_numpy(random_keys(20, 6, seed=1))
    expected_sq, expected = plain_search(store)(queries, k)
    distances_sq, ids = StoreIndex(store).search(queries, k)
    assert torch.equal(ids, expected)
    np.testing.assert_allclose(distances_sq, expected_sq, rtol=1e-3, atol=2e-3)


# Rules of one's own ---------------------------------------------------------------------------------------------------


def test_a_rule_of_ones_own_decides_by_the_neighbours(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(25), tiny)
    store.remove(matching(origin=store.segments[0].pair(3).origin))
    search, keys = plain_search(store), column(store, "keys")
    seen = []

    def every_second(neighbours: Array) -> Array:
        seen.append(neighbours)
        chosen: Array = np.arange(len(neighbours)) % 2 == 0
        return chosen

    made = prune_by(store, tmp_path / "new", search, 3, every_second, "second:k=3")
    np.testing.assert_array_equal(seen[0], nearest(store, search, 3))
    np.testing.assert_array_equal(column(made, "keys"), keys[::2])
    assert made.manifest.transforms == ("second:k=3",)
    assert list(made.pairs()) == list(store.pairs())
    assert list(made.verify()) == []
