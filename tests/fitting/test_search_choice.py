"""Choosing between the whole store and segments: each way with settings of its own, the cheapest that loses little."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from knnmt.compression.pruning import prune
from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.fitting.calibration import calibrate_by_segment
from knnmt.fitting.development import pass_over, search_text
from knnmt.fitting.held_out import sample
from knnmt.fitting.search_choice import COUNTS, FROM_SENTENCES, JudgedSearch, SearchChoice, choose_search, counts_for
from knnmt.fitting.tuning import Tried, Tuned, tune_positions
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.open_store import OpenStore
from support.datastore_pairs import some_pairs

DEVELOPMENT = some_pairs(8, start=60)


@pytest.fixture(scope="module")
def opened(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> OpenStore:
    return OpenStore(Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(40), tiny), exact=True)


def judged(segments: int | None, loss: float) -> JudgedSearch:
    config = RetrievalConfig(4, 0.5, 10.0, segments=segments)
    return JudgedSearch(segments, Tuned(9.0, (Tried(4, config, loss, config, loss),)))


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ((2.0, 2.0, 2.0), 2),  # the fewest, where it is all the same
        ((2.004, 2.0, 2.0), 2),
        ((2.02, 2.004, 2.0), 4),
        ((2.02, 2.01, 2.0), None),
        ((2.02, 1.9, 2.0), 4),
        ((2.004, 1.99, 2.0), 4),  # near the whole store is not enough where more segments are better than it
    ],
)
def test_the_fewest_segments_that_lose_hardly_more_than_the_best_are_chosen(
    losses: tuple[float, ...], chosen: int | None
) -> None:
    choice = SearchChoice([judged(*each) for each in zip((2, 4, None), losses, strict=True)], 0.005, 8)
    assert choice.chosen.segments == chosen
    assert choice.whole.loss == losses[-1]
    assert choice.in_words.startswith("of the whole store; loss" if chosen is None else f"by {chosen} segments; loss")


def test_each_way_is_judged_with_settings_of_its_own(tiny: TransformerEngine, opened: OpenStore) -> None:
    passed = pass_over(tiny, opened, DEVELOPMENT)
    choice = choose_search(tiny, opened, passed, counts=(2, 5))
    assert choice is not None
    assert [each.segments for each in choice.judged] == [2, 5, None]
    for each in choice.judged:
        alone = tune_positions(search_text(tiny, opened, DEVELOPMENT, way=each.segments).positions(), way=each.segments)
        assert each.tuned.fading == alone.fading
        assert each.tuned.fading.fading.segments == each.segments
    few = choose_search(tiny, opened, passed, counts=(2, 5), positions=(40, 10))
    assert few is not None
    assert 0 < few.pairs < choice.pairs == len(DEVELOPMENT)


def test_a_small_store_is_searched_as_a_whole(tiny: TransformerEngine, opened: OpenStore) -> None:
    assert not counts_for(opened)  # 40 sentences are few
    assert choose_search(tiny, opened, pass_over(tiny, opened, DEVELOPMENT)) is None
    assert counts_for(opened, from_sentences=40) == COUNTS
    assert not counts_for(opened, from_sentences=41)


def test_no_measured_store_that_loses_by_segment_has_the_choice() -> None:
    assert 4_000 < FROM_SENTENCES <= 15_000  # docs/results/segments.md


@pytest.mark.parametrize("kind", ["whole", "pruned"])
def test_held_out_sentences_find_the_nearest_of_their_segments_and_never_themselves(
    tiny: TransformerEngine, opened: OpenStore, tmp_path: Path, kind: str
) -> None:
    if kind == "pruned":
        opened = OpenStore(prune(opened.datastore, tmp_path / "few", StoreIndex(opened.datastore).search, 4, 0))
    snapshot = opened.snapshot
    held_out = sample(snapshot.index.entries, 12)
    distances_sq, ids = held_out.search_by_segment(snapshot, 3, 5)
    entries = held_out.entries
    for row in range(len(held_out.queries)):
        number, sentence = held_out.places[int(held_out.sentences[row])]
        source = snapshot.datastore.segments[number].divided("source_offsets", sentence).tolist()
        (mine,) = snapshot.segment_entries([source], 4)
        mine = mine[entries.sentence_of(mine)[1] != sentence]
        distances = ((entries.keys_of(mine).astype(np.float64) - held_out.queries[row].double().numpy()) ** 2).sum(1)
        assert distances_sq[row].tolist() == pytest.approx(np.sort(distances)[:5].tolist(), rel=1e-3, abs=1e-3)
        assert set(ids[row].tolist()) <= set(mine.tolist())
    found = calibrate_by_segment(snapshot, tiny, 3)
    assert found is not None
    assert found.segments == found.config().segments == found.config(fading=False).segments == 3
