"""The kernels that choose how beam search continues, on a CPU, beside a plain search of all continuations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from knnmt.config import Fading, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.decoding import graph_choice
from knnmt.decoding.graph_buffers import GraphBuffers
from knnmt.decoding.graph_choice import choose, choose_in_pytorch, chooses_in_two
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.fixed_state import FixedState
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.graphs import GraphSteps
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from support.datastore_pairs import some_pairs
from support.loops import graph_search, reference_search
from support.made_stores import made_store, random_keys

END = 2
EXTENT = 40
NEVER = float("-inf")
SOURCES = [[5, 17, 99, 120, 3, 0], [9, 0], [88, 130, 12, 54, 66, 190, 2, 0]]


@pytest.fixture(autouse=True)
def compiled(kernel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_choice, "kernel", kernel)


def all_in_order(log_probabilities: Tensor, before: Tensor, forbidden: list[int]) -> list[tuple[float, int, int]]:
    """The scores, rows and tokens of everything that is possible in a sentence, best first."""
    scores = log_probabilities + before[:, None]
    scores[:, forbidden] = NEVER
    possible = [tuple(place) for place in torch.nonzero(scores > NEVER).tolist()]
    return sorted(((scores[place].item(), *place) for place in possible), key=lambda each: (-each[0], *each[1:]))


def made_up(sentences: int, width: int, vocabulary: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Numbers of every kind for as many sentences, and scores of their rows."""
    generator = torch.Generator().manual_seed(vocabulary + width)
    numbers = torch.randn((sentences, width, vocabulary), generator=generator).mul(3).to(dtype)
    before = torch.randn((sentences, width), generator=generator)
    numbers[0, :, END] = 9.0
    numbers[0, :, [3, vocabulary // 3, -1]] = 20.0  # which are forbidden
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
    numbers[6] = -3.0  # and best of all both zeros
    numbers[6, :, 4:24], numbers[6, :, 24:34] = -0.0, 0.0
    return numbers, before


def assert_follows(
    buffers: GraphBuffers, expected: list[list[tuple[float, int, int]]], result: Tensor, visible: Tensor
) -> None:
    """The result for the host, and what the next step reads, is expected; visible: as it was before."""
    width = buffers.tokens.shape[1]
    for i, best in enumerate(expected):
        scores, told = result[i, : 2 * width].view(torch.float32), result[i, 2 * width : 6 * width].view(2, -1)
        count = min(len(best), 2 * width)
        assert scores[:count].tolist() == pytest.approx([each[0] for each in best[:count]], abs=1e-5)
        assert (scores[count:] == NEVER).all()
        assert [tuple(each) for each in told.T.tolist()[:count]] == [each[1:] for each in best[:count]]
        parents, tokens = told
        going = result[i, 6 * width : 7 * width].tolist()
        assert going == [j for j in range(2 * width) if tokens[j] != END or scores[j] == NEVER][:width]
        assert buffers.tokens[i].tolist() == tokens[going].tolist()
        assert buffers.scores[i].tolist() == scores[going].tolist()
        seen = visible[i, parents[going], :EXTENT]
        seen[torch.arange(width), EXTENT - width + torch.arange(width)] = 0
        assert buffers.memory.visible[i, :, :EXTENT].tolist() == seen.tolist()
    for part in (slice(len(expected), None), slice(None)):
        beyond = (part, slice(None), slice(EXTENT if part.start is None else 0, None))
        assert buffers.memory.visible[beyond].tolist() == visible[beyond].tolist()


def buffers_at(engine: TransformerEngine, before: Tensor, dtype: torch.dtype) -> tuple[GraphBuffers, FixedState]:
    """Buffers in the middle of a search, with room for one sentence more, after six steps."""
    sentences, width = before.shape
    buffers = GraphBuffers(engine, sentences + 1, width, EXTENT + 8, 4)
    memory = buffers.memory
    memory.slots = memory.slots.to(dtype)
    memory.visible = torch.randn(memory.visible.shape).to(dtype)
    first = EXTENT - 2 * width  # of the slots of this step
    memory.visible[..., first + width :] = NEVER
    memory.newest.copy_(torch.tensor([6, *range(first, first + width)]))
    buffers.scores[:sentences] = before
    buffers.on_host.fill_(-7)
    return buffers, FixedState(memory, sentences, EXTENT, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(("width", "vocabulary"), [(1, 8209), (5, 4120), (3, 4096), (16, 37)])
def test_the_best_continuations_go_on(tiny: TransformerEngine, width: int, vocabulary: int, dtype: torch.dtype) -> None:
    banned = [0, 3, vocabulary // 3, vocabulary - 1]
    numbers, before = made_up(7, width, vocabulary, dtype)
    buffers, state = buffers_at(tiny, before, dtype)
    visible = buffers.memory.visible.clone()
    choose(buffers, state, numbers, torch.tensor(banned), END)
    assert buffers.memory.newest.tolist() == [7, *range(EXTENT - width, EXTENT)]
    assert (buffers.on_host[0] == -7).all()
    assert (buffers.on_host[1, 7:] == -7).all()
    expected = [
        all_in_order(numbers[i].float().log_softmax(-1), before[i], banned)[: 2 * width] for i in range(len(before))
    ]
    assert_follows(buffers, expected, buffers.on_host[1], visible)


@pytest.mark.parametrize("fading", [None, Fading(scale=2.0, width=0.8, sentence_scale=3.0, sentence_width=0.9)])
@pytest.mark.parametrize(("width", "k"), [(1, 40), (5, 8), (3, 1)])
def test_the_best_of_a_mixture_go_on(
    tiny: TransformerEngine, tmp_path: Path, fading: Fading | None, width: int, k: int
) -> None:
    vocabulary, sentences = 4119, 5
    values = np.arange(90, dtype=np.int32) * 7 % 49
    values[::4] = 4
    store = OpenStore(made_store(tmp_path / "s", random_keys(90, 6), values), exact=True).snapshot
    config = RetrievalConfig(k=k, interpolation_weight=0.4, temperature=50.0, fading=fading)
    of_kernel, of_pytorch = (GraphSteps(store, config, sentences) for _ in range(2))
    generator = torch.Generator().manual_seed(k)
    numbers, before = (each[:sentences] for each in made_up(7, width, vocabulary, torch.float32))
    for _ in range(2):
        distances_sq, ids = of_kernel.look(torch.randn((sentences, width, 6), generator=generator))
        distances_sq[width], ids[width] = float("inf"), -1  # a row that found none
        distances_sq[0, 0] = 0.0  # and one that found the very same state
        if k > 1:
            distances_sq[-1, 1:], ids[-1, 1:] = float("inf"), -1
            distances_sq[0, -1] = 1e6  # so far away that it has no weight, but its token is the model's best
            numbers[0, 0, values[ids[0, -1]]] = 30.0
        buffers, state = buffers_at(tiny, before, torch.float32)
        visible = buffers.memory.visible.clone()
        found = distances_sq, ids
        choose(buffers, state, numbers, torch.tensor([4]), END, of_kernel.kernel_args(found, width))
        log_probabilities = numbers.log_softmax(-1)
        of_rows = of_pytorch.mix(found, log_probabilities, before)
        expected = [all_in_order(log_probabilities[i], of_rows[i], [4]) for i in range(sentences)]
        assert_follows(buffers, expected, buffers.on_host[1], visible)
        torch.testing.assert_close(of_kernel._distances.sums, of_pytorch._distances.sums)
        torch.testing.assert_close(of_kernel._distances.steps, of_pytorch._distances.steps)


@pytest.mark.parametrize("width", [1, 3])
def test_where_nothing_is_possible_all_begin_with_the_first_row(tiny: TransformerEngine, width: int) -> None:
    before = torch.zeros((2, width))
    buffers, state = buffers_at(tiny, before, torch.float32)
    visible = buffers.memory.visible.clone()
    numbers = torch.full((2, width, END), float("nan"))  # so few that the end is none of them
    choose(buffers, state, numbers, torch.tensor([0]), END)
    assert (buffers.on_host[1, :2, : 2 * width].contiguous().view(torch.float32) == NEVER).all()
    assert (buffers.on_host[1, :2, 2 * width : 4 * width] == 0).all()
    assert (buffers.tokens[:2] == END).all()
    seen = visible[:2, :1, :EXTENT].expand(-1, width, -1).clone()
    seen[:, torch.arange(width), EXTENT - width + torch.arange(width)] = 0
    assert buffers.memory.visible[:2, :, :EXTENT].tolist() == seen.tolist()


def test_entries_and_tokens_that_do_not_exist_are_not_mixed_in(tiny: TransformerEngine) -> None:
    vocabulary = 50
    values = torch.tensor([7, -1, vocabulary, 2**31 - 1, -(2**31), 4], dtype=torch.int32)
    ids = torch.tensor([[0, 1, 2, 3, 4, 5], [0, len(values), 2**40, -1, -(2**40), 0]])
    distances_sq = torch.zeros(ids.shape)
    numbers = torch.randn((2, 1, vocabulary), generator=torch.Generator().manual_seed(1))
    buffers, state = buffers_at(tiny, torch.zeros((2, 1)), torch.float32)
    visible = buffers.memory.visible.clone()
    mixture = torch.tensor([np.log(0.5), 0, 1, 1, 1, 1, 20, 1], dtype=torch.float32)  # λ 0.5, the same for all
    counts, sums, steps = torch.ones(len(values)), torch.zeros(2), torch.zeros(2)
    of_store = [distances_sq, ids, len(values), values, counts, 1]
    choose(buffers, state, numbers, torch.tensor([4]), END, [mixture, 1, ids.shape[1], *of_store, sums, steps])
    probabilities = numbers[:, 0].softmax(-1) / 2
    probabilities[0, 7] += 1 / 12  # of six entries, one has a token that exists and is allowed
    probabilities[1, 7] += 1 / 2  # both entries that exist
    nothing = torch.zeros(1)
    assert_follows(
        buffers,
        [all_in_order(each.log()[None], nothing, [4])[:2] for each in probabilities],
        buffers.on_host[1],
        visible,
    )


@pytest.mark.parametrize("width", [1, 4])
def test_pytorch_chooses_the_same(tiny: TransformerEngine, width: int) -> None:
    numbers = torch.randn((3, width, 300))
    numbers[0, 0, END] = 9.0
    both = [GraphBuffers(tiny, 3, width, 128, 4) for _ in range(2)]
    states = [FixedState(buffers.memory, 3, 128, 4) for buffers in both]
    for buffers in both:
        buffers.memory.begin([each[:3, :4] for each in buffers.memory.cross], torch.zeros((3, 4)))
        buffers.scores.copy_(torch.arange(3 * width).view(3, width) / 7)
    for step in range(1, 4):
        choose(both[0], states[0], numbers, torch.tensor([], dtype=torch.long), END)
        choose_in_pytorch(both[1], states[1], numbers.log_softmax(-1), both[1].scores, END)
        mine, other = both[0].on_host[step % 2, :, : 7 * width], both[1].chosen[:, : 7 * width]
        assert mine[:, 2 * width :].tolist() == other[:, 2 * width :].tolist()
        torch.testing.assert_close(*(each[:, : 2 * width].contiguous().view(torch.float32) for each in (mine, other)))
        torch.testing.assert_close(both[0].scores, both[1].scores)
        for mine, other in zip(
            (both[0].tokens, both[0].memory.newest, both[0].memory.visible),
            (both[1].tokens, both[1].memory.newest, both[1].memory.visible),
            strict=True,
        ):
            assert mine.tolist() == other.tolist()


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[each.tokens for each in best] for best in found] == [[each.tokens for each in best] for best in expected]
    for mine, other in zip(found, expected, strict=True):
        assert [each.score for each in mine] == pytest.approx([each.score for each in other], abs=1e-4)


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
    config = replace(tiny.generation, beam=beam, n_best=beam, **{"max_tokens": 14, **settings})
    assert_same(graph_search(tiny, SOURCES, config), reference_search(tiny, SOURCES, config))


@pytest.mark.parametrize("beam", [1, 3])
def test_whole_searches_with_a_memory_find_what_the_ordinary_loops_find(
    tiny: TransformerEngine, tmp_path: Path, beam: int
) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(25), tiny)
    config = RetrievalConfig(k=4, interpolation_weight=0.6, temperature=20.0)
    retrieval = Retrieval(OpenStore(store, exact=True), config)
    decoding = replace(tiny.generation, beam=beam, n_best=beam, max_tokens=14, suppressed_tokens=(3, 44))
    batches = [BatchRetrieval([retrieval] * len(SOURCES)) for _ in range(2)]
    assert_same(
        graph_search(tiny, SOURCES, decoding, batches[0]), reference_search(tiny, SOURCES, decoding, batches[1])
    )


def test_pytorch_chooses_where_the_kernels_cannot(tiny: TransformerEngine) -> None:
    assert chooses_in_two(tiny, 16, 64)
    assert not chooses_in_two(tiny, 17, 0)
    assert not chooses_in_two(tiny, 16, 65)
