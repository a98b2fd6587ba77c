"""Several steps in one compiled call find what the same steps find one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from knnmt import native, stage_times
from knnmt.compression.pruning import prune
from knnmt.config import DecodingConfig, Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.compiled import CompiledBackend
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.search import Batch, search, search_each
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, InputError
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from support.checkpoints import MakeCheckpoint
from support.datastore_pairs import some_pairs
from support.german import german_sentences
from support.loops import compiled_search, reference_search

if native.library() is None:
    pytest.skip("nothing was compiled, or it is switched off", allow_module_level=True)

SOURCES = [[5, 17, 99, 120, 3, 0], [44, 8, 0], [201, 7, 7, 63, 0], [9, 0], [88, 130, 12, 54, 66, 190, 2, 0]]
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "at least eight": {"min_tokens": 8},
    "some forbidden": {"suppressed_tokens": (1, 2, 3, 200)},
    "a sequence forbidden": {"suppressed_sequences": ((12, 180),)},
    "first and last token": {"forced_first_token": 77, "forced_last_token": 0},
    "cut": {"max_tokens": 6},
    "one token": {"max_tokens": 1},
    "early": {"early_stopping": True},
    "never early": {"early_stopping": "never"},
    "more slots than a state begins with": {"min_tokens": 30, "max_tokens": 38},
}


@pytest.fixture(params=["float32", "int8"])
def small(request: pytest.FixtureRequest, make_checkpoint: MakeCheckpoint) -> TransformerEngine:
    engine = load_engine(make_checkpoint(), device="cpu", dtype=request.param)
    assert isinstance(engine, TransformerEngine)
    assert engine.compiled is not None
    return engine


def counted(
    engine: TransformerEngine, config: DecodingConfig, sources: Sequence[Sequence[int]] = SOURCES
) -> tuple[list[list[Hypothesis]], int]:
    """What a search finds, and how many calls it makes."""
    calls = 0
    advance = CompiledBackend.advance

    def counting(self: CompiledBackend, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        return advance(self, *given)

    with mock.patch.object(CompiledBackend, "advance", counting):
        return compiled_search(engine, sources, config), calls


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_results_are_those_of_the_reference_in_every_bit(small: TransformerEngine, name: str, beam: int) -> None:
    config = replace(small.generation, beam=beam, n_best=beam, **{"max_tokens": 38, **SETTINGS[name]})
    found, calls = counted(small, config)
    assert found == reference_search(small, SOURCES, config)
    if "min_tokens" in SETTINGS[name]:
        steps = max(len(each.tokens) for best in found for each in best)
        assert calls < steps


@pytest.mark.parametrize("beam", [1, 5])
def test_sentences_of_a_real_model_end_when_they_should(engine: TransformerEngine, beam: int) -> None:
    sources = engine.tokenizer.encode_sources(german_sentences(6))
    config = replace(engine.generation, beam=beam, n_best=beam)
    together, calls = counted(engine, config, sources)
    assert calls < max(len(best[0].tokens) for best in together)
    assert len({len(each[0].tokens) for each in together}) > 2
    assert together == reference_search(engine, sources, config)


@pytest.mark.parametrize("beam", [1, 3])
def test_progress_is_told_at_every_step(small: TransformerEngine, beam: int) -> None:
    config = replace(small.generation, beam=beam, min_tokens=8, max_tokens=12)
    grown: list[int] = []
    compiled_search(small, SOURCES[:1], config, on_partial=lambda leading: grown.append(len(leading()[0])))
    assert grown[:8] == list(range(1, 9))


def test_a_lost_sentence_does_not_stop_the_others(small: TransformerEngine) -> None:
    """Of a sentence that has no possible token, nothing is found."""
    weight = small._target_embedding.tokens
    config = replace(small.generation, beam=1, min_tokens=6, max_tokens=20)
    (first,), _ = counted(small, config, SOURCES[:1])
    weight[first[0].tokens[0]] = math.nan  # whatever follows this token is no number
    together, _ = counted(small, config)
    assert together[0] == []
    assert any(together)
    assert reference_search(small, SOURCES, config) == together


def test_stages_are_measured(small: TransformerEngine) -> None:
    with stage_times() as timings:
        compiled_search(small, SOURCES, replace(small.generation, beam=1, min_tokens=10, max_tokens=10))
    assert timings.entries["decoder"] == timings.entries["output"] == 10
    assert sum(timings.seconds.values()) <= timings.total_seconds


@pytest.fixture(scope="module")
def stores(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> list[OpenStore]:
    """Two stores, one of which repeats itself and has merged entries."""
    path = tmp_path_factory.mktemp("stores")
    again = Datastore.build(path / "again", [*some_pairs(30), *some_pairs(8)], tiny)
    pruned = prune(again, path / "pruned", StoreIndex(again).search, k=5)
    return [OpenStore(Datastore.build(path / "one", some_pairs(25), tiny)), OpenStore(pruned)]


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("forced", [None, 77])
def test_sentences_of_a_batch_have_stores_and_settings_of_their_own(
    tiny: TransformerEngine, stores: list[OpenStore], beam: int, forced: int | None
) -> None:
    fading = Fading(scale=8.0, width=2.0, sentence_scale=9.0, sentence_width=1.5)
    first = Retrieval(stores[0], RetrievalConfig(4, 0.6, 20.0, segments=5))
    others = (
        Retrieval(stores[0], RetrievalConfig(9, 0.5, 6.0, fading=fading, segments=3)),
        Retrieval(stores[1], RetrievalConfig(4, 0.7, 20.0, segments=99)),
        Retrieval(stores[1], RetrievalConfig(5, 0.6, 9.0, fading=fading)),
        None,
    )
    config = replace(tiny.generation, beam=beam, n_best=beam, max_tokens=24, forced_first_token=forced)
    whole = Retrieval(stores[0], RetrievalConfig(6, 0.6, 20.0))
    for of_sentences in ([first] * 5, [first, *others], [whole] * 5):
        counted = [Statistics(), Statistics()]
        mine, other = (BatchRetrieval(of_sentences, each) for each in counted)
        assert not mine.needs & CompiledBackend.LACKS
        found, expected = compiled_search(tiny, SOURCES, config, mine), reference_search(tiny, SOURCES, config, other)
        texts = [[[each.tokens for each in best] for best in every] for every in (found, expected)]
        assert texts[0] == texts[1]
        scores = [[each.score for best in every for each in best] for every in (found, expected)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
        assert (counted[0].rows, counted[0].searches) == (counted[1].rows, counted[1].searches)
        assert (counted[0].first_rows, counted[0].first_searches) == (counted[1].first_rows, counted[1].first_searches)


def test_a_sentence_that_is_done_gives_its_place_to_one_of_the_next_batch(
    small: TransformerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are those of each batch alone, whatever is decoded beside it."""
    config = replace(small.generation, beam=2, n_best=2, min_tokens=3, max_tokens=30)
    sources = [[5 + number, *range(20, 20 + 3 * (number % 5)), 0] for number in range(14)]
    batches = [sources[:4], sources[4:8], sources[8:9], sources[9:12], sources[12:]]
    decoded: list[list[int]] = []
    advance = CompiledBackend.advance

    def watched(self: CompiledBackend, *given: Any) -> Any:
        decoded.append(self.sentences.tolist())
        return advance(self, *given)

    expected = [compiled_search(small, batch, config) for batch in batches]
    monkeypatch.setattr(CompiledBackend, "advance", watched)
    assert list(search_each(small, map(Batch, batches), config)) == expected
    assert max(map(len, decoded)) == 4
    assert any(min(numbers) < 4 <= max(numbers) for numbers in decoded)  # sentences of two batches, side by side


