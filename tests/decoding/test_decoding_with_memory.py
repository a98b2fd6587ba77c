"""Decoding with a memory finds what equations 2 and 3 say, computed densely over all keys and the whole vocabulary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import CacheConfig, DecodingConfig, Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.search import search
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from support.datastore_pairs import some_pairs
from support.dense_mixture import DenseMixture
from support.plain_search import plain_beam_search

TEXTS = ["Satz 3 ja ja", "Satz 12", "Satz 7 nein", "anders", "Satz 100 ja", "Datei", "Satz 1 ja ", "ja"]
PLAIN = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=20.0)
LONGEST = 24
FADING = Fading(scale=8.0, width=2.0, sentence_scale=9.0, sentence_width=1.5)


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    made = Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(25), tiny)
    made.add(some_pairs(10, start=95), tiny)
    made.remove(lambda pair: pair.source.startswith("Satz 4"))
    return made


@pytest.fixture(scope="module")
def sources(tiny: TransformerEngine) -> list[list[int]]:
    return tiny.tokenizer.encode_sources(TEXTS)


def plain_greedy_search(engine: Any, source: list[int], config: DecodingConfig) -> tuple[tuple[int, ...], float]:
    """The best token after every prefix, and the sum of log-probabilities; no state is kept from step to step."""
    tokens: list[int] = []
    score = 0.0
    while len(tokens) < config.max_tokens and (not tokens or tokens[-1] != engine.special_tokens.end):
        prefix = torch.tensor([[[engine.special_tokens.decoder_start, *tokens]]])
        row = engine.log_probabilities(engine.step(engine.start(engine.encode([source])), prefix))[0, 0, -1]
        forced = config.forced_last_token if len(tokens) == config.max_tokens - 1 else None
        score += 0.0 if forced is not None else float(row.max())
        tokens.append(int(row.argmax()) if forced is None else forced)
    return tuple(tokens), score


def decode(
    engine: TransformerEngine,
    sources: list[list[int]],
    store: Datastore | OpenStore,
    config: RetrievalConfig,
    beam: int = 1,
    n_best: int = 1,
    statistics: Statistics | None = None,
) -> list[list[Hypothesis]]:
    """All sources in one batch."""
    opened = OpenStore(store, exact=True) if isinstance(store, Datastore) else store
    batch = BatchRetrieval([Retrieval(opened, config)] * len(sources), statistics)
    decoding = replace(engine.generation, beam=beam, n_best=n_best, max_tokens=LONGEST)
    return search(engine, sources, decoding, batch)


def assert_greedy(
    engine: TransformerEngine,
    sources: list[list[int]],
    store: Datastore,
    config: RetrievalConfig,
    statistics: Statistics | None = None,
) -> None:
    found = decode(engine, sources, store, config, statistics=statistics)
    decoding = replace(engine.generation, beam=1, max_tokens=LONGEST)
    changed = 0
    for source, (hypothesis,) in zip(sources, found, strict=True):
        tokens, score = plain_greedy_search(DenseMixture(engine, store, config), source, decoding)
        assert hypothesis.tokens == tokens
        assert hypothesis.score == pytest.approx(score / len(tokens) ** decoding.length_penalty, abs=1e-4)
        changed += tokens != plain_greedy_search(engine, source, decoding)[0]
    assert changed > len(sources) // 2  # or the memory had nothing to say


@pytest.mark.parametrize("beam", [1, 5])
def test_a_weight_of_zero_is_the_model_alone_to_the_last_bit(
    tiny: TransformerEngine, store: Datastore, sources: list[list[int]], beam: int
) -> None:
    decoding = replace(tiny.generation, beam=beam, n_best=min(beam, 3), max_tokens=LONGEST)
    base = search(tiny, sources, decoding)
    for config in (PLAIN, replace(PLAIN, fading=FADING), replace(PLAIN, cache=CacheConfig(5.0))):
        assert decode(tiny, sources, store, replace(config, interpolation_weight=0.0), beam, min(beam, 3)) == base
    assert decode(tiny, sources, store, PLAIN, beam, min(beam, 3)) != base


@pytest.mark.parametrize(
    "config",
    [
        PLAIN,
        replace(PLAIN, k=1),
        replace(PLAIN, k=64, interpolation_weight=0.9, temperature=5.0),
        replace(PLAIN, k=400),  # more than there are
        replace(PLAIN, interpolation_weight=0.95, fading=FADING),
    ],
    ids=["plain", "one neighbour", "many neighbours", "all", "fading"],
)
def test_greedy_search_is_the_equations_computed_densely(
    tiny: TransformerEngine, store: Datastore, sources: list[list[int]], config: RetrievalConfig
) -> None:
    assert_greedy(tiny, sources, store, config)


@pytest.mark.parametrize("hits", [False, True])
def test_a_cache_takes_over_what_the_nearest_earlier_state_of_the_sentence_found(
    tiny: TransformerEngine, store: Datastore, sources: list[list[int]], hits: bool
) -> None:
    statistics = Statistics()
    cached = replace(PLAIN, cache=CacheConfig(5.0, keep_hits=hits))
    assert_greedy(tiny, sources, store, cached, statistics)
    assert 0.05 < statistics.saved() < 0.95
    assert statistics.hits + statistics.searches == statistics.rows


@pytest.mark.parametrize("penalty", [1.0, 0.6])
def test_beam_search_is_the_equations_computed_densely(
    tiny: TransformerEngine, store: Datastore, sources: list[list[int]], penalty: float
) -> None:
    decoding = replace(tiny.generation, beam=3, n_best=3, length_penalty=penalty, max_tokens=12)
    batch = BatchRetrieval([Retrieval(OpenStore(store, exact=True), PLAIN)] * len(sources))
    found = search(tiny, sources, decoding, batch)
    for source, hypotheses in zip(sources, found, strict=True):
        mixture: Any = DenseMixture(tiny, store, PLAIN)
        expected = plain_beam_search(mixture, source, decoding)
        assert [each.tokens for each in hypotheses] == [each.tokens for each in expected]
        assert [each.score for each in hypotheses] == pytest.approx([each.score for each in expected], abs=1e-4)


@pytest.mark.parametrize("use_counts", [True, False])
def test_reduced_and_pruned_stores_are_the_equations_with_projected_states_and_counts(
    tiny: TransformerEngine, store: Datastore, sources: list[list[int]], tmp_path: Path, use_counts: bool
) -> None:
    reduced, _ = reduce(store, tmp_path / "reduced", 12)
    pruned = prune(reduced, tmp_path / "pruned", StoreIndex(reduced).search, k=4)
    assert pruned.entries < 0.95 * reduced.entries
    for smaller in (reduced, pruned):
        assert_greedy(tiny, sources, smaller, replace(PLAIN, use_counts=use_counts))


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("cache", [None, CacheConfig(5.0), CacheConfig(5.0, keep_hits=True)])
def test_a_result_does_not_depend_on_its_batch(
    tiny: TransformerEngine, store: Datastore, sources: list[list[int]], beam: int, cache: CacheConfig | None
) -> None:
    config = replace(PLAIN, fading=FADING, interpolation_weight=0.95, cache=cache)
    opened = OpenStore(store, exact=True)
    alone = [decode(tiny, [source], opened, config, beam)[0][0] for source in sources]
    order = list(range(len(sources)))
    for arrangement in (order, order[::-1], [3, 1, 6, 0, 5, 2, 7, 4], [2, 2, 5, 5, 2]):
        together = decode(tiny, [sources[i] for i in arrangement], opened, config, beam)
        for i, (found,) in zip(arrangement, together, strict=True):
            assert found.tokens == alone[i].tokens
            assert found.score == pytest.approx(alone[i].score, abs=1e-4)


def test_a_cache_of_the_batch_serves_a_sentence_with_what_another_found(
    tiny: TransformerEngine, store: Datastore, sources: list[list[int]]
) -> None:
    saved = {}
    for scope in ("sentence", "batch"):
        statistics = Statistics()
        cache = CacheConfig(5.0, "sentence" if scope == "sentence" else "batch")
        decode(tiny, sources, store, replace(PLAIN, cache=cache), beam=4, statistics=statistics)
        saved[scope] = statistics.saved()
    assert 0 < saved["sentence"] < saved["batch"] < 1


def test_sentences_that_end_leave_the_others_to_their_own_stores(
    tiny: TransformerEngine, store: Datastore, sources: list[list[int]], tmp_path: Path
) -> None:
    other = OpenStore(Datastore.build(tmp_path / "o", some_pairs(12, start=300), tiny), exact=True)
    first, second = Retrieval(OpenStore(store, exact=True), PLAIN), Retrieval(other, replace(PLAIN, k=2))
    ways = [first, None, second, second, None, first, first, second]
    for beam in (1, 4):
        decoding = replace(tiny.generation, beam=beam)
        mixed = search(tiny, sources, decoding, BatchRetrieval(ways))
        assert len({len(found[0].tokens) for found in mixed}) > 2  # so that they do leave one after the other
        for source, way, found in zip(sources, ways, mixed, strict=True):
            (alone,) = search(tiny, [source], decoding, BatchRetrieval([way]) if way else None)
            assert found[0].tokens == alone[0].tokens
            assert found[0].score == pytest.approx(alone[0].score, abs=1e-4)
