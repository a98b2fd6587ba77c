"""Steps of fixed shape find what the ordinary loops find: on a CPU done each time, on a GPU recorded and replayed."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.config import CacheConfig, DecodingConfig, Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.compiled import CompiledBackend
from knnmt.decoding.graph_buffers import CapturedWork, FreeBuffers, GraphBuffers, borrow, give_back, size_for
from knnmt.decoding.graphs import GraphBackend
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.reference import ReferenceBackend
from knnmt.decoding.search import Batch, backend_for, search, search_each
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError
from knnmt.native import library
from knnmt.retrieval.combiner import DistanceCombiner
from knnmt.retrieval.needs import Need
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt_lab.reproduction.random_gate import RandomGate
from support.checkpoints import MakeCheckpoint, own_engine
from support.datastore_pairs import some_pairs
from support.devices import DEVICES
from support.german import german_sentences
from support.loops import graph_search, reference_search

SOURCES = [
    [5, 17, 99, 120, 3, 0],
    [44, 8, 0],
    [201, 7, 7, 63, 0],
    [9, 0],
    [88, 130, 12, 54, 66, 190, 2, 0],
    *([3 + i, 50 + 7 * i, 0] for i in range(9)),
]
FADING = Fading(scale=8.0, width=2.0, sentence_scale=9.0, sentence_width=1.5)


@pytest.fixture(scope="module", params=DEVICES)
def small(request: pytest.FixtureRequest, tiny_checkpoint: Path) -> TransformerEngine:
    """The tiny engine on each device, in float32."""
    engine = load_engine(tiny_checkpoint, device=request.param, dtype="float32")
    assert isinstance(engine, TransformerEngine)
    return engine


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    """Of hypotheses that are exactly as good, either may be found; in so few there is one at most."""
    assert [len(best) for best in found] == [len(best) for best in expected]
    pairs = [pair for each in zip(found, expected, strict=True) for pair in zip(*each, strict=True)]
    assert [mine.score for mine, _ in pairs] == pytest.approx([other.score for _, other in pairs], abs=1e-4)
    differing = [abs(mine.score - other.score) for mine, other in pairs if mine.tokens != other.tokens]
    assert max(differing, default=0) < 1e-6
    assert len(differing) <= len(pairs) // 50


def ordinary(engine: TransformerEngine, config: DecodingConfig, *rest: Any) -> list[list[Hypothesis]]:
    return reference_search(engine, SOURCES, config, *rest)


@contextmanager
def buffers_for(engine: TransformerEngine, *shape: int) -> Iterator[GraphBuffers]:
    buffers = borrow(engine, *shape)
    yield buffers
    give_back(engine, buffers)


@pytest.mark.parametrize("beam", [1, 3, 5])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_tokens": 4},
        {"max_tokens": 1},
        {"min_tokens": 9},
        {"length_penalty": 0.2, "early_stopping": "never"},
        {"early_stopping": True},
        {"forced_first_token": 77, "max_tokens": 20},
        {"suppressed_tokens": (3, 44, 90)},
    ],
    ids=str,
)
def test_what_is_found_is_what_the_ordinary_loops_find(
    small: TransformerEngine, beam: int, settings: dict[str, Any]
) -> None:
    config = replace(small.generation, beam=beam, n_best=beam, **settings)
    expected = ordinary(small, config)
    assert_same(graph_search(small, SOURCES, config), expected)
    assert_same([best for source in SOURCES[:3] for best in graph_search(small, [source], config)], expected[:3])


def test_long_texts_need_more_slots_than_a_room_has_at_first(make_checkpoint: MakeCheckpoint) -> None:
    engine = own_engine(make_checkpoint(max_position_embeddings=160))
    config = replace(engine.generation, beam=5, n_best=5, min_tokens=110, max_tokens=120)
    found = graph_search(engine, SOURCES, config)
    assert engine.get_or_make(FreeBuffers).free[0].memory.capacity > 128
    assert_same(found, ordinary(engine, config))
    assert_same(graph_search(engine, SOURCES, config), found)  # what was recorded before it grew is not used again


def test_sources_may_be_as_long_as_the_model_allows(small: TransformerEngine) -> None:
    """Which is no round number: what they are filled up with must have positions, too."""
    sources = [[3 + i % 200 for i in range(small.max_positions - 1)] + [0], *SOURCES[:2]]
    config = replace(small.generation, beam=3, n_best=3, max_tokens=12)
    assert_same(graph_search(small, sources, config), search(small, sources, config))


def test_steps_that_are_the_same_work_are_recorded_once(tiny_checkpoint: Path) -> None:
    engine = own_engine(tiny_checkpoint)
    config = replace(engine.generation, beam=3)
    graph_search(engine, SOURCES, config)
    before = set(engine.get_or_make(FreeBuffers).free[0]._made)
    graph_search(engine, SOURCES, replace(config, n_best=3))
    assert set(engine.get_or_make(FreeBuffers).free[0]._made) == before
    graph_search(engine, SOURCES, replace(config, suppressed_tokens=(3,)))
    assert set(engine.get_or_make(FreeBuffers).free[0]._made) > before


def test_an_engine_that_nobody_uses_any_more_is_gone_with_its_rooms(tiny_checkpoint: Path) -> None:
    """At once: the memory of a GPU does not call for the garbage collector."""
    engine = own_engine(tiny_checkpoint)
    graph_search(engine, SOURCES, engine.generation)
    every = [weakref.ref(buffers) for buffers in engine.get_or_make(FreeBuffers).free]
    gc.disable()
    try:
        del engine
        assert [buffers() for buffers in every] == [None]
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stores") / "s"
    made = Datastore.build(place, some_pairs(25), tiny)
    made.add(some_pairs(10, start=95), tiny)
    made.remove(lambda pair: pair.source.startswith("Satz 4"))
    return place


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize(
    "settings", [{}, {"fading": FADING}, {"k": 100}, {"segments": 3}, {"segments": 99, "fading": FADING}], ids=str
)
def test_retrieval_is_the_ordinary_one(
    small: TransformerEngine, store: Path, beam: int, settings: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"k": 4, "interpolation_weight": 0.6, "temperature": 20.0, **settings}
    retrieval = Retrieval(OpenStore(Datastore.open(store), small.device, exact=True), RetrievalConfig(**given))
    config = replace(small.generation, beam=beam, n_best=beam, max_tokens=24)
    for decoding in (config, replace(config, forced_first_token=77)):
        counted = [Statistics(), Statistics()]
        batches = [BatchRetrieval([retrieval] * len(SOURCES), each) for each in counted]
        assert_same(graph_search(small, SOURCES, decoding, batches[0]), ordinary(small, decoding, batches[1]))
        assert counted[0].searches == counted[1].searches == counted[0].rows == counted[1].rows


def test_a_store_that_is_closed_is_gone_although_steps_with_it_are_kept(small: TransformerEngine, store: Path) -> None:
    opened = OpenStore(Datastore.open(store), small.device, exact=True)
    retrieval = Retrieval(opened, RetrievalConfig(k=4, interpolation_weight=0.6, temperature=20))
    graph_search(small, SOURCES, small.generation, BatchRetrieval([retrieval] * len(SOURCES)))
    held = [weakref.ref(each) for each in (opened, opened.values, *opened.snapshot.index.parts)]
    gc.disable()
    try:
        del opened, retrieval
        assert [each() for each in held] == [None] * len(held)
    finally:
        gc.enable()


def test_only_plain_retrieval_can_be_fixed(tiny: TransformerEngine, store: Path) -> None:
    plain = Retrieval(OpenStore(Datastore.open(store)), RetrievalConfig(k=4, interpolation_weight=0.6, temperature=2))
    cached = replace(plain, config=replace(plain.config, cache=CacheConfig(2.0)))
    gated = replace(plain, gate=RandomGate(1.0))
    combined = replace(plain, combiner=DistanceCombiner(plain.config, 1.0))
    for sentences, record, lacking in (
        ([plain, plain], False, []),
        ([plain, plain], True, [Need.EVIDENCE]),
        ([plain, None], False, [Need.SEVERAL_SETTINGS]),
        ([cached, cached], False, [Need.CACHE]),
        ([gated, gated], False, [Need.GATE]),
        ([combined, combined], False, [Need.COMBINER]),
    ):
        assert BatchRetrieval(sentences, record=record).needs & GraphBackend.LACKS == set(lacking)


def test_a_store_that_changes_is_searched_as_it_is_then(
    tiny: TransformerEngine, small: TransformerEngine, tmp_path: Path
) -> None:
    made = Datastore.build(tmp_path / "s", some_pairs(5), tiny)
    opened = OpenStore(Datastore.open(made.path), small.device, exact=True)
    retrieval = Retrieval(opened, RetrievalConfig(k=4, interpolation_weight=0.9, temperature=2))
    config = replace(small.generation, beam=3, max_tokens=24)
    before = graph_search(small, SOURCES, config, BatchRetrieval([retrieval] * len(SOURCES)))
    made.add(some_pairs(30, start=50), tiny)
    assert opened.refresh()
    after = graph_search(small, SOURCES, config, BatchRetrieval([retrieval] * len(SOURCES)))
    assert_same(after, ordinary(small, config, BatchRetrieval([retrieval] * len(SOURCES))))
    assert [best[0].tokens for best in after] != [best[0].tokens for best in before]


def test_buffers_are_used_again_and_never_shared(tiny_checkpoint: Path) -> None:
    engine = own_engine(tiny_checkpoint)
    with buffers_for(engine, 4, 2, 128, 10) as first:
        with buffers_for(engine, 4, 2, 128, 10) as second:
            assert second is not first
        assert engine.get_or_make(FreeBuffers).free == [second]
    with buffers_for(engine, 3, 2, 128, 200) as third:
        assert (third.memory.sentences, third.memory.source) == (4, 256)
        assert engine.get_or_make(FreeBuffers).free == []  # the smaller ones are gone
    with buffers_for(engine, 1, 2, 128, 3) as again:
        assert again is third


def test_few_long_and_many_short_sentences_have_rooms_of_their_own(tiny_checkpoint: Path) -> None:
    engine = own_engine(tiny_checkpoint)
    shapes = []
    for sentences, source in ((64, 10), (2, 1000), (48, 30), (2, 900), (1, 5), (96, 200)):
        with buffers_for(engine, sentences, 2, 128, source) as buffers:
            shapes.append(buffers.shape)
    assert shapes == [(64, 128), (2, 1024), (64, 128), (2, 1024), (2, 1024), (96, 256)]
    assert [buffers.shape for buffers in engine.get_or_make(FreeBuffers).free] == [
        (2, 1024),
        (96, 256),
    ]  # the smaller one is gone


def test_threads_decode_side_by_side(small: TransformerEngine) -> None:
    config = replace(small.generation, beam=3, n_best=3)
    expected = ordinary(small, config)
    found: list[list[list[Hypothesis]]] = []
    threads = [threading.Thread(target=lambda: found.append(graph_search(small, SOURCES, config))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for each in found:
        assert_same(each, expected)


def test_sizes_are_few_and_near() -> None:
    sizes = [size_for(count) for count in range(1, 300)]
    assert all(size >= count and size <= 1.5 * count for count, size in enumerate(sizes, 1))
    assert len(set(sizes)) < 20


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_replayed_steps_of_the_shipped_model(dtype: str) -> None:
    engine = load_engine(device="cuda", dtype=dtype)
    sources = engine.tokenizer.encode_sources(german_sentences(96))
    config = replace(engine.generation, beam=5)
    expected = search(engine, sources, config)
    for size in (48, 32, 1):  # two of each, so that the second is replayed from its first step on
        batches = [sources[i : i + size] for i in range(0, 2 * size, size)]
        found = [best[0].tokens for batch in batches for best in search(engine, batch, config)]
        same = [mine == other[0].tokens for mine, other in zip(found, expected, strict=False)]
        assert sum(same) >= {"float32": 0.97, "float16": 0.9}[dtype] * len(same)
    assert isinstance(engine, TransformerEngine)
    kept = [
        each
        for buffers in engine.get_or_make(FreeBuffers).free
        for each in buffers._made.values()
        if isinstance(each, CapturedWork)
    ]
    assert sum(each.replays for each in kept) >= 3


def test_the_fastest_backend_that_can_make_the_steps_makes_them(
    tiny: TransformerEngine, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decided without a GPU: by an engine that says that it is on one."""
    plain = Retrieval(OpenStore(Datastore.open(store)), RetrievalConfig(k=4, interpolation_weight=0.6, temperature=2))
    cached = replace(plain, config=replace(plain.config, cache=CacheConfig(2.0)))
    by_segment = replace(plain, config=replace(plain.config, segments=3))
    on_gpu = copy(tiny)
    on_gpu.device = torch.device("cuda")
    on_gpu._compiled = None
    config = replace(tiny.generation, beam=3)
    looks_back = replace(config, suppressed_sequences=((3, 4),))

    def chosen(
        engine: Any, decoding: DecodingConfig, retrieval: Retrieval | None = None, record: bool = False
    ) -> tuple[object, str]:
        batch = None if retrieval is None else BatchRetrieval([retrieval], record=record)
        choice = backend_for(engine, decoding, batch)
        return choice.make, "; ".join(choice.why)

    for retrieval in (None, plain, by_segment):
        assert chosen(on_gpu, config, retrieval) == (GraphBackend, "")
    for decoding, retrieval, record, why in (
        (looks_back, None, False, "look back at the text"),
        (config, cached, False, "a cache is used"),
        (config, plain, True, "evidence is recorded"),
    ):
        make, reasons = chosen(on_gpu, decoding, retrieval, record)
        assert make is ReferenceBackend
        assert reasons.startswith(f"{why}; no compiled code") or why in reasons
    if library() is not None:
        for retrieval in (None, by_segment):
            make, reasons = chosen(tiny, looks_back, retrieval)
            assert (make, reasons) == (CompiledBackend, f"{Need.CPU.value}; {Need.HISTORY.value}")
        assert chosen(tiny, config, plain) == (CompiledBackend, "the model is not on a GPU")
    monkeypatch.setattr("knnmt.retrieval.open_store.SMALL", 3)
    make, reasons = chosen(tiny, config, plain)
    assert (make, "the whole store is searched" in reasons or library() is None) == (ReferenceBackend, True)

    class Other:
        """An engine that cannot record its steps."""

        device = on_gpu.device

    make, reasons = chosen(Other(), config, plain)
    assert make is ReferenceBackend
    assert Need.ANY_SHAPE.value in reasons


