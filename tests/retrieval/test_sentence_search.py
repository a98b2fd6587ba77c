"""Retrieval by segment: exact search among a sentence's own entries, beside brute force and beside the whole store."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import CacheConfig, Fading, RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.search import search
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, SettingError
from knnmt.index.base import SearchResult
from knnmt.index.entries import Entries
from knnmt.index.store_index import StoreIndex
from knnmt.native import library, load
from knnmt.retrieval import needs
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.plain import PlainSteps
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.sentence_search import CompiledSentenceSearch
from knnmt.retrieval.sentence_stores import SentenceStores
from support import warm
from support.crafted import alter_arrays
from support.datastore_pairs import some_pairs
from support.keys_alone import KeysAlone
from support.native_builds import builds_that_run

CONFIG = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=20.0)
TEXTS = ["Satz 3 ja ja", "Satz 12", "Satz 7 nein", "anders", "Satz 20 ja"]
EVERY = 4096
Own = SentenceStores | CompiledSentenceSearch


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(25), tiny)


def plain(entries: Entries, chosen: list[Array]) -> Own:
    return SentenceStores(entries, chosen)


def in_compiled_code(entries: Entries, chosen: list[Array]) -> Own:
    native = library()
    if native is None:
        pytest.skip("nothing was compiled: no C++ compiler")
    return CompiledSentenceSearch(native, entries, chosen)


@pytest.mark.parametrize("made", [plain, in_compiled_code])
def test_each_row_finds_the_nearest_of_its_own_entries(
    store: Datastore, made: Callable[[Entries, list[Array]], Own]
) -> None:
    entries = Entries(store)
    chosen = [np.array([3, 8, 40, 41]), np.arange(90), np.array([], np.int64), np.array([17]), np.arange(30, 60)]
    own = made(entries, chosen)
    chance = torch.Generator().manual_seed(1)

    def assert_nearest(found: SearchResult, queries: Tensor, mine: list[Array]) -> None:
        for row, query in enumerate(queries.double().numpy()):
            ids = mine[row // 3]
            distances = ((entries.keys_of(ids).astype(np.float64) - query) ** 2).sum(1)
            order = np.argsort(distances, kind="stable")[:6]
            count = len(order)
            assert found[1][row, :count].tolist() == ids[order].tolist()
            assert found[0][row, :count].numpy() == pytest.approx(distances[order], rel=1e-4, abs=1e-4)
            assert found[1][row, count:].tolist() == [-1] * (6 - count)
            assert bool(found[0][row, count:].isinf().all())

    queries = torch.randn(15, entries.dim, generator=chance)
    assert_nearest(own.search(queries, 6), queries, chosen)
    own.keep([4, 1])
    assert_nearest(own.search(queries[:6], 6), queries[:6], [chosen[4], chosen[1]])


@pytest.mark.parametrize("made", [plain, in_compiled_code])
@pytest.mark.parametrize("copies", [2, 40])
def test_of_equal_keys_those_that_come_first_are_found(
    store: Datastore, made: Callable[[Entries, list[Array]], Own], copies: int
) -> None:
    """Whatever the batch: products of rows side by side may round otherwise, so that equal keys seem apart."""
    entries = Entries(store)
    some = np.arange(0, 90, 3)
    chosen = [np.sort(np.tile(some, copies)), np.tile(some, copies), np.tile(np.arange(30, 60), copies)]
    chance = torch.Generator().manual_seed(2)
    queries = torch.randn(6, entries.dim, generator=chance)
    queries[0] = torch.from_numpy(entries.keys_of(some[4:5]).astype(np.float32))[0]
    found = made(entries, chosen).search(queries, 9)
    for sentence, ids in enumerate(chosen):
        alone = made(entries, [ids])
        for row in (2 * sentence, 2 * sentence + 1):
            distances = ((entries.keys_of(ids).astype(np.float64) - queries[row].double().numpy()) ** 2).sum(1)
            order = np.argsort(distances, kind="stable")[:9]
            assert found[1][row].tolist() == ids[order].tolist()
            assert alone.search(queries[row : row + 1], 9)[1][0].tolist() == ids[order].tolist()


@pytest.mark.parametrize("build", builds_that_run())
@pytest.mark.parametrize("dim", [64, 77, 320])
@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-3])
def test_what_int8_cannot_tell_apart_is_measured(build: str, dim: int, spread: float) -> None:
    """Keys that differ by much less than a step of int8, some with one number that makes the steps large."""
    chance = torch.Generator().manual_seed(dim)
    keys = 1 + spread * torch.randn(999, dim, generator=chance)
    keys[::3, 5] = 40
    keys = keys.half()
    chosen = [np.arange(999), np.arange(0, 999, 3), np.array([7]), np.array([], np.int64)]
    own = CompiledSentenceSearch(load(build), KeysAlone(keys), chosen)  # type: ignore[arg-type]
    queries = keys[:12].float() + spread * torch.randn(12, dim, generator=chance)
    queries[4] = float("nan")
    found_sq, found = own.search(queries, 5)
    for row, query in enumerate(queries):
        mine = torch.from_numpy(chosen[row // 3])
        distances_sq = (keys[mine].double() - query.double()).square().sum(1)
        nearest_sq = distances_sq.sort().values[:5] if row != 4 else distances_sq[:0]
        count = len(nearest_sq)
        assert found[row, count:].tolist() == [-1] * (5 - count)
        assert bool(found_sq[row, count:].isinf().all())
        # By distances: float32 may take either of two that are as near.
        taken = torch.searchsorted(mine, found[row, :count])
        assert distances_sq[taken].tolist() == pytest.approx(nearest_sq.tolist(), rel=1e-5)
        assert found_sq[row, :count].tolist() == pytest.approx(nearest_sq.tolist(), rel=1e-5)
        assert len(set(found[row, :count].tolist())) == count


@pytest.mark.parametrize("build", builds_that_run())
def test_what_is_surely_far_is_not_measured(build: str) -> None:
    """Far keys become the query itself once all are in int8: whoever measured one would find it."""
    chance = torch.Generator().manual_seed(0)
    keys = torch.randn(900, 320, generator=chance).half()
    queries = keys[:2].float() + 0.1 * torch.randn(2, 320, generator=chance)
    keys[2:10] = (queries[:1] + 0.1 * torch.randn(8, 320, generator=chance)).half()
    own = CompiledSentenceSearch(load(build), KeysAlone(keys), [np.arange(900)])  # type: ignore[arg-type]
    keys[10:] = queries[0].half()
    found = own.search(queries[:1], 4)[1]
    assert int(found.max()) < 10


def test_sentences_with_the_same_entries_share_their_keys(store: Datastore) -> None:
    entries, every = Entries(store), np.arange(90)
    own = in_compiled_code(entries, [every, np.arange(5), every])
    assert isinstance(own, CompiledSentenceSearch)
    assert own.held_keys == 90 + 5
    query = torch.randn(1, entries.dim, generator=torch.Generator().manual_seed(2))
    found = own.search(query.expand(3, -1), 4)[1]
    assert found[0].tolist() == found[2].tolist()


def decoded(engine: TransformerEngine, retrieval: Retrieval, texts: list[str]) -> list[tuple[tuple[int, ...], float]]:
    sources = engine.tokenizer.encode_sources(texts)
    config = replace(engine.generation, beam=3, max_tokens=10)
    found = search(engine, sources, config, BatchRetrieval([retrieval] * len(sources)))
    return [(each[0].tokens, each[0].score) for each in found]


def assert_alike(some: list[tuple[tuple[int, ...], float]], others: list[tuple[tuple[int, ...], float]]) -> None:
    assert [tokens for tokens, _ in some] == [tokens for tokens, _ in others]
    assert [score for _, score in some] == pytest.approx([score for _, score in others], abs=1e-4)


@pytest.mark.parametrize("way", ["compiled", "plain", "float32 keys"])
@pytest.mark.parametrize("fixed", [True, False])
def test_all_segments_are_the_whole_store(
    tiny: TransformerEngine, tmp_path: Path, way: str, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "plain":
        monkeypatch.setattr(needs, "library", lambda: None)
    pairs = [*some_pairs(25), *some_pairs(3)]  # some of which say the same
    built = BuildConfig(key_dtype="float32" if way == "float32 keys" else "float16")
    store = Datastore.build(tmp_path / "s", pairs, tiny, built)
    store.remove(lambda pair: pair.source == some_pairs(5)[4].source)
    opened = OpenStore(Datastore.open(store.path), exact=True)
    config = CONFIG if fixed else replace(CONFIG, fading=Fading(6.0, 1.0, 6.0, 1.0))
    whole = decoded(tiny, Retrieval(opened, config), TEXTS)
    assert_alike(decoded(tiny, Retrieval(opened, replace(config, segments=EVERY)), TEXTS), whole)
    steps = BatchRetrieval([Retrieval(opened, replace(config, segments=5))]).stepwise
    assert isinstance(steps, CompiledSteps if way == "compiled" and library() is not None else PlainSteps)


@pytest.mark.parametrize("kind", ["reduced", "pruned", "both"])
def test_stores_made_from_others_are_searched_by_segment(
    tiny: TransformerEngine, store: Datastore, tmp_path: Path, kind: str
) -> None:
    made = store
    if kind in ("reduced", "both"):
        made, _ = reduce(made, tmp_path / "short", 8)
    if kind in ("pruned", "both"):
        made = prune(made, tmp_path / "few", StoreIndex(made).search, 4, 0)
    opened = OpenStore(made, exact=True)
    whole = decoded(tiny, Retrieval(opened, CONFIG), TEXTS)
    assert_alike(decoded(tiny, Retrieval(opened, replace(CONFIG, segments=EVERY)), TEXTS), whole)
    few = decoded(tiny, Retrieval(opened, replace(CONFIG, segments=2)), TEXTS)
    assert_alike(decoded(tiny, Retrieval(opened, replace(CONFIG, segments=2)), TEXTS[:2]), few[:2])


def test_few_segments_find_their_own_entries_alone(tiny: TransformerEngine, store: Datastore) -> None:
    opened = OpenStore(store)
    sources = tiny.tokenizer.encode_sources(TEXTS)
    chosen = opened.snapshot.segment_entries(sources, 2)
    for source, ids in zip(sources, chosen, strict=True):
        found = opened.snapshot.source_index.choose([source[:-1]], 2).sentences[0].tolist()
        assert ids.tolist() == np.flatnonzero(np.isin(store.segments[0].arrays["sentences"], found)).tolist()


def test_an_addition_and_a_removal_count_at_once(tiny: TransformerEngine, tmp_path: Path) -> None:
    opened = OpenStore(Datastore.build(tmp_path / "s", some_pairs(25), tiny))
    sources = tiny.tokenizer.encode_sources(["Ganz neu"])
    before = set(opened.snapshot.segment_entries(sources, 3)[0].tolist())
    writer = Datastore.open(tmp_path / "s")
    first = writer.entries
    writer.add([SegmentPair("Ganz neu", "all new", "own#1")], tiny)
    opened.refresh()
    assert set(range(first, writer.entries)) <= set(opened.snapshot.segment_entries(sources, 3)[0].tolist())
    writer.remove(lambda pair: pair.origin == "own#1")
    opened.refresh()
    assert set(opened.snapshot.segment_entries(sources, 3)[0].tolist()) == before


def test_what_goes_with_segments(store: Datastore) -> None:
    assert "segments:5" in replace(CONFIG, segments=5).signature()
    for other in ({"gate": 0.5}, {"cache": CacheConfig(3.0)}):
        with pytest.raises(SettingError, match="leave them out, or search the whole store"):
            replace(CONFIG, segments=5, **other)
    with pytest.raises(SettingError, match=r"segments must lie between 1 and 4,096, got 0"):
        replace(CONFIG, segments=0)
    assert OpenStore(store).snapshot.source_index.sentences == 25


def in_unit_vectors(entries: Entries, chosen: list[Array]) -> Own:
    return SentenceStores(entries, chosen, cosine=True)


@pytest.mark.parametrize("made", [plain, in_unit_vectors, in_compiled_code])
def test_a_key_that_is_no_number_is_said(
    store: Datastore, tmp_path: Path, made: Callable[[Entries, list[Array]], Own]
) -> None:
    altered = shutil.copytree(store.path, tmp_path / "s")

    def change(keys: Array) -> Array:
        keys[5, 0] = np.nan
        return keys

    alter_arrays(altered, keys=change)
    entries = Entries(Datastore.open(altered))
    made(entries, [np.arange(5), np.arange(6, 9)])
    with pytest.raises(DatastoreDamagedError, match="the key of an entry is not a finite number"):
        made(entries, [np.arange(5), np.arange(4, 7)])


THREADS = """
import os
import sys
import time
from pathlib import Path
import torch
from support.datastore_pairs import some_pairs
from knnmt import Datastore, Translator
from knnmt.config import RetrievalConfig
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval


