"""The kernels that choose how beam search continues, on a CPU, beside a plain search of all continuations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from knnmt.decoding import recorded_choice
from knnmt.decoding.arena import Arena
from knnmt.decoding.beam import beam_search
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.greedy import greedy_search
from knnmt.decoding.recorded import recorded_search
from knnmt.decoding.recorded_choice import choose, choose_in_pytorch, chooses_in_two
from knnmt.engine.fixed_state import FixedState
from knnmt.engine.transformer import TransformerEngine

END = 2
EXTENT = 40
NEVER = float("-inf")


@pytest.fixture(autouse=True)
def compiled(kernel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_choice, "kernel", kernel)


def all_in_order(
    numbers: Tensor, before: Tensor, forbidden: list[int], normalised: bool
) -> list[tuple[float, int, int]]:
    """The scores, rows and tokens of everything that is possible in a sentence, best first."""
    log_probabilities = numbers.float() if normalised else numbers.float().log_softmax(-1)
    log_probabilities[:, forbidden] = NEVER
    scores = log_probabilities + before[:, None]
    possible = [tuple(place) for place in torch.nonzero(scores > NEVER).tolist()]
    return sorted(((scores[place].item(), *place) for place in possible), key=lambda each: (-each[0], *each[1:]))


def made_up(sentences: int, width: int, vocabulary: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Numbers of every kind for as many sentences, and scores of their rows."""
    generator = torch.Generator().manual_seed(vocabulary + width)
    numbers = torch.randn((sentences, width, vocabulary), generator=generator).mul(3).to(dtype)
    before = torch.randn((sentences, width), generator=generator)
    numbers[0, :, END] = 9.0
    numbers[1] = numbers[1, :1]  # rows that are alike, in which many are equal
    numbers[1, :, 3::2] = 7.0
    before[1] = -1.5
    before[2, 1:] = NEVER  # the first step
    numbers[3, 0, 5] = float("nan")
    numbers[3, -1, 1::3] = NEVER
    numbers[4, :, :-4] = NEVER  # all possible ones in the last part, and few
    before[4] = -0.0
    numbers[5, 0] = NEVER
    numbers[5, -1, 7] = float("inf")
    before[5, width // 2] = float("nan")
    return numbers, before


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(("width", "vocabulary"), [(1, 4096), (1, 9001), (5, 37), (5, 8240), (3, 4117), (16, 520)])
def test_the_best_continuations_go_on(
    tiny: TransformerEngine, width: int, vocabulary: int, dtype: torch.dtype, normalised: bool
) -> None:
    sentences, banned = 6, [0, 3, vocabulary - 1]
    numbers, before = made_up(sentences, width, vocabulary, torch.float32 if normalised else dtype)
    if normalised:
        numbers = numbers.log_softmax(-1)
        numbers[0, 0, 4] = float("nan")
    arena = Arena(tiny, sentences + 1, width, EXTENT + 8, 4)
    memory = arena.memory
    memory.slots = memory.slots.to(dtype)
    memory.visible = torch.randn(memory.visible.shape).to(dtype)
    first = EXTENT - 2 * width  # of the slots of this step
    memory.visible[..., first + width :] = NEVER
    memory.newest.copy_(torch.tensor([6, *range(first, first + width)]))
    arena.scores[:sentences] = before
    arena.on_host.fill_(-7)
    visible = memory.visible.clone()
    state = FixedState(memory, sentences, EXTENT, 4)
    choose(arena, state, numbers, arena.scores[:sentences], torch.tensor(banned), END, normalised)
    assert memory.newest.tolist() == [7, *range(EXTENT - width, EXTENT)]
    assert (arena.on_host[0] == -7).all()
    assert (arena.on_host[1, sentences:] == -7).all()
    for i in range(sentences):
        expected = all_in_order(numbers[i], before[i], banned, normalised)[: 2 * width]
        told = arena.on_host[1, i]
        best, (parents, tokens) = told[: 2 * width].view(torch.float32), told[2 * width : 6 * width].view(2, -1)
        count = len(expected)
        assert best[:count].tolist() == pytest.approx([each[0] for each in expected], abs=1e-5)
        assert (best[count:] == NEVER).all()
        assert list(zip(parents.tolist(), tokens.tolist(), strict=True))[:count] == [each[1:] for each in expected]
        going = told[6 * width : 7 * width].tolist()
        assert going == [j for j in range(2 * width) if tokens[j] != END or best[j] == NEVER][:width]
        assert arena.tokens[i].tolist() == tokens[going].tolist()
        assert arena.scores[i].tolist() == best[going].tolist()
        seen = visible[i, parents[going], :EXTENT]
        seen[torch.arange(width), EXTENT - width + torch.arange(width)] = 0
        torch.testing.assert_close(memory.visible[i, :, :EXTENT], seen, rtol=0, atol=0)
        torch.testing.assert_close(memory.visible[i, :, EXTENT:], visible[i, :, EXTENT:], rtol=0, atol=0)
    torch.testing.assert_close(memory.visible[sentences], visible[sentences], rtol=0, atol=0)


@pytest.mark.parametrize("width", [1, 4])
def test_pytorch_chooses_the_same(tiny: TransformerEngine, width: int) -> None:
    log_probabilities = torch.randn((3, width, 300)).log_softmax(-1)
    log_probabilities[0, 0, END] = 5.0
    arenas = [Arena(tiny, 3, width, 128, 4) for _ in range(2)]
    states = [FixedState(arena.memory, 3, 128, 4) for arena in arenas]
    for arena in arenas:
        arena.memory.begin([each[:3, :4] for each in arena.memory.cross], torch.zeros((3, 4)))
        arena.scores.copy_(torch.arange(3 * width).view(3, width) / 7)
    for _ in range(3):
        none = torch.tensor([], dtype=torch.long)
        choose(arenas[0], states[0], log_probabilities, arenas[0].scores, none, END, normalised=True)
        choose_in_pytorch(arenas[1], states[1], log_probabilities, arenas[1].scores, END)
        which = int(arenas[0].memory.newest[0]) % 2
        assert arenas[0].on_host[which, :, : 7 * width].tolist() == arenas[1].chosen[:, : 7 * width].tolist()
        for mine, other in zip(
            (arenas[0].tokens, arenas[0].scores, arenas[0].memory.newest, arenas[0].memory.visible),
            (arenas[1].tokens, arenas[1].scores, arenas[1].memory.newest, arenas[1].memory.visible),
            strict=True,
        ):
            assert mine.tolist() == other.tolist()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_tokens": 4},
        {"min_tokens": 9},
        {"length_penalty": 0.2, "early_stopping": "never"},
        {"forced_first_token": 77, "max_tokens": 20},
        {"suppressed_tokens": (3, 44, 90), "forced_last_token": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("beam", [1, 3])
def test_whole_searches_find_what_the_ordinary_loops_find(
    tiny: TransformerEngine, beam: int, settings: dict[str, Any]
) -> None:
    sources = [[5, 17, 99, 120, 3, 0], [9, 0], [88, 130, 12, 54, 66, 190, 2, 0]]
    config = replace(tiny.generation, beam=beam, n_best=beam, **{"max_tokens": 14, **settings})
    found = recorded_search(tiny, sources, config)
    expected = (greedy_search if beam == 1 else beam_search)(tiny, sources, config)
    assert [[each.tokens for each in best] for best in found] == [[each.tokens for each in best] for best in expected]
    for mine, other in zip(found, expected, strict=True):
        assert [each.score for each in mine] == pytest.approx([each.score for each in other], abs=1e-4)


def test_pytorch_chooses_where_the_kernels_cannot(tiny: TransformerEngine) -> None:
    config = replace(tiny.generation, forced_first_token=7)
    constraints = Constraints(config, END, tiny.device)
    assert chooses_in_two(tiny, 5, constraints, 1)
    assert not chooses_in_two(tiny, 5, constraints, 0)
    assert not chooses_in_two(tiny, 17, constraints, 1)
    assert math.prod((16, 32, 8)) == recorded_choice._MOST_KEYS
