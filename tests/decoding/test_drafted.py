"""Drafts change nothing but the number of passes: the tokens and scores are those of plain greedy search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from datastore_pairs import some_pairs
from hypothesis import given
from hypothesis import strategies as st
from random_combiners import random_combiner
from safetensors.torch import load_file, save_file
from torch import Tensor

from conftest import own_engine
from german import german_memory, german_sentences
from knnmt import Translator
from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import DecodingConfig, Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding import drafted, search
from knnmt.decoding.compiled_passes import CompiledPasses
from knnmt.decoding.drafted import certainty, drafted_search, least_chance
from knnmt.decoding.greedy import greedy_search
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError
from knnmt.index.store_index import StoreIndex
from knnmt.native import library
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.open_store import ChosenEntries, OpenStore
from knnmt.retrieval.own_entries import CompiledOwnEntries, Drafting
from knnmt.retrieval.plain import PlainSteps
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics

TEXTS = ["Satz 3 ja ja", "Satz 12", "Satz 7 nein", "anders", "Satz 100 ja", "Datei", "Satz 1 ja ", "ja"]
CONFIG = RetrievalConfig(k=4, interpolation_weight=0.9, temperature=20.0, segments=6)
END = 0
needs_compiled = pytest.mark.skipif(library() is None, reason="nothing is compiled here")


@pytest.fixture(scope="module")
def halves(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> TransformerEngine:
    """The tiny engine with weights that float16 holds: compiled code decodes."""
    place = tmp_path_factory.mktemp("halves") / "model"
    copytree(tiny_checkpoint, place)
    file = place / "model.safetensors"
    save_file({name: each.half() for name, each in load_file(file).items()}, file, metadata={"format": "pt"})
    return own_engine(place)


@pytest.fixture(scope="module", params=["plain", "reduced", "pruned"])
def store(
    request: pytest.FixtureRequest, halves: TransformerEngine, tmp_path_factory: pytest.TempPathFactory
) -> Datastore:
    place = tmp_path_factory.mktemp("stores")
    made = Datastore.build(place / "plain", some_pairs(25), halves)
    made.add(some_pairs(10, start=95), halves)
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
    told: dict[int, list[Hypothesis]] = {}
    found = drafted_search(engine, sources, config, batch, steps, told.__setitem__)
    assert told == dict(enumerate(found))
    assert_one_by_one(engine, sources, config, ways, found, by_drafts)
    return plain, plainly, found, by_drafts


def assert_one_by_one(
    engine: TransformerEngine,
    sources: list[list[int]],
    config: DecodingConfig,
    ways: list[Retrieval],
    expected: list[list[Hypothesis]],
    expected_counts: Statistics,
) -> None:
    """Passes that are not made in one compiled call find the same in every bit, and count the same."""
    counted = Statistics()
    batch = BatchRetrieval(ways, counted)
    steps = batch.in_turn()
    assert steps is not None
    with mock.patch.object(TransformerEngine, "ahead", None):
        assert drafted_search(engine, sources, config, batch, steps) == expected
    assert counted == expected_counts
    watched = BatchRetrieval(ways)
    steps = watched.in_turn()
    assert steps is not None
    grown: list[int] = []  # whoever wants to know of every pass is told

    def growing(leading: Callable[[], dict[int, list[int]]]) -> None:
        grown.append(sum(map(len, leading().values())))

    assert drafted_search(engine, sources, config, watched, steps, growing=growing) == expected
    assert len(grown) > 1 or config.max_tokens < 3


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
    halves: TransformerEngine,
    store: Datastore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drafted, "_ROW_COST", 0.0)  # long drafts for all, so that many are in vain
    sources = halves.tokenizer.encode_sources(TEXTS)
    config = replace(halves.generation, beam=1, n_best=1, length_penalty=0.7, **settings)
    retrieval = Retrieval(OpenStore(store), replace(CONFIG, fading=fading))
    plain, plainly, found, by_drafts = both(halves, sources, config, retrieval)
    assert_alike(plain, found)
    counted = (plainly.rows, plainly.searches, plainly.first_rows)
    assert (by_drafts.rows, by_drafts.searches, by_drafts.first_rows) == counted
    assert by_drafts.drafted >= by_drafts.accepted


@needs_compiled
@pytest.mark.parametrize("method", ["robust", "robust-fading"])
def test_a_trained_combiner_drafts_too(
    method: str, halves: TransformerEngine, store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafted, "_ROW_COST", 0.0)
    sources = halves.tokenizer.encode_sources(TEXTS)
    config = replace(halves.generation, beam=1, n_best=1, max_tokens=24)
    opened = OpenStore(store)
    retrieval = Retrieval(
        opened, CONFIG, combiner=random_combiner(opened.datastore, method, CONFIG.k, 3, CONFIG.segments)
    )
    plain, _, found, by_drafts = both(halves, sources, config, retrieval)
    assert_alike(plain, found)
    assert by_drafts.accepted > 0
    slow = BatchRetrieval([retrieval] * len(sources))
    slow._way = PlainSteps(slow.groups, len(sources), slow.statistics, None)
    assert_alike(greedy_search(halves, sources, config, slow), found)


@needs_compiled
def test_most_passes_are_made_in_few_calls(
    engine: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = german_memory(30)
    opened = OpenStore(Datastore.build(tmp_path / "s", memory, engine))
    retrieval = Retrieval(opened, replace(CONFIG, segments=8))
    made: list[int] = []
    run = CompiledPasses.run

    def counting(self: CompiledPasses, *given: Any) -> Any:
        answer = run(self, *given)
        made.append(answer[0])
        return answer

    monkeypatch.setattr(CompiledPasses, "run", counting)
    sources = engine.tokenizer.encode_sources([pair.source for pair in memory[:3]])
    monkeypatch.setattr(CompiledSteps, "first_draft", lambda *_: [])  # otherwise two passes are enough
    config = replace(engine.generation, beam=1, n_best=1)
    _, _, found, counted = both(engine, sources, config, retrieval)
    assert sum(made) > 2 * len(made)
    assert counted.accepted > 0
    assert all(len(each[0].drafted) == len(each[0].tokens) for each in found)


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
    assert f"{counted.tokens_a_pass:.2f} tokens per pass" in counted.summary()
    assert counted.drafted == sum(length * count for length, count in counted.drafts.items())
    monkeypatch.setattr(search, "MAX_DRAFTED", {})
    plain = translator.translate(texts, **settings)
    assert [each.text for each in found] == [each.text for each in plain]
    assert [each.score for each in found] == pytest.approx([each.score for each in plain], abs=1e-5)


@needs_compiled
def test_a_sentence_that_the_memory_holds_begins_with_its_translation(
    engine: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = german_memory(30)
    store = Datastore.build(tmp_path / "s", memory, engine)
    retrieval = Retrieval(OpenStore(store), replace(CONFIG, segments=8))
    known = engine.tokenizer.encode_sources([pair.source for pair in memory[:6]])
    new = engine.tokenizer.encode_sources(german_sentences(36)[30:])
    config = replace(engine.generation, beam=1, n_best=1)
    begun: list[tuple[int, list[int]]] = []
    take_next = drafted.DraftedSearch._next

    def noting(self: drafted.DraftedSearch, batch: Any) -> Any:
        batch, sentence = take_next(self, batch)
        begun.append((sentence.source, list(sentence.draft)))
        return batch, sentence

    monkeypatch.setattr(drafted.DraftedSearch, "_next", noting)
    plain, _, found, counted = both(engine, [*known, *new], config, retrieval)
    assert_alike(plain, found)
    targets = engine.tokenizer.encode_targets([pair.target for pair in memory[:6]])
    assert dict(begun) == dict(enumerate([*(each[:-1][:15] for each in targets), *[[]] * len(new)]))
    monkeypatch.setattr(CompiledSteps, "first_draft", lambda *_: [])
    _, _, _, without = both(engine, [*known, *new], config, retrieval)
    assert counted.rows - counted.accepted < without.rows - without.accepted
    forced = replace(config, forced_first_token=7, max_tokens=24)
    begun.clear()
    both(engine, known, forced, retrieval)
    assert not any(draft for _, draft in begun)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([5, 6, END, 7], [5, 6]),
        ([5, 99, 7], [5]),
        ([5, -1, 7], [5]),
        ([1, 2, 3, 4, 5], [1, 2, 3, 4]),
        ([], []),
    ],
    ids=str,
)
def test_a_first_draft_has_only_tokens_of_the_model(tokens: list[int], expected: list[int]) -> None:
    """A store may be crafted."""
    assert ChosenEntries([], [], [[8], tokens]).first_draft(1, most=4, end=END, vocabulary=50) == expected


@needs_compiled
def test_several_memories_in_a_batch_and_evidence_change_nothing(
    halves: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither drafts; the translations are those of sentences that do."""
    monkeypatch.setattr(drafted, "_ROW_COST", 0.0)
    stores = [Datastore.build(tmp_path / f"{start}", some_pairs(20, start=start), halves) for start in (0, 90)]
    sources = halves.tokenizer.encode_sources(TEXTS)
    config = replace(halves.generation, beam=1, n_best=1, max_tokens=24)
    first, second = (Retrieval(OpenStore(store), CONFIG) for store in stores)
    ways = [first, second, None, first, second, first, None, second]
    together, by_one, recorded = Statistics(), Statistics(), Statistics()
    mixed = search.search(halves, sources, config, BatchRetrieval(ways, together))
    alone = [
        search.search(halves, [source], config, None if way is None else BatchRetrieval([way], by_one))[0]
        for source, way in zip(sources, ways, strict=True)
    ]
    assert_alike(alone, mixed)
    assert (together.rows, together.drafted) == (by_one.rows, 0)
    assert by_one.accepted > 0
    asked = BatchRetrieval([first] * len(sources), recorded, record=True)
    with_evidence = search.search(halves, sources, config, asked)
    assert_alike(search.search(halves, sources, config, BatchRetrieval([first] * len(sources))), with_evidence)
    assert recorded.drafted == 0
    assert all(len(each.rows) == len(each.tokens) for found in with_evidence for each in found)


