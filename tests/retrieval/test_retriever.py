"""The retrieval of a batch beside dense distributions, one row at a time, over stores whose keys are made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import CacheConfig, DecodingConfig, Fading, RetrievalConfig
from knnmt.datastore.arrays import Array
from knnmt.datastore.store import Datastore, matching
from knnmt.decoding.search import search
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.base import SearchResult
from knnmt.index.exact import ExactIndex
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.retrieval.step import Step
from support.datastore_pairs import some_pairs
from support.made_stores import VOCABULARY, column, made_store, plain_search, random_keys, random_values

DIM = 6
CONFIG = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=2.0)
FADING = Fading(scale=2.0, width=0.8, sentence_scale=3.0, sentence_width=0.9)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[OpenStore]:
    """Three: a plain one, one that was pruned, and one with fewer entries than k."""
    path = tmp_path_factory.mktemp("stores")
    plain = made_store(path / "plain", random_keys(200, DIM), random_values(200, kinds=20))
    other = made_store(path / "other", random_keys(90, DIM, 1), random_values(90, 1))
    few = made_store(path / "few", random_keys(3, DIM, 2), [30, 0, 31])
    return [OpenStore(plain), OpenStore(prune(other, path / "pruned", plain_search(other))), OpenStore(few)]


def states(sentences: int, width: int, seed: int = 0) -> Tensor:
    """Near the stores' keys."""
    chance = np.random.default_rng(seed + 100)
    near = random_keys(200, DIM)[chance.integers(200, size=sentences * width)]
    moved = near + 0.3 * chance.normal(size=near.shape)
    return torch.from_numpy(moved.reshape(sentences, width, DIM).astype(np.float32))


def model(sentences: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sentences, width, VOCABULARY, generator=generator).log_softmax(-1)


def dense(store: OpenStore, config: RetrievalConfig, state: Tensor, base: Tensor) -> Array:
    """Equations 2 and 3 for one row with a fixed λ, over the whole vocabulary."""
    keys, values = column(store.datastore, "keys").astype(np.float64), column(store.datastore, "values")
    counts = (
        column(store.datastore, "counts") if "counts" in store.datastore.segments[0].arrays else np.ones(len(values))
    )
    distances_sq = ((keys - state.double().numpy()) ** 2).sum(1)
    nearest = distances_sq.argsort()[: config.k]
    p_knn = np.zeros(VOCABULARY)
    for entry in nearest:
        p_knn[values[entry]] += counts[entry] * np.exp(-(distances_sq[entry] - distances_sq.min()) / config.temperature)
    weight = config.interpolation_weight
    mixed: Array = weight * p_knn / p_knn.sum() + (1 - weight) * base.double().exp().numpy()
    return mixed


def mixed(retrieval: BatchRetrieval, representations: Tensor, base: Tensor) -> Tensor:
    """What a step makes of the model's log-probabilities, which are left as they are."""
    scores = base.clone()
    return retrieval.mix(representations, scores, nothing_yet(representations))[..., None] + scores


def nothing_yet(representations: Tensor) -> Tensor:
    """The history of a first step."""
    return torch.zeros((*representations.shape[:2], 0), dtype=torch.long)


# Equation 3 -----------------------------------------------------------------------------------------------------------