def others_worked():
    places = [Path(f"/proc/self/task/{each}") for each in os.listdir("/proc/self/task") if each != str(os.getpid())]
    others = [place for place in places if (place / "comm").read_text().strip() != "knnmt"]
    return sum(int((place / "stat").read_text().rpartition(")")[2].split()[11]) for place in others)


torch.set_num_threads(2)
engine = Translator(sys.argv[1], device="cpu", settings="raw").engine
opened = OpenStore(Datastore.open(sys.argv[2], engine), engine.device)
retrieval = Retrieval(opened, RetrievalConfig(4, 0.6, 20.0, segments=100))
sources = engine.tokenizer.encode_sources([pair.source for pair in some_pairs(2)])
torch.ones(10**7).exp_()  # threads of PyTorch wait in a loop after this, and then sleep
time.sleep(0.2)
before = others_worked()
for _ in range(100):
    BatchRetrieval([retrieval] * 2).mixtures(sources, engine.vocabulary_size)
    time.sleep(0.001)
print(before > 0, others_worked() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at threads as Linux lists them")
def test_threads_of_pytorch_stay_asleep(tmp_path: Path, tiny_checkpoint: Path, tiny: TransformerEngine) -> None:
    """After its work, such a thread waits in a loop for milliseconds, and takes the processor from compiled steps."""
    if library() is None:
        pytest.skip("nothing was compiled, or it is switched off")
    store = Datastore.build(tmp_path / "s", some_pairs(100), tiny)
    assert store.entries > 600
    command = [sys.executable, "-W", "ignore", "-c", THREADS, str(tiny_checkpoint), str(store.path)]
    worked, ticks = warm.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert worked == "True"
    assert int(ticks) <= 1
