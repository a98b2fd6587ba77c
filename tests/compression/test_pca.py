"""Reduced keys: the numbers of a singular value decomposition, for any blocks, types and chains of transforms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knnmt.compression.pca import KeyProjection, fit, reduce
from knnmt.datastore.arrays import Array
from knnmt.datastore.store import Datastore, matching
from knnmt.errors import SettingError
from support.made_stores import column, made_store, random_keys, random_values

DIM = 12


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    return made_store(tmp_path / "s", random_keys(200, DIM), random_values(200))


def by_decomposition(keys: Array) -> tuple[Array, Array, Array]:
    """Mean, components and parts of the variance, the textbook way."""
    keys = keys.astype(np.float64)
    _, singular, axes = np.linalg.svd(keys - keys.mean(0), full_matrices=False)
    signs = np.array([1 if axis[np.abs(axis).argmax()] > 0 else -1 for axis in axes])
    return keys.mean(0), (axes * signs[:, None]).T, singular**2 / (singular**2).sum()


def distances(rows: Array) -> Array:
    rows = rows.astype(np.float64)
    return np.asarray(np.linalg.norm(rows[:, None] - rows[None], axis=-1))


@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_fit_by_blocks_is_the_decomposition_of_all_live_keys(tmp_path: Path, rows: int, dtype: str) -> None:
    store = made_store(tmp_path / "s", random_keys(200, DIM, dtype=dtype), random_values(200))
    store.remove(matching(match=r"Satz \d*3$"))
    assert store.manifest.live_entries == 180
    projection = fit(store, 5, block_rows=rows)
    mean, components, explained = by_decomposition(column(store, "keys"))
    np.testing.assert_allclose(projection.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(projection.components, components[:, :5], atol=1e-5)
    np.testing.assert_allclose(projection.explained_variance, explained[:5], rtol=1e-4)
    assert projection.components.dtype == torch.float32


def test_a_distant_mean_does_not_drown_the_variance(tmp_path: Path) -> None:
    """Squares of these keys differ first in their tenth digit or so; a plain sum of squares would lose that."""
    keys = (random_keys(300, 4, seed=1) - 20) / 8 + np.float32(2**17)
    projection = fit(made_store(tmp_path / "s", keys.astype(np.float32), random_values(300)), 4)
    _, components, explained = by_decomposition(keys.astype(np.float32))
    np.testing.assert_allclose(projection.components, components, atol=1e-5)
    np.testing.assert_allclose(projection.explained_variance, explained, rtol=1e-4)


@given(entries=st.integers(1, 30), dim=st.integers(1, 6), seed=st.integers(0, 1000), data=st.data())
def test_projections_of_any_keys_are_orthonormal_and_explain_what_they_keep(
    tmp_path_factory: pytest.TempPathFactory, entries: int, dim: int, seed: int, data: st.DataObject
) -> None:
    to_dim = data.draw(st.integers(1, dim))
    keys = random_keys(entries, dim, seed)
    projection = fit(made_store(tmp_path_factory.mktemp("s") / "s", keys, random_values(entries)), to_dim)
    np.testing.assert_allclose(projection.components.T @ projection.components, np.eye(to_dim), atol=1e-5)
    parts = projection.explained_variance.numpy()
    assert (np.diff(parts) <= 0).all()
    variance = projection(torch.from_numpy(keys)).numpy().astype(np.float64).var(axis=0)
    total = keys.astype(np.float64).var(axis=0).sum()
    np.testing.assert_allclose(parts * total, variance, atol=1e-4)
    if to_dim == dim and entries > 1:
        assert parts.sum() == pytest.approx(1)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 0.03)])
def test_all_dimensions_keep_all_distances(tmp_path: Path, dtype: str, tolerance: float) -> None:
    store = made_store(tmp_path / "s", random_keys(60, DIM, dtype=dtype), random_values(60))
    made, projection = reduce(store, tmp_path / "new", DIM)
    assert column(made, "keys").dtype == dtype
    np.testing.assert_allclose(distances(column(made, "keys")), distances(column(store, "keys")), atol=tolerance)
    assert projection.explained_variance.sum() == pytest.approx(1)


def test_a_reduced_store_holds_projected_keys_and_all_the_rest(store: Datastore, tmp_path: Path) -> None:
    store.remove(matching(origin="own#7"))
    steps: list[int] = []
    made, projection = reduce(store, tmp_path / "new", 5, lambda keys, _: steps.append(keys))
    assert steps == sorted(steps)
    assert steps[-1] == 2 * 196
    assert (made.manifest.dim, made.manifest.transforms, made.manifest.generation) == (5, ("pca:5",), 1)
    assert made.manifest.entries == made.manifest.live_entries == store.manifest.live_entries == 196
    assert list(made.pairs()) == list(store.pairs())
    for name in ("values", "positions", "alignment"):
        np.testing.assert_array_equal(column(made, name), column(store, name))
    expected = (column(store, "keys") - projection.mean.numpy()) @ projection.components.numpy()
    np.testing.assert_allclose(column(made, "keys"), expected, atol=1e-4)
    (segment,) = made.segments  # small segments are joined
    assert segment.arrays["source_states"].shape == (2 * 49, 7)
    np.testing.assert_array_equal(segment.arrays["source_states"][:, 0], np.repeat(np.delete(np.arange(50), 7), 2))
    assert list(made.verify()) == []
    assert list(Datastore.open(store.path, verify=True).pairs()) == list(store.pairs())


def test_queries_go_through_the_projection_that_is_in_the_store(store: Datastore, tmp_path: Path) -> None:
    made, returned = reduce(store, tmp_path / "new", 5)
    read = KeyProjection.of(Datastore.open(made.path))
    assert read is not None
    assert KeyProjection.of(store) is None
    for name in ("mean", "components", "explained_variance"):
        assert torch.equal(getattr(read, name), getattr(returned, name))
    queries = torch.from_numpy(column(store, "keys"))
    np.testing.assert_allclose(read(queries), column(made, "keys"), atol=1e-5)
    assert read(queries.half()).dtype == torch.float32
    assert read.to("cpu")(queries).shape == (200, 5)


def test_reducing_twice_is_reducing_once(store: Datastore, tmp_path: Path) -> None:
    once, directly = reduce(store, tmp_path / "once", 3)
    halfway, _ = reduce(store, tmp_path / "half", 8)
    twice, composed = reduce(halfway, tmp_path / "twice", 3)
    assert twice.manifest.transforms == ("pca:8", "pca:3")
    np.testing.assert_allclose(composed(torch.from_numpy(column(store, "keys"))), column(twice, "keys"), atol=1e-4)
    np.testing.assert_allclose(composed.explained_variance, directly.explained_variance, rtol=1e-4)
    np.testing.assert_allclose(distances(column(twice, "keys")), distances(column(once, "keys")), atol=1e-4)
    assert list(twice.verify()) == []


def test_the_same_store_gives_the_same_bytes(store: Datastore, tmp_path: Path) -> None:
    made = [reduce(store, tmp_path / name, 5)[0] for name in ("a", "b")]
    assert made[0].manifest == made[1].manifest  # which has the checksums of all files


def test_a_reduced_store_can_lose_sentences_and_be_compacted_and_keeps_its_projection(
    store: Datastore, tmp_path: Path
) -> None:
    made, projection = reduce(store, tmp_path / "new", 5)
    reader = Datastore.open(made.path)
    made.remove(matching(match="Satz 1"))
    made.compact()
    assert made.manifest.entries == 200 - 4 * 11
    again = KeyProjection.of(Datastore.open(made.path, verify=True))
    assert again is not None
    assert torch.equal(again.components, projection.components)
    assert reader.refresh()
    assert reader.projection is not None


def test_dimensions_that_cannot_be_are_refused_before_anything_is_made(store: Datastore, tmp_path: Path) -> None:
    for dim in (0, DIM + 1):
        with pytest.raises(SettingError, match=rf"dim must lie between 1 and the 12 dimensions of .*s, got {dim}"):
            reduce(store, tmp_path / "new", dim)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_keys_that_float16_cannot_hold_are_refused_and_nothing_stays_behind(tmp_path: Path) -> None:
    keys = np.full((8, 4), 40_000, np.float16) * np.where(np.arange(8) % 2, 1, -1)[:, None].astype(np.float16)
    store = made_store(tmp_path / "s", keys, [1] * 8)
    with pytest.raises(SettingError, match="not a finite number in float16; build the store with float32 keys"):
        reduce(store, tmp_path / "new", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
