"""Decoding with gates: shut it is the model alone, open it changes nothing, and a row knows nothing of its batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from knnmt.config import CacheConfig, DecodingConfig, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.search import search
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.gate import GateNetwork, GateRecord, ThresholdGate, TrainedGate
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.retrieval.step import Gate, Step
from knnmt_lab.reproduction.random_gate import RandomGate
from support.datastore_pairs import some_pairs

TEXTS = ["Satz 3 ja ja", "Satz 12", "Satz 7 nein", "anders", "Satz 100 ja"]
CONFIG = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=20.0)
DECODING = DecodingConfig(beam=3, max_tokens=16)


@pytest.fixture(scope="module")
def opened(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> OpenStore:
    return OpenStore(Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(25), tiny))


@pytest.fixture(scope="module")
def sources(tiny: TransformerEngine) -> list[list[int]]:
    return tiny.tokenizer.encode_sources(TEXTS)


def known_gate() -> TrainedGate:
    torch.manual_seed(2)
    network = GateNetwork(32 + 1)
    with torch.no_grad():
        network.layers[-1].weight.mul_(40)  # type: ignore[operator]
    record = GateRecord(
        features=("confidence",),
        k=4,
        temperature=20.0,
        use_counts=True,
        model="",
        tokenizer="",
        dim=32,
        transforms=(),
        seed=0,
        l1=0.0,
        pairs=1,
        epochs=1,
        losses={},
    )
    return TrainedGate(network, record)


def decoded(
    tiny: TransformerEngine, sources: list[list[int]], retrieval: Retrieval | None, statistics: Statistics | None = None
) -> list[list[Hypothesis]]:
    memory = None if retrieval is None else BatchRetrieval([retrieval] * len(sources), statistics)
    return search(tiny, sources, DECODING, memory)


def same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> bool:
    scores = [[each.score for each in hypotheses] for hypotheses in found]
    known = [[each.score for each in hypotheses] for hypotheses in expected]
    assert scores == [pytest.approx(each, abs=1e-4) for each in known]
    return [[each.tokens for each in hypotheses] for hypotheses in found] == [
        [each.tokens for each in hypotheses] for hypotheses in expected
    ]


@pytest.mark.parametrize("is_code", [True, False])
def test_a_forced_code_that_targets_of_the_store_do_not_have_is_no_history_for_a_gate(
    tiny: TransformerEngine, opened: OpenStore, sources: list[list[int]], is_code: bool
) -> None:
    forced = 200 if is_code else int(opened.datastore.segments[0].target_tokens(0)[0])
    seen: list[Tensor] = []

    def gate(step: Step) -> tuple[Tensor, None]:
        seen.append(step.history)
        return torch.ones(len(step), dtype=torch.bool), None

    decoding = DecodingConfig(beam=3, max_tokens=5, forced_first_token=forced)
    search(tiny, sources, decoding, BatchRetrieval([Retrieval(opened, CONFIG, gate)] * len(sources)))
    assert [each.shape[1] for each in seen[:2]] == ([0, 1] if is_code else [1, 2])
    assert bool((seen[1][:, 0] == forced).all()) is not is_code


@pytest.mark.parametrize("cache", [None, CacheConfig(3.0)])
def test_a_gate_that_refuses_all_is_the_model_alone(
    tiny: TransformerEngine, opened: OpenStore, sources: list[list[int]], cache: CacheConfig | None
) -> None:
    config = RetrievalConfig(4, 0.6, 20.0, cache=cache)
    alone = decoded(tiny, sources, None)
    for gate in (ThresholdGate(known_gate(), 1 - 1e-12), RandomGate(0.0)):
        statistics = Statistics()
        assert same(decoded(tiny, sources, Retrieval(opened, config, gate), statistics), alone)
        assert (statistics.searches, statistics.hits) == (0, 0)
        assert statistics.rows > 0


def test_a_gate_that_passes_all_with_the_stores_weight_is_none(
    tiny: TransformerEngine, opened: OpenStore, sources: list[list[int]]
) -> None:
    expected = decoded(tiny, sources, Retrieval(opened, CONFIG))
    assert same(decoded(tiny, sources, Retrieval(opened, CONFIG, RandomGate(1.0))), expected)

    def fixed(step: Step) -> tuple[Tensor, Tensor]:
        return torch.ones(len(step), dtype=torch.bool), torch.full((len(step),), 0.6).log()

    other = RetrievalConfig(4, 0.1, 20.0)  # whose λ the gate replaces
    assert same(decoded(tiny, sources, Retrieval(opened, other, fixed)), expected)


@pytest.mark.parametrize("kind", ["threshold", "chance", "chance, predicted λ"])
def test_a_result_does_not_depend_on_its_batch(
    tiny: TransformerEngine, opened: OpenStore, sources: list[list[int]], kind: str
) -> None:
    trained = known_gate()
    predicted: list[Tensor] = []

    def recording(step: Step) -> tuple[Tensor, None]:
        predicted.append(trained.logits(step.states, step.log_probabilities).sigmoid())
        return torch.ones(len(step), dtype=torch.bool), None

    decoded(tiny, sources, Retrieval(opened, CONFIG, recording))
    usual = float(torch.cat(predicted).median())
    gates: dict[str, Gate] = {
        "threshold": ThresholdGate(trained, usual),
        "chance": RandomGate(0.5),
        "chance, predicted λ": RandomGate(0.5, 0, trained),
    }
    retrieval, statistics = Retrieval(opened, CONFIG, gates[kind]), Statistics()
    together = decoded(tiny, sources, retrieval, statistics)
    assert 0.1 < statistics.saved() < 0.9
    assert same([decoded(tiny, [source], retrieval)[0] for source in sources], together)
    mixed = BatchRetrieval([retrieval, None, retrieval, None, retrieval])
    among_others = search(tiny, sources, DECODING, mixed)
    assert same(among_others[::2], together[::2])
    assert same(among_others[1::2], decoded(tiny, sources, None)[1::2])


def test_a_gate_sees_the_tokens_so_far(tiny: TransformerEngine, opened: OpenStore, sources: list[list[int]]) -> None:
    seen: list[Tensor] = []

    def gate(step: Step) -> tuple[Tensor, None]:
        assert len(step) == len(step.log_probabilities) == len(step.history)
        seen.append(step.history)
        return torch.ones(len(step), dtype=torch.bool), None

    greedy = DecodingConfig(beam=1, max_tokens=16)
    (found,) = search(tiny, sources[:1], greedy, BatchRetrieval([Retrieval(opened, CONFIG, gate)]))
    assert [history[0].tolist() for history in seen] == [list(found[0].tokens[:n]) for n in range(len(seen))]
