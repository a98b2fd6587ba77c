"""Sentences whose scores are no numbers, or that nothing is allowed for: they end at once, and harm no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding.continuations import best_continuations, in_pytorch
from knnmt.decoding.search import search
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from support.datastore_pairs import some_pairs
from support.devices import DEVICES
from support.loops import graph_search, reference_search

LETTERS = ["abc", "aßc", "Satz 4", "ß", "xyz äö", "b"]
LOST = [1, 3]
LOOPS = [(loop, beam) for loop in (search, reference_search, graph_search) for beam in (4, 1)]


@pytest.fixture(scope="module", params=DEVICES)
def overflowing(request: pytest.FixtureRequest, overflowing_checkpoint: Path) -> TransformerEngine:
    engine = load_engine(overflowing_checkpoint, device=request.param, dtype="float32")
    assert isinstance(engine, TransformerEngine)
    return engine


@pytest.fixture(scope="module")
def retrieval(overflowing: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Retrieval:
    made = Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(20), overflowing)
    opened = OpenStore(made, overflowing.device)
    return Retrieval(opened, RetrievalConfig(k=4, interpolation_weight=0.5, temperature=20.0))


def steps_of(engine: TransformerEngine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets every step of the engine add the number of its sentences to the list."""
    steps: list[int] = []
    step = engine.step

    def counted(state: Any, tokens: torch.Tensor, *rest: Any) -> torch.Tensor:
        steps.append(len(tokens))
        return step(state, tokens, *rest)

    monkeypatch.setattr(engine, "step", counted)
    return steps


@pytest.mark.parametrize(("loop", "beam"), LOOPS)
@pytest.mark.parametrize("memory", ["none", "compiled", "recorded"])
def test_a_sentence_that_overflows_has_no_hypothesis_and_harms_no_other(
    overflowing: TransformerEngine, retrieval: Retrieval, loop: Callable[..., Any], beam: int, memory: str
) -> None:
    if memory == "recorded" and loop is graph_search:
        pytest.skip("nothing is recorded in steps of fixed shape")
    config = replace(overflowing.generation, beam=beam, n_best=beam, max_tokens=24)
    sources = overflowing.tokenizer.encode_sources(LETTERS)

    def found(some: list[list[int]]) -> Any:
        batch = None if memory == "none" else BatchRetrieval([retrieval] * len(some), record=memory == "recorded")
        return loop(overflowing, some, config, batch)

    together = found(sources)
    assert [number for number, best in enumerate(together) if not best] == LOST
    for number, best in enumerate(together):
        if number not in LOST:
            (alone,) = found([sources[number]])
            assert [each.tokens for each in best] == [each.tokens for each in alone]
            assert [each.score for each in best] == pytest.approx([each.score for each in alone], abs=1e-4)


@pytest.mark.parametrize(("loop", "beam"), LOOPS)
def test_a_lost_sentence_is_not_decoded_to_its_longest(
    overflowing: TransformerEngine, loop: Callable[..., Any], beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = overflowing.tokenizer.encode_sources(["aßc", "ß"])
    steps = steps_of(overflowing, monkeypatch)
    assert loop(overflowing, sources, replace(overflowing.generation, beam=beam), None) == [[], []]
    assert len(steps) <= 2  # the host looks at a step of fixed shape while the next one runs


@pytest.mark.parametrize(("loop", "beam"), LOOPS)
def test_settings_that_forbid_every_token_leave_no_hypothesis(
    tiny: TransformerEngine, loop: Callable[..., Any], beam: int
) -> None:
    config = replace(tiny.generation, beam=beam, suppressed_tokens=tuple(range(tiny.vocabulary_size)))
    assert loop(tiny, [[5, 17, 0], [9, 0]], config, None) == [[], []]


@pytest.mark.parametrize("continuations", [best_continuations, in_pytorch])
def test_what_is_no_number_is_no_continuation(continuations: Callable[..., Any]) -> None:
    log_probabilities = torch.randn(2, 3, 450).log_softmax(-1)
    scores = torch.tensor([[-1.0, -2.0, float("nan")], [float("nan")] * 3])
    log_probabilities[0, 1] = float("nan")
    best, parents, tokens = continuations(scores, log_probabilities, 5)
    expected = log_probabilities[0, 0].topk(5)
    assert best[0].tolist() == pytest.approx((expected.values - 1).tolist())
    assert tokens[0].tolist() == expected.indices.tolist()
    assert parents[0].tolist() == [0] * 5
    assert best[1].tolist() == [float("-inf")] * 5
