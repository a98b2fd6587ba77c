"""A step of retrieval on a GPU: the plain one gives what the CPU gives, waits for nothing, and can be captured."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.config import Fading, RetrievalConfig
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.plain import PlainSteps
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from support.devices import captured, without_waiting
from support.made_stores import VOCABULARY, made_store, random_keys, random_values

pytestmark = pytest.mark.cuda
SENTENCES, WIDTH, DIM, STEPS = 4, 5, 8, 6
FADING = Fading(scale=2.0, width=0.8, sentence_scale=3.0, sentence_width=0.9)
CONFIG = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=2.0, fading=FADING)


@pytest.fixture(scope="module", params=["plain", "reduced", "pruned"])
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[OpenStore, OpenStore]:
    """A store on the CPU and on a GPU."""
    path = tmp_path_factory.mktemp("stores")
    store = made_store(path / "plain", random_keys(900, DIM), random_values(900, kinds=20))
    if request.param == "reduced":
        store, _ = reduce(store, path / "reduced", 6)
    if request.param == "pruned":
        store = prune(store, path / "pruned", StoreIndex(store).search)
    opened = OpenStore(store), OpenStore(store, "cuda")
    for each in opened:
        each.search(each.project(torch.zeros((1, DIM), device=each.device)), 1)  # the first search loads the keys,
        each.snapshot.all_counts(CONFIG.use_counts)  # and the first step the counts
    return opened


class Steps:
    """The steps of a batch: their states and the model's log-probabilities are put where `mix` finds them."""

    def __init__(self, store: OpenStore, config: RetrievalConfig) -> None:
        self._batch = BatchRetrieval([Retrieval(store, config)] * SENTENCES, record=store.device.type == "cpu")
        generator = torch.Generator().manual_seed(0)
        self._states = torch.randn(STEPS, SENTENCES, WIDTH, DIM, generator=generator).to(store.device)
        scores = torch.randn(STEPS, SENTENCES, WIDTH, VOCABULARY, generator=generator).log_softmax(-1)
        self._scores = scores.to(store.device)
        self._history = torch.zeros((SENTENCES, WIDTH, 1), dtype=torch.long, device=store.device)
        self.state, self.scores = self._states[0].clone(), self._scores[0].clone()

    def put(self, step: int) -> None:
        self.state.copy_(self._states[step])
        self.scores.copy_(self._scores[step])

    def restart(self) -> None:
        way = self._batch.stepwise
        assert isinstance(way, PlainSteps)
        way._groups[0].distances.restart()

    def mix(self) -> Tensor:
        return self._batch.mix(self.state, self.scores, self._history)

    def results(self) -> Tensor:
        """Of all steps one after the other, (steps, sentences, width, vocabulary)."""
        found = []
        for step in range(STEPS):
            self.put(step)
            found.append(self.mix()[..., None] + self.scores)
        return torch.stack(found)


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, fading=None)])
@torch.inference_mode()
def test_a_step_gives_what_the_cpu_gives_and_never_waits(
    stores: tuple[OpenStore, OpenStore], config: RetrievalConfig
) -> None:
    expected = Steps(stores[0], config).results()
    steps = Steps(stores[1], config)
    with without_waiting():
        found = steps.results()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_captured_step_goes_on_from_step_to_step(stores: tuple[OpenStore, OpenStore]) -> None:
    expected = Steps(stores[0], CONFIG).results()
    steps = Steps(stores[1], CONFIG)
    replay, offset = captured(steps.mix)
    steps.restart()
    for step in range(STEPS):
        steps.put(step)
        replay()
        torch.testing.assert_close((offset[..., None] + steps.scores).cpu(), expected[step], rtol=1e-4, atol=1e-4)