@given(
    of_sentences=st.lists(st.sampled_from([None, 0, 1, 2]), min_size=1, max_size=5),
    width=st.integers(1, 3),
    k=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_a_step_is_the_dense_mixture(
    stores: list[OpenStore], of_sentences: list[int | None], width: int, k: int, seed: int
) -> None:
    """Of every row with the settings of its sentence; a row without a store stays as it is, bit for bit."""
    retrievals = [
        Retrieval(store, RetrievalConfig(k + number, 0.3 + 0.2 * number, 1.0 + number))
        for number, store in enumerate(stores)
    ]
    batch = BatchRetrieval([None if each is None else retrievals[each] for each in of_sentences])
    for step in range(2):
        representations, base = states(len(of_sentences), width, seed + step), model(len(of_sentences), width, seed)
        result = mixed(batch, representations, base)
        for sentence, each in enumerate(of_sentences):
            if each is None:
                assert torch.equal(result[sentence], base[sentence])
                continue
            for row in range(width):
                expected = dense(
                    stores[each], retrievals[each].config, representations[sentence, row], base[sentence, row]
                )
                np.testing.assert_allclose(result[sentence, row].exp(), expected, rtol=2e-3, atol=1e-6)


def test_without_weight_nothing_changes(stores: list[OpenStore]) -> None:
    for fading in (None, FADING):
        retrieval = Retrieval(stores[0], replace(CONFIG, interpolation_weight=0.0, fading=fading))
        base = model(3, 2)
        assert torch.equal(mixed(BatchRetrieval([retrieval] * 3), states(3, 2), base), base)


def test_reduced_stores_are_searched_with_reduced_states(stores: list[OpenStore], tmp_path: Path) -> None:
    reduced, _ = reduce(stores[0].datastore, tmp_path / "reduced", 3)
    opened = OpenStore(reduced)
    representations, base = states(2, 2), model(2, 2)
    result = mixed(BatchRetrieval([Retrieval(opened, CONFIG)] * 2), representations, base)
    for place in np.ndindex(2, 2):
        state = opened.project(representations[place][None])[0]
        assert state.shape == (3,)
        np.testing.assert_allclose(result[place].exp(), dense(opened, CONFIG, state, base[place]), rtol=2e-3, atol=1e-5)
    assert opened.signature().startswith("store:reduced|n:200|d:3|made:pca")


def test_a_store_that_grows_is_taken_up_when_told(tiny: TransformerEngine, tmp_path: Path) -> None:
    Datastore.build(tmp_path / "s", some_pairs(20), tiny)
    opened = OpenStore(Datastore.open(tmp_path / "s"))
    other = Datastore.open(tmp_path / "s")
    assert not opened.refresh()
    before = other.entries
    other.add(some_pairs(1, start=77), tiny)
    key = torch.from_numpy(other.segments[-1].arrays["keys"][:1].astype(np.float32))
    assert int(opened.search(key, 1).ids) < before
    assert opened.refresh()
    found = opened.search(key, 1)
    assert found.ids.tolist() == [[before]]
    assert found.tokens.tolist() == [[int(other.segments[-1].arrays["values"][0])]]
    content = f"content:{other.manifest.content[:8]}"
    assert opened.signature() == f"store:s|n:{other.manifest.live_entries}|d:32|{content}|index:exact"


def test_removed_entries_are_found_no_more(tmp_path: Path) -> None:
    store = made_store(tmp_path / "s", random_keys(40, DIM), np.arange(40, dtype=np.int32))
    opened = OpenStore(store)
    query = torch.from_numpy(random_keys(40, DIM)[:1])
    assert opened.search(query, 1).tokens.tolist() == [[0]]
    Datastore.open(store.path).remove(matching(origin="own#0"))
    assert opened.refresh()
    assert int(opened.search(query, 1).tokens) >= 4


# Which rows search ----------------------------------------------------------------------------------------------------


class Counting(OpenStore):
    """Notes how many queries reach the index."""

    def __init__(self, store: Datastore) -> None:
        super().__init__(store)
        self.asked: list[int] = []
        index, asked = self.snapshot.index, self.asked

        class CountingPart(ExactIndex):
            def search(self, queries: Tensor, k: int) -> SearchResult:
                asked.append(len(queries))
                return super().search(queries, k)

        self.snapshot = replace(self.snapshot, index=replace(index, tail=(CountingPart(index.entries),)))


def test_equal_rows_are_searched_once(stores: list[OpenStore]) -> None:
    counting = Counting(stores[0].datastore)
    once = states(2, 1)
    representations = once.expand(2, 5, DIM)[[0, 1, 0]]
    base = model(3, 5)
    result = mixed(BatchRetrieval([Retrieval(counting, CONFIG)] * 3), representations, base)
    assert counting.asked == [2]
    for place in np.ndindex(3, 5):
        expected = dense(counting, CONFIG, representations[place], base[place])
        np.testing.assert_allclose(result[place].exp(), expected, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("own_lambda", [False, True])
def test_a_gate_says_which_rows_search_and_with_which_weight(stores: list[OpenStore], own_lambda: bool) -> None:
    counting = Counting(stores[0].datastore)
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    weights = torch.tensor([0.2, 0.9, 0.4])

    def gate(step: Step) -> tuple[Tensor, Tensor | None]:
        seen.append((step.states, step.log_probabilities.clone(), step.history))
        return wanted, None if own_lambda else weights.log()

    representations, base = states(2, 3), model(2, 3)
    wanted = representations[1, :, 0] > float(representations[..., 0].median())
    batch = BatchRetrieval([None, Retrieval(counting, CONFIG, gate)], record=True)
    scores, history = base.clone(), torch.arange(24).view(2, 3, 4)
    result = batch.mix(representations, scores, history)[..., None] + scores
    assert all(torch.equal(*each) for each in zip(seen[0], (representations[1], base[1], history[1]), strict=True))
    assert 0 < int(wanted.sum()) < 3
    assert counting.asked == [int(wanted.sum())]
    assert batch.statistics.rows == 3
    assert batch.statistics.searches == int(wanted.sum())
    assert batch.evidence is not None
    assert batch.evidence[0] is not None
    for row, searched in enumerate(wanted.tolist()):
        weight = (0.6 if own_lambda else float(weights[row])) if searched else 0.0
        assert float(batch.evidence[0].log_lambda[3 + row].exp()) == pytest.approx(weight)
        assert bool((batch.evidence[0].neighbours.ids[3 + row] >= 0).all()) == searched
        if searched:
            config = replace(CONFIG, interpolation_weight=weight)
            expected = dense(counting, config, representations[1, row], base[1, row])
            np.testing.assert_allclose(result[1, row].exp(), expected, rtol=2e-3, atol=1e-6)
        else:
            assert torch.equal(result[1, row], base[1, row])


def test_a_gates_weight_is_nothing_where_nothing_is_found(tmp_path: Path) -> None:
    empty = OpenStore(made_store(tmp_path / "s", random_keys(3, DIM), [30, 0, 31]))
    empty.datastore.remove(matching(match="."))
    empty.refresh()
    sure = Retrieval(empty, CONFIG, lambda step: (torch.ones(len(step), dtype=torch.bool), torch.zeros(len(step))))
    base = model(2, 2)
    assert torch.equal(mixed(BatchRetrieval([sure] * 2), states(2, 2), base), base)


@pytest.mark.parametrize("with_cache", [False, True])
def test_a_gate_that_shuts_searches_nothing(stores: list[OpenStore], with_cache: bool) -> None:
    counting = Counting(stores[0].datastore)
    config = replace(CONFIG, fading=FADING, cache=CacheConfig(1e9) if with_cache else None)
    shut = Retrieval(counting, config, lambda step: (torch.zeros(len(step), dtype=torch.bool), None))
    batch, base = BatchRetrieval([shut] * 2), model(2, 2)
    for step in range(3):
        assert torch.equal(mixed(batch, states(2, 2, step), base), base)
    assert counting.asked == []
    assert (batch.statistics.rows, batch.statistics.searches, batch.statistics.hits) == (12, 0, 0)


# The cache ------------------------------------------------------------------------------------------------------------


@given(
    sentences=st.integers(1, 3),
    steps=st.integers(1, 6),
    scope=st.sampled_from(["sentence", "batch"]),
    keep_hits=st.booleans(),
    gated=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_hit_takes_over_what_the_nearest_earlier_state_found(
    stores: list[OpenStore], sentences: int, steps: int, scope: str, keep_hits: bool, gated: bool, seed: int
) -> None:
    threshold, width = 0.9, 2
    cache = CacheConfig(threshold, "batch" if scope == "batch" else "sentence", keep_hits)
    mean = float(states(9, 9)[..., 0].mean())
    gate = (lambda step: (step.states[:, 0] < mean, None)) if gated else None
    batch = BatchRetrieval([Retrieval(stores[0], replace(CONFIG, cache=cache), gate)] * sentences, record=True)
    batch.statistics.hit_distances = Counter()
    held: list[list[tuple[Array, list[int]]]] = [[] for _ in range(sentences)]  # states with the ids they found
    hits = searches = 0
    distances = []
    for step in range(steps):
        representations = states(sentences, width, 7 * seed + step % 3) + 0.1 * step
        mixed(batch, representations, model(sentences, width))
        recorded = batch.evidence[-1] if batch.evidence else None
        assert recorded is not None
        new: list[list[tuple[Array, list[int]]]] = [[] for _ in held]
        for row, state in enumerate(representations.view(-1, DIM)):
            mine = 0 if scope == "batch" else row // width
            ids = recorded.neighbours.ids[row].tolist()
            near = [(float(np.linalg.norm(state.numpy() - other)), old) for other, old in held[mine]]
            least = min((distance for distance, _ in near), default=float("inf"))
            hit = least <= threshold
            if gated and float(state[0]) >= mean:
                assert ids == [-1] * CONFIG.k
                assert not recorded.hits[row]
                continue
            assert bool(recorded.hits[row]) == hit
            if hit:
                assert ids in [old for distance, old in near if distance <= least + 1e-4]
                distances.append(least)
            else:
                assert ids == stores[0].search(state[None], CONFIG.k).ids[0].tolist()
            hits, searches = hits + hit, searches + (not hit)
            if keep_hits or not hit:
                new[mine].append((state.numpy(), ids))
        held = [old + more for old, more in zip(held, new, strict=True)]
    assert (batch.statistics.hits, batch.statistics.searches) == (hits, searches)
    assert batch.statistics.hit_distances == Counter(int(each) for each in distances)


def test_a_threshold_of_0_changes_nothing_and_saves_searches(stores: list[OpenStore]) -> None:
    plain = BatchRetrieval([Retrieval(stores[0], CONFIG)] * 2)
    cached = BatchRetrieval([Retrieval(stores[0], replace(CONFIG, cache=CacheConfig(0.0)))] * 2)
    for step in (0, 1, 0, 1, 2):
        representations, base = states(2, 3, step), model(2, 3, step)
        assert torch.equal(mixed(plain, representations, base), mixed(cached, representations, base))
    assert (cached.statistics.searches, cached.statistics.hits) == (18, 12)


def test_the_cache_of_a_sentence_knows_no_other(stores: list[OpenStore]) -> None:
    representations = states(1, 2)
    for scope, hits in (("sentence", 0), ("batch", 2)):
        cache = CacheConfig(0.1, scope)  # type: ignore[arg-type]
        batch = BatchRetrieval([Retrieval(stores[0], replace(CONFIG, cache=cache))] * 2)
        far = representations + 50
        mixed(batch, torch.cat([representations, far]), model(2, 2))
        mixed(batch, torch.cat([far + 50, representations]), model(2, 2))
        assert batch.statistics.hits == hits


def test_the_cache_compares_whole_states_where_asked(stores: list[OpenStore], tmp_path: Path) -> None:
    """Two states that differ only in what a PCA drops are one state to the keys, and two to the decoder."""
    reduced, _ = reduce(stores[0].datastore, tmp_path / "reduced", 2)
    opened = OpenStore(reduced)
    assert opened.snapshot.projection is not None
    first = states(1, 1)
    direction = torch.linalg.svd(opened.project(torch.eye(DIM)) - opened.project(torch.zeros(1, DIM)))[0][:, -1]
    second = first + 5 * direction  # which the projection does not see
    torch.testing.assert_close(opened.project(first[0]), opened.project(second[0]), atol=1e-4, rtol=1e-4)
    for whole, hits in ((False, 1), (True, 0)):
        cache = CacheConfig(1.0, whole_states=whole)
        batch = BatchRetrieval([Retrieval(opened, replace(CONFIG, cache=cache))])
        mixed(batch, first, model(1, 1))
        mixed(batch, second, model(1, 1))
        assert batch.statistics.hits == hits


@pytest.mark.parametrize(("keep_hits", "borrowed"), [(True, {0: 1, 1: 1, 2: 2}), (False, {0: 2})])
def test_what_is_borrowed_is_measured_to_the_state_that_was_searched(
    stores: list[OpenStore], keep_hits: bool, borrowed: dict[int, int]
) -> None:
    """Five states 0.7 apart, τ = 1: where hits are kept all use the first search, else every other one searches."""
    counted = Statistics(borrowed_distances=Counter())
    config = replace(CONFIG, cache=CacheConfig(1.0, "batch", keep_hits))
    batch = BatchRetrieval([Retrieval(stores[0], config)], counted)
    step = torch.tensor([0.7, *[0.0] * (DIM - 1)])
    for number in range(5):
        mixed(batch, states(1, 1) + number * step, model(1, 1))
    assert counted.borrowed_distances == Counter(borrowed)
    assert counted.searches == 5 - sum(borrowed.values())


# A batch that changes -------------------------------------------------------------------------------------------------


@given(st.permutations(range(5)), st.integers(1, 5), st.booleans(), st.integers(0, 20))
def test_sentences_that_leave_change_nothing_for_those_that_stay(
    stores: list[OpenStore], order: Sequence[int], count: int, two_stores: bool, seed: int
) -> None:
    """Fading and the cache remember the steps of a sentence wherever it stands."""
    config = replace(CONFIG, fading=FADING, cache=CacheConfig(0.8))
    first = Retrieval(stores[0], config)
    second = Retrieval(stores[1], replace(config, k=2, temperature=7.0)) if two_stores else first
    of_sentences = [first, second, None if two_stores else first, second, first]
    kept = list(order)[:count]

    def run(batch: BatchRetrieval, sentences: Sequence[int], step: int) -> Tensor:
        number = list(sentences)
        return mixed(batch, states(5, 2, seed + step % 2)[number] + 0.1 * step, model(5, 2, step)[number])

    together = BatchRetrieval(of_sentences)
    alone = [BatchRetrieval([each]) for each in of_sentences]
    for step in range(2):
        result = run(together, range(5), step)
        apart = torch.cat([run(each, [sentence], step) for sentence, each in enumerate(alone)])
        torch.testing.assert_close(result, apart, rtol=1e-4, atol=1e-5)
    together.keep(kept)
    for step in range(2, 5):
        result = run(together, kept, step)
        apart = torch.cat([run(alone[sentence], [sentence], step) for sentence in kept])
        torch.testing.assert_close(result, apart, rtol=1e-4, atol=1e-5)
    if count == 5:
        assert together.statistics.hits == sum(each.statistics.hits for each in alone)


def test_statistics_with_and_without_the_first_step(stores: list[OpenStore]) -> None:
    statistics = Statistics()
    retrieval = Retrieval(stores[0], replace(CONFIG, cache=CacheConfig(0.0)))
    for _ in range(2):  # two batches
        batch = BatchRetrieval([retrieval, None, retrieval], statistics)
        mixed(batch, states(3, 1, 0), model(3, 1))
        mixed(batch, states(3, 2, 1), model(3, 2))
        mixed(batch, states(3, 2, 1), model(3, 2))
    assert (statistics.rows, statistics.searches, statistics.hits) == (20, 12, 8)
    assert (statistics.first_rows, statistics.first_searches) == (4, 4)
    assert statistics.saved() == pytest.approx(8 / 20)
    assert statistics.saved(with_first_step=False) == pytest.approx(8 / 16)
    assert statistics.summary() == (
        "searches     12 for 20 rows (40.0% saved, 50.0% without first steps); 8 from the cache"
    )
    assert Statistics().saved() == Statistics(rows=3, first_rows=3).saved(with_first_step=False) == 0


def test_a_forced_first_step_is_not_counted_and_the_next_is_the_first(stores: list[OpenStore]) -> None:
    batch = BatchRetrieval([Retrieval(stores[0], CONFIG)], record=True)
    batch.skip()
    mixed(batch, states(1, 2), model(1, 2))
    mixed(batch, states(1, 2), model(1, 2))
    assert (batch.statistics.rows, batch.statistics.first_rows) == (4, 2)
    assert batch.evidence is not None
    assert [step is None for step in batch.evidence] == [True, False, False]


# What is recorded -----------------------------------------------------------------------------------------------------


def test_evidence_is_recorded(stores: list[OpenStore]) -> None:
    batch = BatchRetrieval([Retrieval(stores[2], CONFIG), None], record=True)
    representations, base = states(2, 2), model(2, 2)
    scores = base.clone()
    batch.mix(representations, scores, nothing_yet(representations))
    assert batch.evidence is not None
    (step,) = batch.evidence
    assert step is not None
    assert [sorted(row) for row in step.neighbours.ids.tolist()] == [[-1, 0, 1, 2]] * 2 + [[-1] * 4] * 2
    assert {*step.neighbours.tokens[:2, :3].flatten().tolist()} == {30, 0, 31}
    assert step.log_lambda.exp().tolist() == pytest.approx([0.6, 0.6, 0, 0])
    assert step.weights.exp().sum(1).tolist() == pytest.approx([1, 1, 0, 0])
    assert torch.equal(step.base, base.view(4, -1).gather(1, step.neighbours.tokens))

    rows = torch.arange(4).repeat_interleave(VOCABULARY)
    tokens = torch.arange(VOCABULARY).repeat(4)
    own = batch.base_log_probabilities(scores.view(4, -1), rows, tokens)
    assert torch.equal(own.view(4, -1), base.view(4, -1))
    batch.skip()
    forced = batch.base_log_probabilities(scores.view(4, -1), rows, tokens)
    assert torch.equal(forced, scores.flatten())  # nothing was retrieved for that step


def test_nothing_is_recorded_unless_asked(stores: list[OpenStore]) -> None:
    batch = BatchRetrieval([Retrieval(stores[0], CONFIG)])
    scores = model(1, 1)
    batch.mix(states(1, 1), scores, nothing_yet(states(1, 1)))
    batch.skip()
    assert batch.evidence is None
    assert torch.equal(batch.base_log_probabilities(scores[0], torch.tensor([0]), torch.tensor([5])), scores[0, :, 5])


# Decoding -------------------------------------------------------------------------------------------------------------


def test_a_translation_does_not_depend_on_its_batch(tiny: TransformerEngine, tmp_path: Path) -> None:
    Datastore.build(tmp_path / "a", some_pairs(40), tiny)
    Datastore.build(tmp_path / "b", some_pairs(40, start=100), tiny)
    stores = [OpenStore(Datastore.open(tmp_path / name)) for name in "ab"]
    config = RetrievalConfig(4, 0.5, 10.0, cache=CacheConfig(2.0))
    retrievals = [
        Retrieval(stores[0], config),
        Retrieval(stores[1], replace(config, k=7, interpolation_weight=0.8)),
        None,
    ]
    sources = tiny.tokenizer.encode_sources([f"Satz {n}{' ja' * (n % 3)}" for n in range(9)])
    of_sentences = [retrievals[n % 3] for n in range(9)]
    decoding = DecodingConfig(beam=3, max_tokens=20)

    together = search(tiny, sources, decoding, BatchRetrieval(of_sentences))
    base = search(tiny, sources, decoding)
    nothing = Retrieval(stores[0], replace(config, interpolation_weight=0.0))
    assert search(tiny, sources, decoding, BatchRetrieval([nothing] * 9)) == base
    for n, (source, retrieval) in enumerate(zip(sources, of_sentences, strict=True)):
        (alone,) = search(tiny, [source], decoding, BatchRetrieval([retrieval]))
        assert alone[0].tokens == together[n][0].tokens
        assert alone[0].score == pytest.approx(together[n][0].score, abs=1e-4)
        assert retrieval is not None or together[n][0].tokens == base[n][0].tokens
    assert any(mine[0].tokens != other[0].tokens for mine, other in zip(together, base, strict=True))


# Searching beside and after decoding ----------------------------------------------------------------------------------


def test_a_store_can_be_searched_after_it_was_searched_in_inference_mode(tmp_path: Path) -> None:
    """In a thread of its own, which has not searched anything yet: decoding comes first, a calibration after it."""
    opened = OpenStore(made_store(tmp_path / "s", random_keys(200, DIM), random_values(200)))
    queries = states(1, 20)[0]

    def search() -> None:
        with torch.inference_mode():
            first = opened.search(queries, 4).ids
        assert torch.equal(opened.search(queries, 4).ids, first)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(search).result()


def test_a_store_can_be_searched_in_several_threads(tmp_path: Path) -> None:
    keys = random_keys(3000, 128)
    opened = OpenStore(made_store(tmp_path / "s", keys, random_values(3000)))
    parts = torch.split(torch.from_numpy(keys[:40] + 0.1), 10)
    expected = [opened.search(part, 8).distances_sq for part in parts]

    def wrong(number: int) -> int:
        again = (opened.search(parts[number], 8).distances_sq for _ in range(150))
        return sum(not torch.equal(each, expected[number]) for each in again)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(wrong, range(4))) == [0] * 4
