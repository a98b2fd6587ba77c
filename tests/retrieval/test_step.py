"""What gates and combiners see of a step, held against the store's own arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.errors import SettingError
from knnmt.retrieval.combiner import DistanceCombiner
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.step import SentenceSoFar, Step
from support.made_stores import VOCABULARY, column, made_store, plain_search, random_keys, random_values

DIM, WIDTH = 12, 3
CONFIG = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=2.0)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OpenStore]:
    path = tmp_path_factory.mktemp("stores")
    plain = made_store(path / "plain", random_keys(200, DIM), random_values(200, kinds=20))
    made = {
        "plain": plain,
        "reduced": reduce(plain, path / "reduced", 5)[0],
        "pruned": prune(plain, path / "pruned", plain_search(plain)),
        "few": made_store(path / "few", random_keys(3, DIM, 2), [30, 0, 31]),
    }
    return {name: OpenStore(store) for name, store in made.items()}


def states(sentences: int, seed: int) -> Tensor:
    near = random_keys(200, DIM)[np.random.default_rng(seed).integers(200, size=sentences * WIDTH)]
    return torch.from_numpy(near.reshape(sentences, WIDTH, DIM)) + 0.1


def base(sentences: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sentences, WIDTH, VOCABULARY, generator=generator).log_softmax(-1)


class Looking:
    """A gate and a combiner that look at everything, and change nothing of what the store's settings ask for."""

    def __init__(self, store: OpenStore) -> None:
        self.usual = DistanceCombiner(CONFIG, store.same_distance)
        self.before: list[tuple[Any, ...]] = []
        self.after: list[tuple[Any, ...]] = []

    def gate(self, step: Step) -> tuple[Tensor, None]:
        seen = (step.states, step.log_probabilities, step.history, step.queries)
        self.before.append((*(each.clone() for each in seen), step.sentence))
        return torch.ones(len(step), dtype=torch.bool), None

    def combiner(self, step: Step, neighbours: Neighbours) -> tuple[Tensor, Tensor]:
        seen = (step.states, step.log_probabilities, step.history, step.queries, step.keys(neighbours))
        self.after.append((*(each.clone() for each in seen), step.counts(neighbours), step.sentence, neighbours))
        return self.usual(step, neighbours)


@pytest.mark.parametrize("name", ["plain", "reduced", "pruned", "few"])
@pytest.mark.parametrize("among_others", [False, True])
def test_everything_of_a_step_is_there(stores: dict[str, OpenStore], name: str, among_others: bool) -> None:
    store = stores[name]
    look = Looking(store)
    own = Retrieval(store, CONFIG, look.gate, look.combiner)
    batch = BatchRetrieval([own, None, own] if among_others else [own, own], record=True)
    usual = BatchRetrieval([None if each is None else Retrieval(store, CONFIG) for each in batch.snapshots])
    mine = [0, 2] if among_others else [0, 1]
    sentences = len(batch.snapshots)
    keys = column(store.datastore, "keys").astype(np.float32)
    distances: list[Tensor] = []
    for number in range(3):
        representations, scores = states(sentences, number), base(sentences, number)
        history = torch.arange(sentences * WIDTH * number).view(sentences, WIDTH, number)
        others = scores.clone()
        before = scores.clone()
        offset = batch.mix(representations, scores, history)
        assert torch.equal(offset, usual.mix(representations, others, history))
        assert torch.equal(scores, others)
        for seen in (look.before[-1], look.after[-1]):
            for found, expected in zip(seen[:3], (representations, before, history), strict=False):
                assert torch.equal(found, expected[mine].flatten(0, 1))
            assert torch.equal(seen[3], store.project(representations[mine].flatten(0, 1)))
        queries, found_keys, counts, sentence, neighbours = look.after[-1][3:]
        expected_sq = (queries[:, None] - found_keys).square().sum(2)
        there = neighbours.ids >= 0
        assert bool(there.any())
        torch.testing.assert_close(expected_sq[there], neighbours.distances_sq[there], rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(found_keys[there], keys[neighbours.ids[there]])
        assert not found_keys[~there].any()
        if name == "pruned":
            np.testing.assert_array_equal(counts[there], column(store.datastore, "counts")[neighbours.ids[there]])
        nearest = neighbours.distances_sq[:, 0].sqrt().view(2, WIDTH).mean(1)
        expected_mean = torch.stack(distances).mean(0) if distances else torch.zeros(2)
        earlier = look.before[-1][4]
        torch.testing.assert_close(earlier.distance, expected_mean.repeat_interleave(WIDTH))
        assert earlier.steps.tolist() == [number] * 2 * WIDTH
        distances.append(nearest)
        torch.testing.assert_close(sentence.distance, torch.stack(distances).mean(0).repeat_interleave(WIDTH))
        assert sentence.steps.tolist() == [number + 1] * 2 * WIDTH


def test_a_row_without_neighbours_has_keys_of_nothing(stores: dict[str, OpenStore]) -> None:
    store = stores["plain"]
    nothing = SentenceSoFar(torch.zeros(2), torch.zeros(2))
    rows = torch.zeros(2, DIM)
    step = Step(store.snapshot, CONFIG, rows, rows, nothing, torch.zeros(2, 3), torch.zeros(2, 0).long())
    assert step.keys(Neighbours.none(2, 3, torch.device("cpu"))).eq(0).all()


def test_the_cache_hands_a_combiner_what_it_hands_others(stores: dict[str, OpenStore]) -> None:
    store = stores["plain"]
    look = Looking(store)
    config = RetrievalConfig(4, 0.6, 2.0, cache=CacheConfig(1e9))
    batch = BatchRetrieval([Retrieval(store, config, combiner=look.combiner)], record=True)
    for number in range(2):
        batch.mix(states(1, number), base(1, number), torch.zeros(1, WIDTH, number).long())
    assert batch.evidence is not None
    assert batch.evidence[1] is not None
    assert bool(batch.evidence[1].hits.all())
    assert torch.equal(look.after[1][7].ids, batch.evidence[1].neighbours.ids)


def test_one_that_can_be_called_in_no_way_is_refused(stores: dict[str, OpenStore]) -> None:
    wrong: Any = lambda one, two: None  # noqa: E731
    with pytest.raises(SettingError, match=r"a gate is called with \(step\)"):
        Retrieval(stores["plain"], CONFIG, wrong)
    wrong = lambda: None  # noqa: E731
    with pytest.raises(SettingError, match=r"a combiner is called with \(step, neighbours\)"):
        Retrieval(stores["plain"], CONFIG, combiner=wrong)
