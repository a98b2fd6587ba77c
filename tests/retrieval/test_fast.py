"""Fast kNN-MT against a dozen slow lines of numpy, and what it must not depend on."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from datastore_pairs import some_pairs
from torch import Tensor

import knnmt.retrieval.occurrences as occurrences_module
from knnmt import Datastore, Translator
from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import BatchingConfig, FastConfig, RetrievalConfig
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.index.entries import Entries
from knnmt.retrieval.development import develop
from knnmt.retrieval.fast import SentenceStores
from knnmt.retrieval.profiles import Profile, write_profiles
from knnmt.retrieval.retriever import BatchRetrieval, OpenStore, Retrieval, Statistics

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
FOR_FAST = BuildConfig(key_dtype="float32", for_fast=True)
TEXTS = ["Satz 7 ja", "Ein Satz", "Noch ein Satz 19 ja ja", "Nein", "~"]  # no source of the store has a tilde


@pytest.fixture(scope="module")
def built(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fast") / "store"
    store = Datastore.build(path, some_pairs(20), tiny, FOR_FAST)
    store.add(some_pairs(6, "more.tsv", 20), tiny)  # a second segment
    return path


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Datastore:
    return Datastore.open(shutil.copytree(built, tmp_path / "store"))


def encoded(engine: TransformerEngine, texts: Sequence[str]) -> tuple[list[list[int]], list[Tensor]]:
    sources = engine.tokenizer.encode_sources(list(texts))
    found = engine.encode(sources)
    return sources, [states[:length] for states, length in zip(found.states, found.lengths, strict=True)]


def unit(vectors: Array) -> Array:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def slow_entries(store: Datastore, source: Sequence[int], states: Array, config: FastConfig) -> set[int]:
    """The entries of a sentence's store, one source token and one occurrence after the other."""
    occurrences, first = [], 0  # (token, state, aligned entries)
    for segment in store.segments:
        arrays = segment.arrays
        for sentence in segment.live_sentences().tolist():
            mine = np.flatnonzero(arrays["sentences"] == sentence)
            begin, end = arrays["source_offsets"][sentence : sentence + 2]
            for place, (token, state) in enumerate(
                zip(arrays["source_tokens"][begin:end], unit(arrays["source_states"][begin:end]), strict=True)
            ):
                occurrences.append((token, state, first + mine[arrays["alignment"][mine] == place]))
        first += segment.record.entries
    found: set[int] = set()
    for token, state in zip(source, unit(states), strict=True):
        near = [each for each in occurrences if config.any_token or each[0] == token]
        for _, _, entries in sorted(near, key=lambda each: -float(each[1] @ state))[: config.candidates]:
            found.update(entries.tolist())
    return found


@pytest.mark.parametrize("config", [FastConfig(3), FastConfig(1), FastConfig(1000), FastConfig(3, any_token=True)])
def test_a_sentence_gets_the_entries_of_its_tokens_nearest_occurrences(
    tiny: TransformerEngine, store: Datastore, config: FastConfig
) -> None:
    store.remove(matching(origin="own.tsv#7"))
    sources, states = encoded(tiny, TEXTS)
    found = OpenStore(store).occurrences.entries_for(sources, states, config)
    for source, of_source, ids in zip(sources, states, found, strict=True):
        assert ids.tolist() == sorted(slow_entries(store, source, of_source.numpy(), config))


def test_pieces_of_occurrences_give_what_the_whole_gives(
    tiny: TransformerEngine, store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, states = encoded(tiny, TEXTS)
    occurrences = OpenStore(store).occurrences
    for config in (FastConfig(5), FastConfig(5, any_token=True)):
        whole = occurrences.entries_for(sources, states, config)
        with monkeypatch.context() as patch:
            patch.setattr(occurrences_module, "_PIECE_BYTES", 2000)
            pieces = occurrences.entries_for(sources, states, config)
        assert [each.tolist() for each in pieces] == [each.tolist() for each in whole]


def test_equal_occurrences_fill_the_store_up_to_c(tiny: TransformerEngine, tmp_path: Path) -> None:
    pairs = [some_pairs(1, f"copy{n}.tsv")[0] for n in range(9)]
    store = Datastore.build(tmp_path / "store", pairs, tiny, FOR_FAST)
    sources, states = encoded(tiny, [pairs[0].source])
    ids = OpenStore(store).occurrences.entries_for(sources, states, FastConfig(4))[0]
    length = len(store.segments[0].target_tokens(0))
    # Which of the nine copies serve is open; those of the end token, which occurs once in each, are four.
    assert sum(1 for each in ids if store.entry(int(each)).position == length - 1) == 4


def slow_search(store: Datastore, ids: Array, query: Array, k: int) -> list[tuple[float, int]]:
    keys = unit(
        np.array([store.entry(int(each)).key for each in ids], np.float64).reshape(len(ids), store.manifest.dim)
    )
    return sorted(zip(1 - keys @ unit(query.astype(np.float64)), ids.tolist(), strict=True))[:k]


@pytest.mark.parametrize(("held", "piece"), [(None, None), (0, 1 << 20), (0, 700), (6000, 3000)])
def test_each_row_finds_the_nearest_of_its_own_sentence(store: Datastore, held: int | None, piece: int | None) -> None:
    chosen = [np.array([3, 8, 40, 41]), np.arange(90), np.array([], np.int64), np.array([17]), np.arange(30, 60)]
    stores = SentenceStores(Entries(store), chosen, "cpu", held, piece)
    queries = torch.randn(5 * 3, store.manifest.dim, generator=torch.Generator().manual_seed(1))

    def check(places: list[int], queries: Tensor) -> None:
        distances_sq, ids = stores.search(queries, 6)
        for row, (query, sentence) in enumerate(zip(queries.numpy(), np.repeat(places, 3), strict=True)):
            expected = slow_search(store, chosen[sentence], query, 6)
            count = len(expected)
            assert ids[row].tolist() == [each for _, each in expected] + [-1] * (6 - count)
            np.testing.assert_allclose(distances_sq[row, :count] / 2, [cosine for cosine, _ in expected], atol=1e-5)
            assert distances_sq[row, count:].isinf().all()

    check([0, 1, 2, 3, 4], queries)
    stores.keep([4, 1, 3])
    check([4, 1, 3], queries[:9])
    stores.keep([0, 2])
    check([4, 3], queries[:6])
    if held is not None and piece is not None:
        assert stores.bytes <= held + piece


def test_translations_do_not_depend_on_the_batch_or_on_what_is_held(
    tiny_checkpoint: Path, store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = Translator(tiny_checkpoint, device="cpu", datastore=store, fast=4, k=5)
    together = translator.translate(TEXTS, max_tokens=12)
    alone = [translator.translate(text, max_tokens=12) for text in TEXTS]
    monkeypatch.setattr("knnmt.retrieval.fast._HELD_BYTES", 0)
    unheld = translator.translate(TEXTS, max_tokens=12, batch_size=2)
    for other in (alone, unheld):
        assert [each.text for each in other] == [each.text for each in together]
        assert [each.score for each in other] == pytest.approx([each.score for each in together], abs=1e-4)
    base = translator.translate(TEXTS, max_tokens=12, datastore=None)
    nothing = translator.translate(TEXTS, max_tokens=12, interpolation_weight=0.0)
    assert [each.text for each in nothing] == [each.text for each in base]
    assert [each.text for each in together] != [each.text for each in base]
    assert 0 < translator.statistics.fast_bytes < 1 << 20
    assert "fast " in translator.statistics.summary()
