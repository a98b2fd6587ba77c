"""What a captured step of beam search continues with: two kernels, where PyTorch needs some twenty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from knnmt.decoding.continuations import best_continuations
from knnmt.decoding.graph_buffers import GraphBuffers
from knnmt.engine.fixed_state import FixedState, GraphEngine
from knnmt.native.gpu import kernel

_NEVER = float("-inf")
_PART = 4096  # numbers of a row that a block looks at, as in candidates.cu
_MOST_KEYS = 4096  # candidates of all parts and rows of a sentence, as in largest.h
_MOST_ROWS = 16  # of a sentence, as in follow.cu
_MOST_NEAR = 1024  # neighbours of all rows of a sentence, as in follow.cu
_THREADS = 256


def chooses_in_two(engine: GraphEngine, beam: int, k: int) -> bool:
    """Whether `choose` works for this beam and for k neighbours of a row; otherwise PyTorch does the same."""
    candidates = beam * 2 * beam * _parts(engine.vocabulary_size)
    if beam > _MOST_ROWS or beam * k > _MOST_NEAR or candidates + beam * k > _MOST_KEYS:
        return False
    return all(_compiled(name, engine.device, engine.dtype) is not None for name in ("candidates", "follow"))


def choose(
    buffers: GraphBuffers,
    state: FixedState,
    numbers: Tensor,
    forbidden: Tensor,
    end: int,
    retrieved: list[Any] | None = None,
) -> None:
    """Continue with the best tokens, and write the result for the host there.

    numbers: (sentences, width, vocabulary), scores before the softmax
    forbidden: tokens that may not follow
    retrieved: `GraphSteps.kernel_args`
    """
    sentences, width, vocabulary = numbers.shape
    count, parts, device = 2 * width, _parts(vocabulary), numbers.device
    keys = torch.empty((sentences * width, parts, count), dtype=torch.long, device=device)
    totals = torch.empty((sentences * width, parts, 2), device=device)
    numbers = numbers.contiguous()
    of_numbers = [numbers, vocabulary, forbidden, len(forbidden)]
    candidates, follow = (_compiled(name, device, numbers.dtype) for name in ("candidates", "follow"))
    assert candidates is not None  # noqa: S101 - `chooses_in_two` has checked this
    assert follow is not None  # noqa: S101 - as above
    candidates(
        grid=(sentences * width, parts, 1),
        block=(_THREADS, 1, 1),
        args=[*of_numbers, count, width, keys, totals, state.newest],
    )
    of_visible = [state.newest, state.visible, *state.visible.stride()[:2], state.visible.shape[2]]
    on_host = [buffers.on_host, *buffers.on_host.stride()[1::-1]]
    none = buffers.scores
    without = [none, width, 0, none, none, 0, none, none, 0, none, none]
    follow(
        grid=(sentences, 1, 1),
        block=(_THREADS, 1, 1),
        args=[
            *[keys, totals, parts, *of_numbers, end],
            *of_visible,
            *[buffers.tokens, buffers.scores, *on_host],
            *(without if retrieved is None else retrieved),
        ],
    )


def choose_in_pytorch(
    buffers: GraphBuffers, state: FixedState, log_probabilities: Tensor, before: Tensor, end: int
) -> None:
    """The same from log-probabilities after the mixture; the result is not written to the host."""
    sentences, beam = before.shape
    best, parents, candidates = best_continuations(before, log_probabilities, 2 * beam)
    going = best.masked_fill(candidates == end, _NEVER).topk(beam).indices
    buffers.tokens[:sentences] = candidates.gather(1, going)
    buffers.scores[:sentences] = best.gather(1, going)
    state.advance(parents.gather(1, going))
    buffers.chosen[:sentences, : 7 * beam] = torch.cat(
        [best.view(torch.int32), parents.int(), candidates.int(), going.int()], dim=1
    )


def _parts(vocabulary: int) -> int:
    return -(-vocabulary // _PART)


def _compiled(name: str, device: torch.device, dtype: torch.dtype) -> Callable[..., Any] | None:
    if dtype not in (torch.float16, torch.float32):
        return None
    return kernel(name, device, HALF=int(dtype == torch.float16))
