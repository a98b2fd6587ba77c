"""Drafts change nothing but the number of passes: the tokens and scores are those of plain greedy search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datastore_pairs import some_pairs
from hypothesis import given
from hypothesis import strategies as st

from german import german_memory, german_sentences
from knnmt import Translator
from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import DecodingConfig, Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding import drafted, search
from knnmt.decoding.drafted import Drafting, draft_length, drafted_search
from knnmt.decoding.greedy import greedy_search
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.store_index import StoreIndex
from knnmt.native import library
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics

TEXTS = ["Satz 3 ja ja", "Satz 12", "Satz 7 nein", "anders", "Satz 100 ja", "Datei", "Satz 1 ja ", "ja"]
CONFIG = RetrievalConfig(k=4, interpolation_weight=0.9, temperature=20.0, segments=6)
END = 0
needs_compiled = pytest.mark.skipif(library() is None, reason="nothing is compiled here")


@pytest.fixture(scope="module", params=["plain", "reduced", "pruned"])
def store(
    request: pytest.FixtureRequest, tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory
) -> Datastore:
    place = tmp_path_factory.mktemp("stores")
    made = Datastore.build(place / "plain", some_pairs(25), tiny)
    made.add(some_pairs(10, start=95), tiny)
    made.remove(lambda pair: pair.source.startswith("Satz 4"))
    if request.param == "reduced":
        made, _ = reduce(made, place / "reduced", 12)
    return prune(made, place / "pruned", StoreIndex(made).search) if request.param == "pruned" else made


def both(
    engine: TransformerEngine, sources: list[list[int]], config: DecodingConfig, retrieval: Retrieval
) -> tuple[list[list[Hypothesis]], Statistics, list[list[Hypothesis]], Statistics]:
    """What greedy search finds, and what it finds with drafts."""
    plainly, by_drafts = Statistics(), Statistics()
    ways = [retrieval] * len(sources)
    plain = greedy_search(engine, sources, config, BatchRetrieval(ways, plainly))
    batch = BatchRetrieval(ways, by_drafts)
    steps = batch.in_turn()
    assert steps is not None
    return plain, plainly, drafted_search(engine, sources, config, batch, steps), by_drafts


def assert_alike(plain: list[list[Hypothesis]], others: list[list[Hypothesis]]) -> None:
    assert [[each.tokens for each in found] for found in plain] == [[each.tokens for each in found] for found in others]
    scores = [[each.score for found in every for each in found] for every in (plain, others)]
    assert scores[1] == pytest.approx(scores[0], abs=1e-5)


@needs_compiled
@pytest.mark.parametrize("fading", [None, Fading(scale=8.0, width=2.0, sentence_scale=9.0, sentence_width=1.5)])
@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 24},
        {"max_tokens": 5, "forced_last_token": END},
        {"max_tokens": 39},
        {"max_tokens": 24, "min_tokens": 7},
        {"max_tokens": 24, "forced_first_token": 7, "suppressed_tokens": (9, 11)},
        {"max_tokens": 24, "suppressed_sequences": ((12,), (13, 14))},
    ],
    ids=str,
)
def test_tokens_scores_and_searches_are_those_of_greedy_search(
    settings: dict[str, Any],
    fading: Fading | None,
    tiny: TransformerEngine,
    store: Datastore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drafted, "_MAX_ROWS", 100)
    monkeypatch.setattr(drafted, "_ROW_COST", 0.0)  # long drafts for all, so that many are cut back
    monkeypatch.setattr(drafted, "_MAX_UNSEEN", 9)
    sources = tiny.tokenizer.encode_sources(TEXTS)
    config = replace(tiny.generation, beam=1, n_best=1, length_penalty=0.7, **settings)
    retrieval = Retrieval(OpenStore(store), replace(CONFIG, fading=fading))
    plain, plainly, found, by_drafts = both(tiny, sources, config, retrieval)
    assert_alike(plain, found)
    counted = (plainly.rows, plainly.searches, plainly.first_rows)
    assert (by_drafts.rows, by_drafts.searches, by_drafts.first_rows) == counted
    assert by_drafts.drafted >= by_drafts.accepted


@needs_compiled
def test_a_memory_that_knows_the_text_is_followed_in_strides(
    engine: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = german_memory(30)
    Datastore.build(tmp_path / "s", memory, engine)
    texts = [*(pair.source for pair in memory[:4]), *german_sentences(34)[30:]]
    translator = Translator(device="cpu")
    counted = Statistics()
    settings: dict[str, Any] = {"datastore": tmp_path / "s", "beam": 1, "segments": 8, "batch_size": 1}
    found = translator.translate(texts, statistics=counted, **settings)
    assert counted.rows - counted.accepted < 0.5 * counted.rows, "passes are fewer than half as many as tokens"
    assert "tokens for each pass that had a draft" in counted.summary()
    monkeypatch.setattr(search, "MAX_DRAFTED", {})
    plain = translator.translate(texts, **settings)
    assert [each.text for each in found] == [each.text for each in plain]
    assert [each.score for each in found] == pytest.approx([each.score for each in plain], abs=1e-5)


def test_a_draft_is_what_follows_the_nearest_entry_that_has_the_token() -> None:
    drafting = Drafting(np.array([3, 4, 5, 8, 9, 10, 11]), np.array([21, 22, END, 23, 21, 24, END]), END)
    assert drafting.draft(21, np.array([9, 3]), 5) == [24]
    assert drafting.draft(21, np.array([8, 3, 9]), 5) == [22]
    assert drafting.draft(23, np.array([8, -1]), 5) == [21, 24]
    assert drafting.draft(23, np.array([8, -1]), 1) == [21]
    assert drafting.draft(23, np.array([8]), 0) == []
    assert drafting.draft(22, np.array([8, 9]), 5) == []
    assert drafting.draft(22, np.array([-1, -1]), 5) == []


@given(st.floats(0, 1), st.integers(1, 9))
def test_the_length_of_a_draft_is_worth_most(chance: float, sentences: int) -> None:
    def worth(length: int) -> float:
        tokens = sum(chance**number for number in range(length + 1))
        return tokens / (1 + length * (drafted._TURN_COST + drafted._ROW_COST * sentences))

    most = max(drafted._MAX_ROWS // sentences, 1)
    assert worth(draft_length(chance, sentences)) == pytest.approx(max(map(worth, range(most))))
