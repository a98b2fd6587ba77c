"""Trained combiners: what their networks compute, what they keep on disk, and whom they refuse."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from knnmt.compression.pca import reduce
from knnmt.config import FastConfig, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, DatastoreMismatchError, DatastoreVersionError, SettingError
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.settings import TRAINED_COMBINERS
from knnmt.retrieval.step import SentenceSoFar, Step, ask_combiner
from knnmt.retrieval.trained.combiner import TrainedCombiner, combiner_file
from knnmt.retrieval.trained.networks import NETWORKS, network_named, network_of
from knnmt.retrieval.trained.seen import SeenInStep, distinct_counts
from knnmt_lab.combiners import MetaK, sizes_up_to
from support.datastore_pairs import some_pairs
from support.random_combiners import KERNEL, META_K, METHODS, random_combiner
from support.signed_networks import rewrite_network

K = 4


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(30), tiny)


def made(store: Datastore, method: str, k: int = K) -> TrainedCombiner:
    """One with random weights, and units of inputs that are not 1."""
    return random_combiner(store, method, k, seed=len(method))


def a_step(store: Datastore, rows: int = 5, k: int = K) -> tuple[Step, Neighbours]:
    """Rows near entries of the store; the last has two neighbours only, the one before none."""
    opened, generator = OpenStore(store), torch.Generator().manual_seed(rows)
    keys = torch.from_numpy(opened.index.entries.keys_of(np.arange(7, 7 + rows))).float()
    states = keys + torch.randn(keys.shape, generator=generator) / 4
    scores = torch.randn(rows, 231, generator=generator).mul(3).log_softmax(1)
    so_far = SentenceSoFar(torch.linspace(4.0, 7.0, rows), torch.arange(1.0, rows + 1))
    history = torch.zeros(rows, 1, dtype=torch.long)
    found = opened.search(states, k)
    none = torch.zeros(rows, k, dtype=torch.bool)
    none[-1, 2:], none[-2] = True, True
    neighbours = Neighbours(
        found.distances_sq.masked_fill(none, math.inf),
        found.tokens.masked_fill(none, 0),
        found.ids.masked_fill(none, -1),
    )
    config = RetrievalConfig(k, 0.5, 6.0)
    return Step(opened.snapshot, config, states, opened.project(states), so_far, scores, history), neighbours


# Slow and obvious: one row at a time, from the published formulas -----------------------------------------------------


class _Row:
    """What a row has, its missing neighbours left out."""

    def __init__(self, combiner: TrainedCombiner, step: Step, neighbours: Neighbours, row: int) -> None:
        self.w = {name: each.double().numpy() for name, each in combiner.network.state_dict().items()}
        self.k = combiner.record.k
        d = neighbours.distances_sq[row].double().numpy()
        self.there = [i for i in range(len(d)) if math.isfinite(d[i])]
        self.d = d[self.there]
        self.tokens = neighbours.tokens[row, self.there].tolist()
        counts = step.counts(neighbours)
        self.counts = np.ones(len(self.d)) if counts is None else counts[row, self.there].double().numpy()
        far = self.w["far"][0]
        distances = [*self.d, *[far] * (self.k - len(self.d))]
        distinct = [len(set(self.tokens[: i + 1])) for i in range(self.k)]
        self.inputs = (np.array([*distances, *distinct]) - self.w["mean"]) * self.w["scale"]
        self.query = step.queries[row].double().numpy()
        keys_of = step.store.index.entries.keys_of
        self.keys = keys_of(neighbours.ids[row, self.there].numpy()).astype(float)
        ids = neighbours.ids[row, self.there]
        said = np.concatenate([segment.arrays["log_probabilities"] for segment in step.store.datastore.segments])
        self.said_there = said[ids.numpy()].astype(float)
        self.scores = step.log_probabilities[row].double().numpy()
        self.mean, self.steps = float(step.sentence.distance[row]), float(step.sentence.steps[row])

    def net(self, name: str, inputs: Any, hidden: Any = np.tanh) -> Any:
        """One hidden layer."""
        inner = hidden(inputs @ self.w[f"{name}.0.weight"].T + self.w[f"{name}.0.bias"])
        return inner @ self.w[f"{name}.2.weight"].T + self.w[f"{name}.2.bias"]

    def meta_k(self) -> tuple[Any, float]:
        shares = np.exp(self.net("of_k", self.inputs))
        shares /= shares.sum()
        weights = np.zeros(len(self.d))
        for share, size in zip(shares, [1, 2, 4], strict=True):
            part = self.counts[:size] * np.exp(-self.d[:size] / 6.0)
            weights[:size] += share * part / part.sum()
        return weights, self.net("of_lambda", self.inputs)[0]

    def robust(self) -> tuple[Any, float]:
        here = self.scores[self.tokens].clip(min=-30)
        c = np.array([self.net("of_neighbour", np.array(pair))[0] for pair in zip(self.said_there, here, strict=True)])
        s_knn, t = self.net("of_memory", self.inputs)
        weights = self.counts * np.exp(-2 / (1 + np.exp(-t)) * self.d / 6.0 + c)
        gap = np.zeros(self.k - len(self.d))
        seen = np.concatenate([self.said_there, gap, here, gap, np.sort(self.scores)[::-1][:8]])
        s_nmt = float((seen @ self.w["of_model.weight"].T + self.w["of_model.bias"])[0])
        return weights / weights.sum(), s_knn - s_nmt

    def robust_fading(self) -> tuple[Any, float]:
        weights, logit = self.robust()
        scale, _, sentence_scale, sentence_width = self.w["fading"]
        nearest = math.sqrt(self.d[0])
        share = 1 / (1 + math.exp(-logit))
        share /= 1 + math.exp((self.mean - sentence_scale) / sentence_width)
        share *= 1 - min(1, nearest / scale) / (self.steps + 1)
        return weights, math.log(share / (1 - share))

    def kernel(self) -> tuple[Any, float]:
        together = np.concatenate([self.query, self.keys.mean(0)])
        temperature = np.exp(together @ self.w["of_temperature.weight"][0] + self.w["of_temperature.bias"][0])
        weights = self.counts * np.exp(-np.sqrt(self.d) / temperature)
        weights /= weights.sum()
        together = np.concatenate([self.query, weights @ self.keys])
        return weights, self.net("of_lambda", together, lambda x: np.maximum(x, 0))[0]


@pytest.mark.parametrize("method", METHODS)
def test_a_network_computes_what_its_paper_says(store: Datastore, method: str) -> None:
    combiner = made(store, method)
    step, neighbours = a_step(store)
    weights, log_lambda = ask_combiner(combiner, step, neighbours)
    slow = {
        META_K: _Row.meta_k,
        "robust": _Row.robust,
        KERNEL: _Row.kernel,
        "robust-fading": _Row.robust_fading,
    }[method]
    for row in (0, 1, 2, 4):
        seen = _Row(combiner, step, neighbours, row)
        expected, logit = slow(seen)
        np.testing.assert_allclose(weights[row, : len(seen.d)].exp(), expected, rtol=2e-3, atol=1e-5)
        assert float(weights[row].exp().sum()) == pytest.approx(1, abs=1e-5)
        assert math.exp(float(log_lambda[row])) == pytest.approx(1 / (1 + math.exp(-logit)), rel=2e-3)
    assert math.isinf(float(log_lambda[3]))
    assert bool(weights[3].isinf().all())


@pytest.mark.parametrize("method", METHODS)
def test_a_store_with_fewer_entries_than_k_is_combined(store: Datastore, method: str) -> None:
    step, neighbours = a_step(store, k=3)
    weights, log_lambda = ask_combiner(made(store, method), step, neighbours)
    assert weights.shape == (5, 3)
    assert weights.exp().sum(1)[[0, 1, 2]].tolist() == pytest.approx([1, 1, 1], abs=1e-5)
    assert bool(log_lambda[[0, 1, 2]].isfinite().all())


def test_distinct_tokens_are_counted() -> None:
    tokens = torch.tensor([[5, 5, 2, 5], [1, 2, 3, 0], [0, 0, 0, 0]])
    missing = torch.tensor([[False] * 4, [False, False, False, True], [True] * 4])
    assert distinct_counts(tokens, missing).tolist() == [[1, 1, 2, 2], [1, 2, 3, 3], [0, 0, 0, 0]]
    assert [sizes_up_to(k) for k in (1, 4, 6, 8)] == [[1], [1, 2, 4], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_names_in_the_vocabulary_are_those_of_networks() -> None:
    assert tuple(NETWORKS) == TRAINED_COMBINERS


def test_methods_of_others_are_named_like_all_custom_code() -> None:
    assert network_named(META_K) is network_of(META_K) is MetaK
    assert network_of(None) is None
    assert network_of("math:sqrt") is None  # a combiner of another kind
    for name, message in (
        ("colour", "--method must be robust or robust-fading, or name your own: there is no method 'colour'"),
        ("math:sqrt", r"--method math:sqrt: expected a knnmt\.CombinerNetwork"),
        ("knnmt:CombinerNetwork", "whose name has small letters"),
    ):
        with pytest.raises(SettingError, match=message):
            network_named(name)


def test_what_the_model_said_of_an_entry_is_read(store: Datastore) -> None:
    step, neighbours = a_step(store)
    said = np.concatenate([segment.arrays["log_probabilities"] for segment in store.segments])
    found = SeenInStep(step, neighbours, K).said_there
    there = neighbours.ids >= 0
    assert torch.equal(found[there], torch.from_numpy(said[neighbours.ids[there].numpy()]).float())
    assert bool((found[~there] == 0).all())


# On disk --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tiny: TransformerEngine, tmp_path: Path) -> Datastore:
    return Datastore.build(tmp_path / "own", some_pairs(20), tiny)


@pytest.mark.parametrize("method", METHODS)
def test_a_combiner_comes_back_as_it_was(own: Datastore, method: str) -> None:
    combiner = made(own, method)
    combiner.write(own.path)
    again = TrainedCombiner.read(own, method)
    assert again.record == combiner.record
    assert again.signature() == combiner.signature()
    assert again.signature().startswith(f"{network_named(method).name}/")
    step, neighbours = a_step(own)
    for one, other in zip(combiner(step, neighbours), again(step, neighbours), strict=True):
        assert torch.equal(one, other)
    with torch.no_grad():
        next(again.network.parameters()).add_(0.01)
    assert again.signature() != combiner.signature()


def test_what_there_is_not_is_advised_on(own: Datastore) -> None:
    with pytest.raises(
        SettingError, match=r"has no combiner robust. Train one with `knnmt train-combiner .*--method robust"
    ):
        TrainedCombiner.read(own, "robust")


def _other_weights(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    tensors["mean"] += 1


def _not_finite(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    tensors["mean"][0] = math.nan


def _another_k(_: dict[str, Tensor], record: dict[str, Any]) -> None:
    record["k"] = 6


def _enormous(_: dict[str, Tensor], record: dict[str, Any]) -> None:
    record["k"] = 1 << 40


def _another_method(_: dict[str, Tensor], record: dict[str, Any]) -> None:
    record["method"] = "meta-k"


def _another_temperature(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    tensors["temperature"] = torch.zeros(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_other_weights, "something other than knnmt wrote or altered it"),
        (_not_finite, "not all finite"),
        (_another_k, "size mismatch"),
        (_enormous, "k must lie between 1 and 64"),
        (_another_method, "it is one of the method meta-k"),
        (_another_temperature, "its T is not that of its record"),
    ],
)
def test_an_altered_file_is_refused(own: Datastore, change: Any, message: str) -> None:
    made(own, "robust").write(own.path)
    rewrite_network(combiner_file(own.path, "robust").path, change, signed=change is not _other_weights)
    with pytest.raises(DatastoreDamagedError, match=f"(?s){message}.*knnmt train-combiner"):
        TrainedCombiner.read(own, "robust")


def test_impossible_fading_is_refused(own: Datastore) -> None:
    made(own, "robust-fading").write(own.path)

    def no_width(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
        tensors["fading"] = torch.tensor([5.0, 0.8, 6.0, 0.0])

    rewrite_network(combiner_file(own.path, "robust-fading").path, no_width)
    with pytest.raises(DatastoreDamagedError, match=r"(?s)widths of fading must be above 0.*knnmt train-combiner"):
        TrainedCombiner.read(own, "robust-fading")


def test_what_is_no_combiner_and_a_later_version_are_refused(own: Datastore) -> None:
    path = combiner_file(own.path, "robust").path
    path.write_bytes(b"no network at all")
    with pytest.raises(DatastoreDamagedError, match="expected a combiner"):
        TrainedCombiner.read(own, "robust")
    made(own, "robust").write(own.path)
    rewrite_network(path, lambda _, record: record.update(version=2))
    with pytest.raises(DatastoreVersionError, match="written in version 2"):
        TrainedCombiner.read(own, "robust")


def test_one_of_another_store_is_refused(own: Datastore, tmp_path: Path) -> None:
    shorter = reduce(own, tmp_path / "shorter", 8)[0]
    made(own, META_K).write(shorter.path)
    with pytest.raises(DatastoreMismatchError, match="trained for a store with dimension 32, but this one has 8"):
        TrainedCombiner.read(shorter, META_K)


# Settings -------------------------------------------------------------------------------------------------------------


def test_a_combiner_brings_its_settings(store: Datastore) -> None:
    combiner = made(store, META_K)
    asked = RetrievalConfig(16, 0.5, 20.0, segments=32)
    found = combiner.applied_to(asked, set())
    assert (found.k, found.temperature, found.segments) == (K, 6.0, None)
    assert combiner.applied_to(replace(asked, k=K), {"k"}).k == K
    with pytest.raises(SettingError, match="trained for k 4, but the call asks for 16"):
        combiner.applied_to(asked, {"k"})
    with pytest.raises(SettingError, match="search of the whole store, but the call asks for search in 32 segments"):
        combiner.applied_to(asked, {"segments"})
    for name in ("interpolation_weight", "fading"):
        with pytest.raises(SettingError, match="meta-k predicts λ by itself"):
            combiner.applied_to(asked, {name})
        assert combiner.applied_to(replace(asked, k=K, temperature=6.0, segments=None), {name, "profile"}).k == K
    with pytest.raises(SettingError, match="not for Fast kNN-MT"):
        combiner.applied_to(RetrievalConfig(4, 0.5, 20.0, fast=FastConfig()), set())
    with pytest.raises(SettingError, match="and the gate both predict"):
        combiner.applied_to(RetrievalConfig(4, 0.5, 20.0, gate=0.5), set())
