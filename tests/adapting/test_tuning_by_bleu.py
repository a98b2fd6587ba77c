"""What tuning needs a search for: states of beams, BLEU of settings, a confirmed cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sacrebleu

from knnmt import Translator
from knnmt.adapting.cache_tuning import CacheTradeOff, beam_states, cache_trade_offs, confirmed_cache
from knnmt.adapting.tuning_by_bleu import paper_grid, score
from knnmt.config import CacheConfig, Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.retrieval.statistics import Statistics
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
CONFIG = RetrievalConfig(4, 0.7, 20.0, Fading(8.0, 1.0, 9.0, 1.0))
OFFS = [CacheTradeOff(threshold, 0.1, 0.2, 0.001 * threshold) for threshold in (1.0, 2.0, 3.0)]


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", settings="raw")


@pytest.fixture(scope="module")
def store(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(30), translator.engine)


def test_states_of_a_search_and_what_the_simulated_cache_saves(translator: Translator, store: Datastore) -> None:
    """As many rows as decoding counts; and with a τ that changes nothing, as many hits."""
    opened = translator.memories.open(store).opened
    sources = ["Satz 3 ja ja", "anders", "Satz 12", "zu lang " * 40]
    decoded = beam_states(translator, opened, CONFIG, sources)
    assert decoded.states.shape[1] == 32
    assert sorted(set(decoded.sentences.tolist())) == [0, 1, 2]
    assert decoded.sentences.tolist() == sorted(decoded.sentences.tolist())

    for threshold in (0.0, 1e-3):
        translator.statistics = Statistics()
        cached = replace(CONFIG, cache=CacheConfig(threshold))
        translator.translate(sources[:3], batch_size=1, datastore=store, profile=cached)
        (found,) = cache_trade_offs(translator.engine, opened, decoded, CONFIG, [threshold])
        assert translator.statistics.rows == len(decoded.states)
        assert found.saved == pytest.approx(translator.statistics.saved(), abs=0.01)
    assert not len(beam_states(translator, opened, CONFIG, []).states)


def test_scores_are_those_of_translations_with_the_settings(translator: Translator, store: Datastore) -> None:
    pairs = some_pairs(6, start=3)
    sure = RetrievalConfig(4, 0.95, 0.5)
    cached = replace(sure, cache=CacheConfig(9.0))
    found = list(score(translator, store, pairs, [None, sure, cached]))
    assert [each.config for each in found] == [None, sure, cached]
    sources, references = [pair.source for pair in pairs], [[pair.target for pair in pairs]]
    whole = translator.translate(sources, datastore=store, profile=sure)
    assert found[1].bleu == sacrebleu.corpus_bleu([each.text for each in whole], references).score
    alone = translator.translate(sources, datastore=None)
    assert found[0].bleu == sacrebleu.corpus_bleu([each.text for each in alone], references).score
    assert found[1].bleu > found[0].bleu  # the store knows these
    assert found[0].saved == found[1].saved == 0 < found[2].saved


def test_the_papers_grid() -> None:
    grid = paper_grid(10.0)
    assert len(set(grid)) == 16
    assert {each.k for each in grid} == {8, 16, 32, 64}
    assert {(each.temperature, each.fading, each.cache) for each in grid} == {(10.0, None, None)}


@pytest.mark.parametrize(("scores", "expected"), [((30.0, 29.9, 29.0), 2.0), ((30, 30, 30), 3.0), ((29, 29, 29), None)])
def test_a_cache_is_confirmed_from_the_largest_down(scores: tuple[float, ...], expected: float | None) -> None:
    asked: list[float | None] = []

    def scored(config: RetrievalConfig) -> float:
        threshold = None if config.cache is None else config.cache.threshold
        asked.append(threshold)
        return 30.0 if threshold is None else scores[int(threshold) - 1]

    found = confirmed_cache(scored, CONFIG, OFFS, 0.1)
    assert (found and found.threshold) == expected
    assert asked == [None, 3.0, 2.0, 1.0][: 1 + (4 - int(expected or 1))]
    assert confirmed_cache(scored, CONFIG, [], 0.1) is None