@pytest.mark.parametrize("segments", [None, 3])
def test_batches_one_after_another_are_those_one_by_one(
    small: TransformerEngine, store: Path, segments: int | None
) -> None:
    """Segments of the next batch are chosen while one is decoded."""
    config = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=20.0, segments=segments)
    retrieval = Retrieval(OpenStore(Datastore.open(store), small.device, exact=True), config)
    batches = [SOURCES[:4], SOURCES[4:5], SOURCES[5:]]
    asked = [
        Batch(each, BatchRetrieval([retrieval] * len(each)) if number else None) for number, each in enumerate(batches)
    ]
    found = list(search_each(small, asked, small.generation))
    expected = [
        search(small, each, small.generation, batch and BatchRetrieval([retrieval] * len(each)))
        for each, batch, *_ in asked
    ]
    for mine, other in zip(found, expected, strict=True):
        assert_same(mine, other)
    assert not list(search_each(small, [], small.generation))


def test_a_choice_that_fails_ends_its_own_batch(small: TransformerEngine, store: Path) -> None:
    config = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=20.0, segments=3)
    retrieval = Retrieval(OpenStore(Datastore.open(store), small.device, exact=True), config)
    sound, damaged = BatchRetrieval([retrieval]), BatchRetrieval([retrieval])

    def choose(_: object) -> Any:
        raise DatastoreDamagedError("its postings")

    damaged.choose = choose  # type: ignore[method-assign, assignment]
    found = search_each(small, [Batch(SOURCES[:1], sound), Batch(SOURCES[1:2], damaged)], small.generation)
    assert len(next(found)) == 1
    with pytest.raises(DatastoreDamagedError, match="postings"):
        next(found)
