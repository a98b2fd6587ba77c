"""Stores with keys of one's own choice, and a search that is as plain as can be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from knnmt.compression.pruning import Search
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array
from knnmt.datastore.manifest import Manifest
from knnmt.datastore.prepared import texts_of
from knnmt.datastore.segment import sentence_arrays
from knnmt.datastore.slices import write_segment
from knnmt.datastore.store import Datastore
from support.whole_segments import arrays_of_a_pass, arrays_of_sources

VOCABULARY = 50
_SENTENCE = 4  # tokens, and entries, of a sentence


def made_store(path: Path, keys: Array, values: Sequence[int] | Array, segments: int = 3) -> Datastore:
    """Entry i has keys[i] and values[i]; four make a sentence (`own#0`, ...). It has states of sources, no counts."""
    (path / "segments").mkdir(parents=True)
    sentences = -(-len(values) // _SENTENCE)
    records = []
    for index, group in enumerate(np.array_split(np.arange(sentences), min(segments, sentences))):
        here = slice(int(group[0]) * _SENTENCE, (int(group[-1]) + 1) * _SENTENCE)
        tokens = np.array(values[here], np.int32)
        targets = [tokens[start : start + _SENTENCE].tolist() for start in range(0, len(tokens), _SENTENCE)]
        pairs = [SegmentPair(f"Satz {number}", f"line {number}", f"own#{number}") for number in group]
        arrays = {
            "keys": keys[here],
            "values": tokens,
            "sentences": np.repeat(np.arange(len(group)), _SENTENCE)[: len(tokens)].astype(np.int32),
            "positions": np.tile(np.arange(_SENTENCE), len(group))[: len(tokens)].astype(np.int32),
            **sentence_arrays(texts_of(pairs), targets),
            **arrays_of_sources([pair.source for pair in pairs], [[number, number] for number in group.tolist()]),
            "source_states": np.repeat(group[:, None], 2, 0).repeat(7, 1).astype(keys.dtype),
            **arrays_of_a_pass(len(tokens)),
        }
        records.append(write_segment(path / "segments", f"{index:05d}-made.safetensors", arrays))
    Manifest(
        model_name="made",
        model="0" * 64,
        tokenizer="1" * 64,
        source_language="de",
        target_language="en",
        dim=keys.shape[1],
        vocabulary=VOCABULARY,
        key_dtype=str(keys.dtype),
        compute_dtype="float32",
        next_segment=len(records),
        segments=tuple(records),
    ).write(path)
    return Datastore.open(path)


def column(store: Datastore, name: str) -> Array:
    """An array with a row for each entry, of the live entries of all segments."""
    return np.concatenate([segment.arrays[name][segment.live_entries()] for segment in store.segments])


def live_ids(store: Datastore) -> Array:
    return np.flatnonzero(np.concatenate([segment.live_entries() for segment in store.segments]))


def plain_search(store: Datastore) -> Search:
    """Every distance, sorted; of entries equally near the earlier comes first."""
    keys, ids = column(store, "keys").astype(np.float64), live_ids(store)

    def search(queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        distances_sq = ((queries.double().numpy()[:, None] - keys[None]) ** 2).sum(-1)
        nearest = distances_sq.argsort(axis=1, kind="stable")[:, :k]
        padding = ((0, 0), (0, k - nearest.shape[1]))
        found = np.pad(ids[nearest], padding, constant_values=-1)
        distances = np.pad(np.take_along_axis(distances_sq, nearest, 1), padding, constant_values=np.inf)
        return torch.from_numpy(distances), torch.from_numpy(found)

    return search


def random_keys(entries: int, dim: int, seed: int = 0, dtype: str = "float32") -> Array:
    """Keys that vary differently along every direction, around a mean that is not zero and drifts from row to row."""
    generator = np.random.default_rng(seed)
    rotation = np.linalg.qr(generator.normal(size=(dim, dim)))[0]
    rows = generator.normal(size=(entries, dim)) * 0.8 ** np.arange(dim) + np.linspace(0, 3, entries)[:, None]
    return np.asarray((rows @ rotation + 20).astype(dtype))


def random_values(entries: int, seed: int = 0, kinds: int = 3) -> Array:
    return np.random.default_rng(seed).integers(0, kinds, entries).astype(np.int32)
