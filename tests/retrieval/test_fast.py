"""Fast kNN-MT against a dozen slow lines of numpy, and what it must not depend on."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from knnmt import Translator
from knnmt.adapting.development import search_text
from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import FastConfig, RetrievalConfig
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.index.entries import Entries
from knnmt.retrieval import open_store
from knnmt.retrieval.occurrences import SourceOccurrences
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.sentence_stores import SentenceStores
from knnmt_lab.reproduction.choosers import CHOOSERS
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
FOR_FAST = BuildConfig(key_dtype="float32", for_fast=True)
TEXTS = ["Satz 7 ja", "Ein Satz", "Noch ein Satz 19 ja ja", "Nein", "~"]  # no source of the store has a tilde


def nothing_yet(states: torch.Tensor) -> torch.Tensor:
    """The history of rows at their first step."""
    return torch.empty((*states.shape[:2], 0), dtype=torch.long)


@pytest.fixture(scope="module")
def built(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fast") / "store"
    store = Datastore.build(path, some_pairs(20), tiny, FOR_FAST)
    store.add(some_pairs(6, "more.tsv", 20), tiny)  # a second segment
    return path


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Datastore:
    return Datastore.open(shutil.copytree(built, tmp_path / "store"))


def test_a_filter_by_alignment_keeps_the_entries_of_source_tokens_that_a_sentence_has(
    tiny: TransformerEngine, store: Datastore
) -> None:
    sources = tiny.tokenizer.encode_sources(TEXTS)
    every = OpenStore(store).snapshot.segment_entries(sources, 6)
    found = OpenStore(store, chooser=CHOOSERS["aligned"]).snapshot.segment_entries(sources, 6)
    aligned_with = []
    for segment in store.segments:
        for entry, sentence in enumerate(segment.arrays["sentences"].tolist()):
            place = int(segment.arrays["alignment"][entry])
            aligned_with.append(int(segment.source_tokens()[segment.arrays["source_offsets"][sentence] + place]))
    for source, mine, kept in zip(sources, every, found, strict=True):
        assert kept.tolist() == [entry for entry in mine.tolist() if aligned_with[entry] in source]
    assert 0 < sum(map(len, found)) < sum(map(len, every))


def encoded(engine: TransformerEngine, texts: Sequence[str]) -> tuple[list[list[int]], list[Tensor]]:
    sources = engine.tokenizer.encode_sources(list(texts))
    found = engine.encode(sources)
    return sources, [states[:length] for states, length in zip(found.states, found.lengths, strict=True)]


def unit(vectors: Array) -> Array:
    lengths: Array = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / lengths


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
    if not config.any_token and not {token for token, _, _ in occurrences} & set(source[:-1]):
        return found
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


def test_a_sentence_of_which_only_the_end_is_known_gets_no_store(tiny: TransformerEngine, store: Datastore) -> None:
    sources, states = encoded(tiny, ["ja", "ja"])
    unknown = max(int(segment.arrays["source_tokens"].max()) for segment in store.segments) + 1
    sources[1] = [*[unknown] * (len(sources[1]) - 1), sources[1][-1]]
    known, only_end = OpenStore(store).occurrences.entries_for(sources, states, FastConfig(3))
    assert len(known)
    assert not len(only_end)


def test_pieces_of_occurrences_give_what_the_whole_gives(tiny: TransformerEngine, store: Datastore) -> None:
    sources, states = encoded(tiny, TEXTS)
    occurrences = OpenStore(store).occurrences
    in_pieces = SourceOccurrences(Entries(store), piece_bytes=2000)
    for config in (FastConfig(5), FastConfig(5, any_token=True)):
        whole = occurrences.entries_for(sources, states, config)
        pieces = in_pieces.entries_for(sources, states, config)
        assert [each.tolist() for each in pieces] == [each.tolist() for each in whole]


def test_equal_occurrences_are_there_once(tiny: TransformerEngine, tmp_path: Path) -> None:
    """Which of the nine copies are near enough is open; what they say is there once, and counts nine times."""
    pairs = [some_pairs(1, f"copy{n}.tsv")[0] for n in range(9)]
    store = Datastore.build(tmp_path / "store", pairs, tiny, FOR_FAST)
    sources, states = encoded(tiny, [pairs[0].source])
    opened = OpenStore(store)
    ids = opened.occurrences.entries_for(sources, states, FastConfig(4))[0]
    length = len(store.segments[0].target_tokens(0))
    assert ids.tolist() == list(range(length))
    counts = opened.counts(torch.from_numpy(ids), merged=False)
    assert counts is not None
    assert counts.tolist() == [9] * length


def slow_search(store: Datastore, ids: Array, query: Array, k: int) -> list[tuple[float, int]]:
    keys = unit(
        np.array([store.entry(int(each)).key for each in ids], np.float64).reshape(len(ids), store.manifest.dim)
    )
    return sorted(zip(1 - keys @ unit(query.astype(np.float64)), ids.tolist(), strict=True))[:k]


@pytest.mark.parametrize(("held", "piece"), [(None, None), (0, 1 << 20), (0, 700), (6000, 3000)])
def test_each_row_finds_the_nearest_of_its_own_sentence(store: Datastore, held: int | None, piece: int | None) -> None:
    chosen = [np.array([3, 8, 40, 41]), np.arange(90), np.array([], np.int64), np.array([17]), np.arange(30, 60)]
    stores = SentenceStores(Entries(store), chosen, "cpu", cosine=True, held_bytes=held, piece_bytes=piece)
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
    translator = Translator(tiny_checkpoint, device="cpu", datastore=store, fast=4, k=5, settings="raw")
    together = translator.translate(TEXTS, max_tokens=12)
    alone = [translator.translate(text, max_tokens=12) for text in TEXTS]
    monkeypatch.setattr(open_store, "SentenceStores", partial(SentenceStores, held_bytes=0))
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


def test_a_step_mixes_by_cosine_beside_sentences_that_search_the_whole_store(
    tiny: TransformerEngine, store: Datastore
) -> None:
    opened = OpenStore(store)
    config = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=0.05, fast=FastConfig(3))
    fast, whole = Retrieval(opened, config), Retrieval(opened, RetrievalConfig(2, 0.5, 10.0))
    sources = tiny.tokenizer.encode_sources(TEXTS[:3])
    encoded_sources = tiny.encode(sources)
    batch = BatchRetrieval([None, fast, whole])
    batch.begin(encoded_sources, sources)
    generator = torch.Generator().manual_seed(2)
    states = torch.randn(3, 2, tiny.dim, generator=generator)
    base = torch.log_softmax(torch.randn(3, 2, tiny.vocabulary_size, generator=generator), -1)
    mixed = base.clone()
    mixed = mixed + batch.mix(states, mixed, nothing_yet(states))[..., None]

    assert torch.allclose(mixed[0], base[0], atol=1e-6)
    of_source = encoded_sources.states[1, : len(sources[1])].numpy()
    ids = np.array(sorted(slow_entries(store, sources[1], of_source, FastConfig(3))))
    for row in range(2):
        near = slow_search(store, ids, states[1, row].numpy(), 4)
        shares = np.exp([-cosine / 0.05 for cosine, _ in near])
        expected = 0.4 * base[1, row].double().exp().numpy()
        for share, (_, entry) in zip(shares / shares.sum(), near, strict=True):
            expected[store.entry(entry).value] += 0.6 * share
        np.testing.assert_allclose(mixed[1, row].exp(), expected, atol=1e-5)
    alone = base[2:].clone()
    only = BatchRetrieval([whole])
    assert torch.allclose(mixed[2:], alone + only.mix(states[2:], alone, nothing_yet(states[2:]))[..., None], atol=1e-6)
    assert (batch.statistics.rows, batch.statistics.searches) == (4, 4)


def test_a_gate_keeps_rows_from_their_sentences_store(tiny: TransformerEngine, store: Datastore) -> None:
    config = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=0.05, fast=FastConfig(3))
    sources = tiny.tokenizer.encode_sources(TEXTS[:2])
    wanted = torch.tensor([True, False, False, True])
    batch = BatchRetrieval([Retrieval(OpenStore(store), config, gate=lambda *_: (wanted, None))] * 2)
    batch.begin(tiny.encode(sources), sources)
    base = torch.log_softmax(torch.randn(2, 2, tiny.vocabulary_size), -1)
    mixed = base.clone()
    states = torch.randn(2, 2, tiny.dim)
    mixed = mixed + batch.mix(states, mixed, nothing_yet(states))[..., None]
    assert (mixed - base).abs().amax(-1).flatten().gt(1e-3).tolist() == wanted.tolist()
    assert batch.statistics.searches == 2


def test_development_text_is_searched_as_in_translating(tiny: TransformerEngine, store: Datastore) -> None:
    opened, config = OpenStore(store), FastConfig(3)
    pairs = some_pairs(20, start=40)
    found = search_text(tiny, opened, pairs, k=5, scope=config)
    sources, states = encoded(tiny, [pairs[-1].source])
    ids = np.array(sorted(slow_entries(store, sources[0], states[0].numpy(), config)))
    for row in (found.sentences == found.pairs - 1).nonzero()[:, 0].tolist():
        expected = slow_search(store, ids, found.states[row].numpy(), 5)
        np.testing.assert_allclose(found.neighbours.distances_sq[row] / 2, [each for each, _ in expected], atol=1e-5)
        entries = [store.entry(int(each)) for each in found.neighbours.ids[row]]
        assert found.neighbours.tokens[row].tolist() == [each.value for each in entries]


def test_an_open_store_follows_what_is_added_and_removed(tiny: TransformerEngine, store: Datastore) -> None:
    opened, config = OpenStore(store), FastConfig(100)
    sources, states = encoded(tiny, ["~"])
    tilde, end = sources[0]

    def origins() -> set[str]:
        ids = opened.occurrences.entries_for([[tilde, tilde]], [states[0][[0, 0]]], config)[0]
        return {opened.datastore.entry(int(each)).pair.origin for each in ids}

    assert not origins()
    writer = Datastore.open(store.path)
    pair = some_pairs(1, "new.tsv")[0]
    writer.add([type(pair)("~~", "wave wave", "new.tsv#0")], tiny)
    assert opened.refresh()
    assert origins() <= {"new.tsv#0"}
    ends = opened.occurrences.entries_for([[end, end]], [states[0][[1, 1]]], config)[0]
    assert len(ends) == 27  # the end token's occurrences: one of every sentence, the new one's too
    writer.remove(matching(origin="new.tsv"))
    opened.refresh()
    assert not origins()
    assert len(opened.occurrences.entries_for([[end, end]], [states[0][[1, 1]]], config)[0]) == 26


def test_an_emptied_store_leaves_the_model_alone(tiny_checkpoint: Path, store: Datastore) -> None:
    translator = Translator(tiny_checkpoint, device="cpu", settings="raw")
    alone = translator.translate(["abc"], max_tokens=8)[0].text
    store.remove(lambda _: True)
    for _ in range(2):
        for any_token in (False, True):
            found = translator.translate(
                ["abc"], datastore=store.path, fast=True, fast_any_token=any_token, max_tokens=8
            )
            assert found[0].text == alone
        store.compact()


def test_compacted_reduced_and_pruned_stores_serve(tiny_checkpoint: Path, store: Datastore, tmp_path: Path) -> None:
    translator = Translator(tiny_checkpoint, device="cpu", settings="raw")
    store.remove(matching(origin="own.tsv#3"))
    settings: dict[str, Any] = {"fast": 4, "k": 5, "max_tokens": 12}
    before = [each.text for each in translator.translate(TEXTS, datastore=store.path, **settings)]
    compacted = Datastore.open(shutil.copytree(store.path, tmp_path / "compacted"))
    compacted.compact()
    assert len(compacted.segments) == 1
    assert not list(compacted.verify())
    assert [each.text for each in translator.translate(TEXTS, datastore=compacted, **settings)] == before

    reduced, _ = reduce(store, tmp_path / "reduced", 8)
    pruned = prune(reduced, tmp_path / "pruned", OpenStore(reduced).index.search)
    for made in (reduced, pruned):
        assert made.manifest.for_fast
        assert not list(made.verify())
        assert translator.translate("Satz 7 ja", datastore=made, evidence=True, **settings).tokens[0].evidence


def test_what_does_not_go_with_fast_is_refused(
    tiny: TransformerEngine, tiny_checkpoint: Path, store: Datastore, tmp_path: Path
) -> None:
    plain = Datastore.build(tmp_path / "plain", some_pairs(5), tiny)
    translator = Translator(tiny_checkpoint, device="cpu", settings="raw")
    with pytest.raises(SettingError, match="--for-fast"):
        translator.translate("ja", datastore=plain, fast=True)
    whole = RetrievalConfig(4, 0.5, 10.0)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"fast": True, "cache": 3.0}, "fast and cache exclude"),
        ({"fast": True, "fading": True}, "must be tuned"),
        ({"fast": True, "profile": whole}, "exclude each other"),
        ({"fast": True, "profile": "estimated"}, "exclude each other"),
        ({"fast": -1}, "at least 1"),
        ({"fast_any_token": True}, "also give fast"),
    ]
    for settings, message in refused:
        with pytest.raises(SettingError, match=message):
            translator.translate("ja", datastore=store, **settings)
