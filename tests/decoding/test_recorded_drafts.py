"""Drafts in steps of fixed shape: tokens and scores are those of greedy search, on a CPU, and replayed on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datastore_pairs import some_pairs

from devices import DEVICES
from knnmt.config import Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding import recorded_drafts as module
from knnmt.decoding import recorded_policy
from knnmt.decoding.arena import MAX_TURNS, Arenas, Recorded
from knnmt.decoding.greedy import greedy_search
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.recorded_drafts import RecordedDrafting, recorded_drafts
from knnmt.decoding.recorded_places import Places
from knnmt.decoding.recorded_policy import TURNS, turns_for
from knnmt.decoding.recorded_sentences import Sentence
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval import own_entries_on_device
from knnmt.retrieval.open_store import ChosenEntries, OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics

TEXTS = ["Satz 3 ja ja", "Satz 12", "Satz 7 nein", "anders", "Satz 100 ja", "Datei", "Satz 1 ja ", "ja", "Satz 12 ja"]
FADING = Fading(scale=8.0, width=2.0, sentence_scale=9.0, sentence_width=1.5)
CONFIG = RetrievalConfig(k=4, interpolation_weight=0.9, temperature=20.0, segments=6)


@pytest.fixture(scope="module", params=DEVICES)
def small(request: pytest.FixtureRequest, tiny_checkpoint: Path) -> TransformerEngine:
    engine = load_engine(tiny_checkpoint, device=request.param, dtype="float32")
    assert isinstance(engine, TransformerEngine)
    return engine


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stores") / "s"
    made = Datastore.build(place, some_pairs(25), tiny)
    made.add(some_pairs(10, start=95), tiny)
    made.remove(lambda pair: pair.source.startswith("Satz 4"))
    return place


def by_drafts(
    engine: TransformerEngine, sources: list[list[int]], config: Any, retrieval: Retrieval, counted: Statistics
) -> list[list[Hypothesis]]:
    batch = BatchRetrieval([retrieval] * len(sources), counted)
    recorded = batch.recorded()
    assert recorded is not None
    told: dict[int, list[Hypothesis]] = {}
    found = recorded_drafts(engine, sources, config, batch, recorded, told.__setitem__)
    assert told == dict(enumerate(found))
    return found


@pytest.mark.parametrize("fading", [None, FADING])
@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 24},
        {"max_tokens": 5, "forced_last_token": 0},
        {"max_tokens": 1},
        {"max_tokens": 39},
        {"max_tokens": 24, "min_tokens": 7},
        {"max_tokens": 24, "forced_first_token": 7, "suppressed_tokens": (9, 11)},
        {"max_tokens": 1, "forced_first_token": 7},
    ],
    ids=str,
)
def test_tokens_scores_and_searches_are_those_of_greedy_search(
    settings: dict[str, Any],
    fading: Fading | None,
    small: TransformerEngine,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "turns_for", lambda *_: max(TURNS))  # long drafts for all
    sources = small.tokenizer.encode_sources(TEXTS)
    config = replace(small.generation, beam=1, n_best=1, length_penalty=0.7, **settings)
    opened = OpenStore(Datastore.open(store), small.device, exact=True)
    retrieval = Retrieval(opened, replace(CONFIG, fading=fading))
    plainly, drafted = Statistics(), Statistics()
    plain = greedy_search(small, sources, config, BatchRetrieval([retrieval] * len(sources), plainly))
    found = by_drafts(small, sources, config, retrieval, drafted)
    one_by_one = [best for each in sources[:3] for best in by_drafts(small, [each], config, retrieval, Statistics())]
    for mine, expected in ((found, plain), (one_by_one, plain[:3])):
        tokens = [[[each.tokens for each in best] for best in every] for every in (mine, expected)]
        assert tokens[0] == tokens[1]
        scores = [[each.score for best in every for each in best] for every in (mine, expected)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5 if small.device.type == "cpu" else 1e-4)
    assert (drafted.rows, drafted.searches, drafted.first_rows) == (plainly.rows, plainly.searches, plainly.first_rows)
    assert drafted.drafted >= drafted.accepted
    assert drafted.accepted or settings != {"max_tokens": 24}
    if small.device.type == "cuda" and config.max_tokens > 5:
        kept = [each for arena in small.kept(Arenas).free for each in arena._kept.values()]
        assert any(each.replays for each in kept if isinstance(each, Recorded))


def test_a_sentence_that_the_memory_holds_begins_with_its_translation(
    small: TransformerEngine, tiny: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, new = some_pairs(30), ["anders", "Datei", "nein nein"]
    sources = small.tokenizer.encode_sources([*(pair.source for pair in memory[:6]), *new])
    config = replace(small.generation, beam=1, n_best=1, max_tokens=24)
    opened = OpenStore(Datastore.build(tmp_path / "s", memory, tiny), small.device, exact=True)
    retrieval = Retrieval(opened, replace(CONFIG, interpolation_weight=0.999, temperature=1.0))
    drafts: dict[int, list[int]] = {}
    take = Places.take

    def noting(self: Places, place: int, sentence: Sentence, *given: int) -> None:
        drafts[sentence.number] = list(sentence.draft)
        take(self, place, sentence, *given)

    monkeypatch.setattr(Places, "take", noting)
    plain = greedy_search(small, sources, config, BatchRetrieval([retrieval] * len(sources), Statistics()))
    counted, without = Statistics(), Statistics()
    found = by_drafts(small, sources, config, retrieval, counted)
    targets = small.tokenizer.encode_targets([pair.target for pair in memory[:6]])
    assert drafts == dict(enumerate([*(each[:-1][: MAX_TURNS - 1] for each in targets), *[[]] * len(new)]))
    assert [best[0].tokens for best in found] == [best[0].tokens for best in plain]
    monkeypatch.setattr(ChosenEntries, "first_draft", lambda *_: [])
    assert [each[0].tokens for each in by_drafts(small, sources, config, retrieval, without)] == [
        each[0].tokens for each in plain
    ]
    assert counted.rows - counted.accepted < without.rows - without.accepted


def test_no_draft_precedes_a_forced_first_token(
    small: TransformerEngine, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChosenEntries, "first_draft", lambda *_: pytest.fail("it is of no use"))
    config = replace(small.generation, beam=1, n_best=1, max_tokens=24, forced_first_token=7)
    retrieval = Retrieval(OpenStore(Datastore.open(store), small.device, exact=True), CONFIG)
    [[best]] = by_drafts(small, small.tokenizer.encode_sources(TEXTS[:1]), config, retrieval, Statistics())
    assert best.tokens[0] == 7


@pytest.mark.parametrize(
    ("sizes", "settings"),
    [
        ([1] * 9, {"max_tokens": 24}),
        ([4, 4, 4, 4, 4, 1], {"max_tokens": 24}),
        ([4, 4, 4, 4, 4, 1], {"max_tokens": 9, "forced_first_token": 7}),
        ([3, 16, 2], {"max_tokens": 24}),
    ],
    ids=str,
)
def test_sentences_of_the_next_batches_take_free_places(
    sizes: list[int], settings: dict[str, Any], small: TransformerEngine, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_entries_on_device, "_MIN_CAPACITY", 1)  # so that it has to grow
    small.kept(Arenas).free.clear()
    texts = [f"{TEXTS[i % len(TEXTS)]} {'ja ' * (8 - 3 * i % 9)}" for i in range(sum(sizes))]
    sources = small.tokenizer.encode_sources(texts)
    assert min(map(len, sources)) <= 32 < max(map(len, sources))  # so that steps see different numbers of positions
    config = replace(small.generation, beam=1, n_best=1, **settings)
    retrieval = Retrieval(OpenStore(Datastore.open(store), small.device, exact=True), replace(CONFIG, fading=FADING))
    expected = greedy_search(small, sources, config, BatchRetrieval([retrieval] * len(sources), Statistics()))
    ends = np.cumsum(sizes).tolist()
    batches = [sources[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    counted = [Statistics() for _ in sizes]
    asked = [BatchRetrieval([retrieval] * len(each), count) for each, count in zip(batches, counted, strict=True)]
    first = asked[0].recorded()
    assert first is not None
    drafting = RecordedDrafting(small, config, first)
    found = []
    for batch, of_batch in zip(batches, asked, strict=True):
        recorded = of_batch.recorded()
        assert recorded is not None
        assert drafting.takes(batch, recorded)
        drafting.add(batch, of_batch)
        found += drafting.advance()
    in_flight = len(found)
    found += drafting.finish()
    assert in_flight < len(sizes)
    assert [len(each) for each in found] == sizes
    flat = [each for batch in found for each in batch]
    assert [best[0].tokens for best in flat] == [best[0].tokens for best in expected]
    scores = [[best[0].score for best in every] for every in (flat, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5 if small.device.type == "cpu" else 1e-4)
    assert [count.first_rows for count in counted] == sizes
    forced = "forced_first_token" in settings
    for count, results in zip(counted, found, strict=True):
        lengths = [len(best[0].tokens) for best in results]
        chosen = sum(length - int(forced) - int(length == config.max_tokens) for length in lengths)
        assert count.rows == count.searches == chosen


def test_a_step_computes_as_many_tokens_as_are_worth_most(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"_TURN_COST": 0.05, "_ROW_COST": 0.001}
    rights = {"_MIN_CHANCE": 0.1, "_RIGHT": 0.25, "_RIGHT_BY_CHANCE": 0.5, "_GOES_ON": 0.8}
    for name, number in (costs | rights).items():
        monkeypatch.setattr(recorded_policy, name, number)
    found = {}
    for chances, size in (
        ([0.0], 1),
        ([0.9], 1),
        ([0.5, 0.9], 2),
        ([0.05, 0.9], 2),
        ([0.9] * 60, 64),
        ([1.0] * 256, 256),
    ):
        worth = {}
        for turns in TURNS:
            tokens = 0.0
            for chance in chances:
                reached = 1.0  # how probable it is that the next token of a step counts
                for number in range(turns):
                    tokens += reached
                    reached *= 0.8 if number else 0.25 + 0.5 * chance if chance > 0.1 else 0.0
            worth[turns] = tokens / (1 + (0.05 + 0.001 * size) * (turns - 1))
        best = turns_for(np.array(chances), size)
        assert worth[best] == pytest.approx(max(worth.values()))
        found[tuple(chances), size] = best
    assert found[(0.0,), 1] == 1
    assert found[(0.9,), 1] > 1
