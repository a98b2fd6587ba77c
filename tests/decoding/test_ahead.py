"""Several steps in one compiled call find what the same steps find one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch

from conftest import MakeCheckpoint
from german import german_sentences
from knnmt import native, stage_times
from knnmt.config import DecodingConfig
from knnmt.decoding.beam import beam_search
from knnmt.decoding.greedy import greedy_search
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.compiled_ahead import CompiledAhead, Running
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError

if native.library() is None:
    pytest.skip("nothing was compiled, or it is switched off", allow_module_level=True)

SOURCES = [[5, 17, 99, 120, 3, 0], [44, 8, 0], [201, 7, 7, 63, 0], [9, 0], [88, 130, 12, 54, 66, 190, 2, 0]]
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "at least eight": {"min_tokens": 8},
    "some forbidden": {"suppressed_tokens": (1, 2, 3, 200)},
    "a sequence forbidden": {"suppressed_sequences": ((12, 180),)},
    "first and last token": {"forced_first_token": 77, "forced_last_token": 0},
    "cut": {"max_tokens": 6},
    "one token": {"max_tokens": 1},
    "early": {"early_stopping": True},
    "never early": {"early_stopping": "never"},
    "more slots than a state begins with": {"min_tokens": 30, "max_tokens": 38},
}


@pytest.fixture(params=["float32", "int8"])
def small(request: pytest.FixtureRequest, make_checkpoint: MakeCheckpoint) -> TransformerEngine:
    engine = load_engine(make_checkpoint(), device="cpu", dtype=request.param)
    assert isinstance(engine, TransformerEngine)
    assert engine.ahead is not None
    return engine


def found(
    engine: TransformerEngine, config: DecodingConfig, sources: Sequence[Sequence[int]] = SOURCES
) -> tuple[list[list[Hypothesis]], list[int]]:
    """What a search finds, and how many steps each compiled call made."""
    made = []
    run = CompiledAhead.run

    def counting(self: CompiledAhead, state: Any, *given: Any) -> Any:
        used = state.used
        answer = run(self, state, *given)
        made.append((state.used - used) // state.width)
        return answer

    with mock.patch.object(CompiledAhead, "run", counting):
        return (greedy_search if config.beam == 1 else beam_search)(engine, sources, config), made


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_results_are_the_same_in_every_bit(small: TransformerEngine, name: str, beam: int) -> None:
    config = replace(small.generation, beam=beam, n_best=beam, **{"max_tokens": 38, **SETTINGS[name]})
    together, made = found(small, config)
    with mock.patch.object(TransformerEngine, "ahead", None):
        one_by_one, never_made = found(small, config)
    assert together == one_by_one
    assert never_made == []
    assert (made == []) == (name in ("a sequence forbidden", "one token"))  # that token is forced
    if name in ("at least eight", "more slots than a state begins with"):
        assert max(made) > 1


@pytest.mark.parametrize("beam", [1, 5])
def test_sentences_of_a_real_model_end_when_they_should(engine: TransformerEngine, beam: int) -> None:
    sources = engine.tokenizer.encode_sources(german_sentences(6))
    config = replace(engine.generation, beam=beam, n_best=beam)
    together, made = found(engine, config, sources)
    assert max(made) > 1
    assert len({len(each[0].tokens) for each in together}) > 2
    with mock.patch.object(TransformerEngine, "ahead", None):
        assert found(engine, config, sources)[0] == together


@pytest.mark.parametrize("beam", [1, 3])
def test_progress_is_told_at_every_step(small: TransformerEngine, beam: int) -> None:
    config = replace(small.generation, beam=beam, min_tokens=8, max_tokens=12)
    grown: list[int] = []
    search = greedy_search if beam == 1 else beam_search
    search(small, SOURCES[:1], config, growing=lambda leading: grown.append(len(leading()[0])))
    assert grown[:8] == list(range(1, 9))


def test_a_lost_sentence_does_not_stop_the_others(small: TransformerEngine) -> None:
    """Of a sentence that has no possible token, nothing is found."""
    weight = small._target_embedding.tokens
    config = replace(small.generation, beam=1, min_tokens=6, max_tokens=20)
    (first,), _ = found(small, config, SOURCES[:1])
    weight[first[0].tokens[0]] = math.nan  # whatever follows this token is no number
    together, _ = found(small, config)
    assert together[0] == []
    assert any(together)
    with mock.patch.object(TransformerEngine, "ahead", None):
        assert found(small, config)[0] == together


def test_stages_are_measured(small: TransformerEngine) -> None:
    with stage_times() as timings:
        found(small, replace(small.generation, beam=1, min_tokens=10, max_tokens=10))
    assert timings.entries["decoder"] == timings.entries["output"] == 10
    assert sum(timings.seconds.values()) <= timings.total_seconds


def test_impossible_requests_are_refused(small: TransformerEngine) -> None:
    ahead = small.ahead
    assert ahead is not None
    state = small.start(small.encode(SOURCES[:1]))
    begin = torch.tensor([[small.special_tokens.decoder_start]])
    running = Running(begin, torch.empty((1, 1, 0), dtype=torch.long), torch.zeros(1, 1))
    for never in ((small.vocabulary_size,), (-1,)):
        with pytest.raises(ValueError, match="to forbid"):
            ahead.run(state, running, 1, 3, 0, never)
    beyond = Running(begin + small.vocabulary_size, running.history, running.scores)
    with pytest.raises(InputError, match="not one of the model's"):
        ahead.run(state, beyond, 1, 3, 0, ())
    assert state.used == 0