@needs_compiled
@pytest.mark.parametrize("sizes", [[1] * 9, [4, 4, 4, 4, 4, 1], [8, 8, 8], [3, 16, 2]], ids=str)
@pytest.mark.parametrize("settings", [{}, {"min_tokens": 7}, {"forced_first_token": 7}], ids=str)
@pytest.mark.parametrize("together", [True, False])
def test_sentences_of_the_next_batches_take_free_places(
    sizes: list[int],
    settings: dict[str, Any],
    together: bool,
    halves: TransformerEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drafted, "_ROW_COST", 0.02)
    monkeypatch.setattr(search, "MAX_DRAFTED", {"cpu": 16})
    if not together:
        monkeypatch.setattr(TransformerEngine, "ahead", None)
    store = Datastore.build(tmp_path / "s", some_pairs(25), halves)
    retrieval = Retrieval(OpenStore(store), replace(CONFIG, fading=Fading(8.0, 2.0, 9.0, 1.5)))
    # Sources grow and shrink, so that places need more positions, and have more than they need.
    texts = [f"{TEXTS[i % len(TEXTS)]} {'ja ' * (3 * i % 8)}" for i in range(sum(sizes))]
    sources = halves.tokenizer.encode_sources(texts)
    config = replace(halves.generation, beam=1, n_best=1, max_tokens=24, **settings)
    plainly, counted = Statistics(), Statistics()
    expected = greedy_search(halves, sources, config, BatchRetrieval([retrieval] * len(sources), plainly))
    ends = np.cumsum(sizes).tolist()
    batches = [sources[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    passes: list[int] = []
    run = drafted._Passes.run

    def counting(self: Any, running: Sequence[Any]) -> None:
        passes.append(len(running))
        run(self, running)

    monkeypatch.setattr(drafted._Passes, "run", counting)
    asked = [(each, BatchRetrieval([retrieval] * len(each), counted)) for each in batches]
    found = list(search.search_each(halves, asked, config))
    assert [len(each) for each in found] == sizes
    assert_alike(expected, [each for batch in found for each in batch])
    assert (counted.rows, counted.first_rows) == (plainly.rows, plainly.first_rows)
    if sizes == [8, 8, 8] and "forced_first_token" not in settings:
        full = passes.count(8)
        assert full > 0.5 * len(passes), "places do not stay free while sentences wait"


@needs_compiled
@pytest.mark.parametrize("seed", range(12))
def test_sentences_that_end_together_leave_no_place_behind(
    seed: int, halves: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All places may become free at once while a batch has begun or not."""
    random = np.random.default_rng(seed)
    retrieval = Retrieval(OpenStore(Datastore.build(tmp_path / "s", some_pairs(25), halves)), CONFIG)
    [source] = halves.tokenizer.encode_sources(["Satz 3 ja"])
    sizes = [3, 3, 2, 2, 1]
    lengths = {number: random.integers(1, 4, size).tolist() for number, size in enumerate(sizes)}
    counted = Statistics()
    batches = [BatchRetrieval([retrieval] * size, counted) for size in sizes]
    number_of = {id(batch): number for number, batch in enumerate(batches)}
    whose: dict[int, int] = {}
    take_next = drafted.DraftedSearch._next

    def noting(self: drafted.DraftedSearch, batch: Any) -> Any:
        found = take_next(self, batch)
        whose[id(found[1])] = number_of[id(batch.retrieval)]
        return found

    def run(self: Any, running: Sequence[Any]) -> None:
        assert len(running) == len(self._state.lengths) == len(self._steps._own._at)
        for each in running:
            number = whose[id(each)]
            each.generated.append(100 * number + each.source)
            each.drafted.append(False)
            each.ended = len(each.generated) == lengths[number][each.source]

    monkeypatch.setattr(drafted.DraftedSearch, "_next", noting)
    monkeypatch.setattr(drafted._Passes, "run", run)
    asked = [([source] * size, batch) for size, batch in zip(sizes, batches, strict=True)]
    found = list(search.search_each(halves, asked, replace(halves.generation, beam=1, n_best=1)))
    expected = [
        [(100 * number + place,) * length for place, length in enumerate(of_batch)]
        for number, of_batch in lengths.items()
    ]
    assert [[best[0].tokens for best in batch] for batch in found] == expected


@needs_compiled
def test_a_batch_that_fails_fails_after_those_before_it(halves: TransformerEngine, tmp_path: Path) -> None:
    retrieval = Retrieval(OpenStore(Datastore.build(tmp_path / "s", some_pairs(25), halves)), CONFIG)
    sources = halves.tokenizer.encode_sources(TEXTS)
    config = replace(halves.generation, beam=1, n_best=1, max_tokens=24)
    counted = Statistics()
    asked = [(sources[at : at + 2], BatchRetrieval([retrieval] * 2, counted)) for at in (0, 2, 4)]

    def choose(_: object) -> Any:
        raise DatastoreDamagedError("its postings")

    vars(asked[1][1])["choose"] = choose
    found = search.search_each(halves, asked, config)
    assert_alike(search.search(halves, sources[:2], config, BatchRetrieval([retrieval] * 2)), next(found))
    with pytest.raises(DatastoreDamagedError, match="postings"):
        next(found)


@needs_compiled
def test_batches_of_different_memories_do_not_share_places(halves: TransformerEngine, tmp_path: Path) -> None:
    stores = [Datastore.build(tmp_path / f"{start}", some_pairs(20, start=start), halves) for start in (0, 90)]
    ways = [Retrieval(OpenStore(store), CONFIG) for store in stores]
    ways.append(Retrieval(ways[0].store, replace(CONFIG, interpolation_weight=0.3)))
    sources = halves.tokenizer.encode_sources(TEXTS)
    config = replace(halves.generation, beam=1, n_best=1, max_tokens=24)
    counted = Statistics()
    order = [0, 0, 1, 2, 2, 0, 1, 1]
    asked = [(sources[at : at + 3], BatchRetrieval([ways[way]] * 3, counted)) for at, way in enumerate(order[:6])]
    asked.append((sources[:2], None))  # type: ignore[arg-type]
    asked.append((sources[:3], BatchRetrieval([ways[0]] * 3, Statistics())))
    found = list(search.search_each(halves, asked, config))
    for (some, batch), mine in zip(asked, found, strict=True):
        alone = None if batch is None else BatchRetrieval(batch.of_sentences)
        assert_alike(greedy_search(halves, some, config, alone), mine)


class Tokens:
    """Entries with these tokens, whose keys nobody asks for."""

    dim = 4

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens, self._keys = torch.tensor(tokens, dtype=torch.int32), torch.zeros(4, dtype=torch.float16)

    def addresses(self, ids: Tensor) -> Tensor:
        return torch.full_like(ids, self._keys.data_ptr())

    def values_of(self, ids: Tensor) -> Tensor:
        return self._tokens[ids]

    def counts_of(self, _ids: Tensor, _merged: bool) -> None:
        return None

    def require_sound(self, _measured: Tensor) -> None:
        pass


def draft(segments: Sequence[Sequence[int]], near: Sequence[int], last: int, **settings: Any) -> list[int]:
    """The draft of a sentence with these segments of a store, between which are others.

    near: which of the sentence's entries a row found, nearest first; last: the token that it chose
    """
    tokens: list[int] = [END]
    chosen: list[int] = []
    for segment in segments:
        chosen += range(len(tokens), len(tokens) + len(segment))
        tokens += [*segment, 99]
    own = CompiledOwnEntries(library(), Tokens(tokens), [np.array(chosen, dtype=np.int64)])  # type: ignore[arg-type]
    told = {"sure": 1.0, "least": 0.0, "most": 15, "vocabulary": 50, "limit": 15, **settings}
    drafting = Drafting(len(near), 16, told["most"], told["vocabulary"], END, told["least"])
    return own.draft(drafting, torch.tensor([near]), [0], [last], [told["sure"]], [told["limit"]])[0]


def by_all_continuations(
    segments: Sequence[Sequence[int]], near: Sequence[int], last: int, sure: float, least: float
) -> list[int]:
    """The same votes, by looking at all continuations anew for every token."""
    after = [segment[place + 1 :] for segment in segments for place in range(len(segment))]
    own = [token for segment in segments for token in segment]
    having_it = [after[place] for place in near if place >= 0 and own[place] == last]
    found: list[int] = []
    reached = 1.0
    while having_it:
        agreeing = {
            rank: tokens[len(found)] if len(tokens) > len(found) else END
            for rank, tokens in enumerate(having_it)
            if tokens[: len(found)] == found
        }
        weights = dict.fromkeys(agreeing.values(), 0.0)
        for rank, token in agreeing.items():
            weights[token] += 1 / (1 + rank)
        token = max(weights, key=lambda each: weights[each])
        reached *= sure * weights[token] / sum(1 / (1 + rank) for rank in range(len(having_it)))
        if token == END or reached < least:
            break
        found.append(token)
    return found


@needs_compiled
@given(st.data())
def test_a_draft_is_what_follows_the_entries_that_have_the_token(data: st.DataObject) -> None:
    segments = data.draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=5))
    near = data.draw(st.lists(st.integers(-1, sum(map(len, segments)) - 1), min_size=1, max_size=16))
    last, sure, least = data.draw(st.integers(0, 3)), data.draw(st.floats(0, 1)), data.draw(st.floats(0, 1))
    expected = by_all_continuations(segments, near, last, sure, least)
    assert draft(segments, near, last, sure=sure, least=least) == expected
    assert draft(segments, near, last, sure=sure, least=least, limit=2) == expected[:2]
    assert draft(segments, near, last, sure=sure, least=least, most=3) == expected[:3]


@needs_compiled
def test_the_nearest_entry_counts_most_and_some_together_count_more() -> None:
    segments = [[21, 22, END], [21, 23, 24, END], [21, 23, 25, END]]
    first, second, third = 0, 3, 7
    assert draft(segments, [first, second], 21) == [22]
    assert draft(segments, [first, second, third], 21) == [22]
    assert draft(segments, [second, first, third], 21) == [23, 24]
    assert draft(segments, [second, first, third], 21, least=0.6) == [23]
    assert draft(segments, [second, first, third], 22) == []
    assert draft(segments, [-1, -1], 21) == []


@needs_compiled
def test_a_draft_stays_in_its_segment_and_in_the_vocabulary() -> None:
    """A store may be crafted: segments without an end, tokens that no model has."""
    assert draft([[21, 22], [23, 24]], [0], 21) == [22]
    assert draft([[21, 22], [23, 24]], [2], 23) == [24]
    assert draft([[21, 22, 50, 23, END]], [0], 21) == [22]
    assert draft([[21, 22, -7, 23, END]], [0], 21) == [22]
    assert draft([[21, 22, END]], [2], END) == []
    with pytest.raises(ValueError, match="expected rows of 1 sentences among 1"):
        CompiledOwnEntries(library(), Tokens([1]), [np.array([0])]).draft(  # type: ignore[arg-type]
            Drafting(1, 1, 1, 1, 0, 0.0), torch.tensor([[0]]), [1], [1], [1.0], [1]
        )


def test_a_token_must_be_the_more_probable_the_more_sentences_there_are() -> None:
    least = [least_chance(sentences) for sentences in (1, 2, 4, 8, 64)]
    assert least == sorted(least)
    assert least[0] < 0.25
    assert certainty(0.0) < least[0], "nothing is drafted where the memory does not count"