def test_a_batch_hears_of_its_sentences_by_their_places_in_it(tiny: TransformerEngine) -> None:
    """Sentences of several batches are decoded side by side; one that looks at every step is decoded alone."""
    config = replace(tiny.generation, beam=2, min_tokens=6, max_tokens=20)
    batches = [SOURCES[:2], SOURCES[2:4], SOURCES[1:2]]
    heard: list[dict[int, Any]] = [{} for _ in batches]
    looks: list[list[int]] = []
    asked = [Batch(sources, None, of_batch.__setitem__) for sources, of_batch in zip(batches, heard, strict=True)]
    asked.insert(1, Batch(SOURCES[:2], on_partial=lambda leading: looks.append(sorted(leading()))))
    found = list(search_each(tiny, asked, config))
    assert found.pop(1) == search(tiny, SOURCES[:2], config)
    assert [[each[number] for number in range(len(each))] for each in heard] == found
    assert looks[0] == [0, 1]
    assert len(looks) > 2


def test_a_larger_batch_and_one_of_another_backend_wait(
    tiny: TransformerEngine, stores: list[OpenStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knnmt.retrieval.open_store.SMALL", 0)  # no store is searched as a whole in compiled code
    sizes: list[int] = []
    make = CompiledBackend.__init__

    def watched(self: CompiledBackend, *given: Any) -> None:
        make(self, *given)
        sizes.append(self.size)

    monkeypatch.setattr(CompiledBackend, "__init__", watched)
    by_segment = Retrieval(stores[0], RetrievalConfig(4, 0.6, 20.0, segments=5))
    whole = Retrieval(stores[1], RetrievalConfig(4, 0.6, 20.0))
    config = replace(tiny.generation, beam=3, max_tokens=12)
    settings: list[tuple[int, Retrieval | None]] = [(2, by_segment), (5, None), (3, by_segment), (1, whole), (5, None)]

    def batches(statistics: Statistics) -> list[Batch]:
        return [
            Batch(SOURCES[:size], BatchRetrieval([retrieval] * size, statistics) if retrieval else None)
            for size, retrieval in settings
        ]

    together, apart = Statistics(), Statistics()
    found = list(search_each(tiny, batches(together), config))
    assert sizes == [2, 5, 5]
    assert found == [search(tiny, texts, config, retrieval) for texts, retrieval, *_ in batches(apart)]
    assert (together.rows, together.first_rows, together.searches) == (apart.rows, apart.first_rows, apart.searches)


def test_removed_entries_of_a_small_store_are_not_searched(tiny: TransformerEngine, tmp_path: Path) -> None:
    """Keys that compiled steps hold are those of a snapshot; entries that were removed are not among them."""
    store = OpenStore(Datastore.build(tmp_path / "store", some_pairs(25), tiny))
    config = replace(tiny.generation, beam=3, max_tokens=24)
    found = []
    for some_removed in (False, True):
        if some_removed:
            store.datastore.remove(lambda unit: unit.origin in {pair.origin for pair in some_pairs(12)})
            assert store.refresh()
        way = Retrieval(store, RetrievalConfig(4, 0.9, 100.0))
        mine, other = (BatchRetrieval([way] * len(SOURCES)) for _ in range(2))
        assert not mine.needs & CompiledBackend.LACKS
        every = [
            [best[0].tokens for best in search]
            for search in (
                compiled_search(tiny, SOURCES, config, mine),
                reference_search(tiny, SOURCES, config, other),
            )
        ]
        assert every[0] == every[1]
        found.append(every[0])
    assert found[0] != found[1]


@pytest.mark.parametrize("segments", [5, None])
def test_a_damaged_store_ends_a_search(tiny: TransformerEngine, stores: list[OpenStore], segments: int | None) -> None:
    """The error names the store, also if others are used beside it and before it."""
    few = copy(tiny)
    few.vocabulary_size = 30  # of which some of the entries' tokens are none
    config = replace(tiny.generation, max_tokens=9)
    for store in stores:
        retrieval = Retrieval(store, RetrievalConfig(4, 0.6, 20.0, segments=segments))
        damaged = BatchRetrieval([None, *[retrieval] * (len(SOURCES) - 1)])
        for others in (SOURCES, SOURCES[:2]):  # decoded together with this batch, or before it
            found = search_each(few, [Batch(others), Batch(SOURCES, damaged)], config)
            with pytest.raises(DatastoreDamagedError, match=f"{store.datastore.path}: .* is not one of the model's 30"):
                list(found)


@pytest.mark.parametrize(
    ("settings", "token"),
    [
        ({"suppressed_tokens": (3, 10**6)}, 10**6),
        ({"suppressed_tokens": (-1, 3)}, -1),
        ({"suppressed_sequences": ((3, 10**6),)}, 10**6),
        ({"forced_first_token": 10**6}, 10**6),
        ({"forced_last_token": -2, "suppressed_tokens": (5,)}, -2),
    ],
    ids=str,
)
def test_tokens_that_the_model_lacks_are_refused(
    small: TransformerEngine, settings: dict[str, Any], token: int
) -> None:
    with pytest.raises(InputError, match=f"forbids token {token}, but the model has"):
        compiled_search(small, SOURCES, replace(small.generation, **settings))
