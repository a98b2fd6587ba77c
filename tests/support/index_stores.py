"""Small stores of made-up keys, and the obvious way to search them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import SEGMENTS, Manifest, SegmentRecord, read_manifest
from knnmt.datastore.prepared import texts_of
from knnmt.datastore.segment import sentence_arrays
from knnmt.datastore.slices import write_segment
from knnmt.datastore.store import Datastore
from knnmt.errors import MissingDependencyError
from knnmt.index.base import SearchResult
from knnmt.index.faiss_index import load_faiss
from knnmt.index.kinds import Kind, SearchSettings, lists_for, register_kind
from support.whole_segments import arrays_of_a_pass, arrays_of_sources

SENTENCE = 8  # entries
# Kinds of one's own, with whole keys or a byte for each dimension: knnmt has none in which every key is measured.
for _kind in (
    Kind("flat", "", lambda _entries, _dim: "Flat", SearchSettings(1, 16), lambda dim: 4 * dim),
    Kind(
        "ivf-flat", "", lambda entries, _: f"IVF{lists_for(entries)},Flat", SearchSettings(16, 0), lambda dim: 4 * dim
    ),
    Kind("ivf-sq8", "", lambda entries, _: f"IVF{lists_for(entries)},SQ8", SearchSettings(16, 32), lambda dim: dim + 8),
):
    register_kind(_kind)


def faiss_or_skip() -> Any:
    """FAISS, loaded as the package loads it; where it is not installed, the test or the module is skipped."""
    try:
        return load_faiss()
    except MissingDependencyError as error:
        pytest.skip(str(error), allow_module_level=True)


def clustered(count: int, dim: int = 32, seed: int = 0) -> Array:
    """Keys around 50 centres, as real ones lie: (count, dim) float32."""
    centres = np.random.default_rng(1234).normal(size=(50, dim))
    chance = np.random.default_rng(seed)
    return (centres[chance.integers(50, size=count)] + 0.3 * chance.normal(size=(count, dim))).astype(np.float32)


def write_store(path: Path, parts: Sequence[Array], key_dtype: str = "float16") -> Datastore:
    """A store with one segment for each part's keys; sentences of eight entries, origin `part<number>#<sentence>`.

    Segments have the same sources, but no target of one begins as one of another: no entry says the same again.
    """
    (path / SEGMENTS).mkdir(parents=True)
    records = tuple(_segment(path, number, keys.astype(key_dtype)) for number, keys in enumerate(parts))
    dim = parts[0].shape[1]
    Manifest("m", "0", "0", "de", "en", dim, 100, key_dtype, "float32", (), 1, len(parts), records).write(path)
    return Datastore.open(path)


def append_keys(path: Path, keys: Array) -> None:
    """Publish a new generation with one more segment, as `Datastore.add` does."""
    manifest = read_manifest(path)
    record = _segment(path, manifest.next_segment, keys.astype(manifest.key_dtype))
    manifest.changed((*manifest.segments, record), manifest.next_segment + 1).write(path)


def _segment(path: Path, number: int, keys: Array) -> SegmentRecord:
    entries = np.arange(len(keys), dtype=np.int32)
    sentences = entries // SENTENCE
    tokens = (entries + 37 * number) % 100
    targets = [tokens[sentences == each].tolist() for each in np.unique(sentences)]
    pairs = [SegmentPair(f"s{each}", f"t{each}", f"part{number}#{each}") for each in range(len(targets))]
    arrays = {
        "keys": keys,
        "values": tokens,
        "sentences": sentences,
        "positions": entries % SENTENCE,
        **sentence_arrays(texts_of(pairs), targets),
        **arrays_of_sources([pair.source for pair in pairs], [[each, each] for each in range(len(pairs))]),
        **arrays_of_a_pass(len(keys)),
    }
    return write_segment(path / SEGMENTS, f"{number:05d}-made.safetensors", arrays)


def all_keys(store: Datastore) -> Array:
    return np.concatenate([segment.arrays["keys"] for segment in store.segments]).astype(np.float32)


def live_ids(store: Datastore) -> Array:
    return np.flatnonzero(np.concatenate([segment.live_entries() for segment in store.segments]))


def brute_force(store: Datastore, queries: torch.Tensor, k: int) -> tuple[Array, Array]:
    """Distances and ids of the k nearest entries that are not removed, by looking at each, in float64."""
    ids = live_ids(store)
    keys = all_keys(store)[ids].astype(np.float64)
    distances_sq = ((queries.numpy().astype(np.float64)[:, None] - keys) ** 2).sum(-1)
    order = np.argsort(distances_sq, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances_sq, order, 1), ids[order]


def assert_exact(found: SearchResult, store: Datastore, queries: torch.Tensor, k: int, slack_sq: float = 0.0) -> None:
    """The result has the right distances in the right order, and ids that are at those distances; ties may differ.

    slack_sq: how much farther than the right one an entry may be
    """
    expected_sq, _ = brute_force(store, queries, k)
    there = expected_sq.shape[1]
    distances_sq, ids = (each.numpy() for each in found)
    assert distances_sq.shape == ids.shape == (len(queries), k)
    assert (ids[:, there:] == -1).all()
    assert np.isinf(distances_sq[:, there:]).all()
    ids = ids[:, :there]
    assert np.isin(ids, live_ids(store)).all()
    assert all(len(set(row)) == there for row in ids.tolist())
    own_sq = ((queries.numpy()[:, None] - all_keys(store)[ids]) ** 2).sum(-1)
    np.testing.assert_allclose(own_sq, distances_sq[:, :there], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(distances_sq[:, :there], expected_sq, rtol=1e-4, atol=1e-5 + slack_sq)


def recall(found: SearchResult, store: Datastore, queries: torch.Tensor, k: int) -> float:
    """How many of the true k nearest were found."""
    _, expected = brute_force(store, queries, k)
    rows = zip(found[1].tolist(), expected.tolist(), strict=True)
    return float(np.mean([len(set(mine) & set(true)) / k for mine, true in rows]))
