"""What follows a step: the best continuations of running hypotheses, over all rows of a sentence and the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from knnmt.config import DecodingConfig
from knnmt.decoding.hypothesis import NEVER
from knnmt.native import library

_BLOCK = 100  # columns that `in_pytorch` examines together


@dataclass(frozen=True, slots=True)
class Chosen:
    """What follows a step: (n,) hypotheses that end, and (sentences, width) that continue, best first.

    ended: sentences, parent rows, tokens and scores
    going: parent rows, tokens and scores
    leaders: the best score of each sentence
    """

    ended: tuple[Tensor, Tensor, Tensor, Tensor]
    going: tuple[Tensor, Tensor, Tensor]
    leaders: list[float]


class Choose(Protocol):
    """Decides what follows a step."""

    def __call__(self, scores: Tensor, log_probabilities: Tensor, length: int) -> Chosen:
        """scores (sentences, width); log_probabilities (sentences, width, vocabulary), which may be changed;
        length: of hypotheses after the step
        """

    def keep(self, places: Sequence[int]) -> None:
        """The new sentence i is the old places[i]."""


class Freely:
    """The best continuations, whatever they contain."""

    def __init__(self, config: DecodingConfig, end: int) -> None:
        self._config, self._end = config, end

    def __call__(self, scores: Tensor, log_probabilities: Tensor, length: int) -> Chosen:
        config, beam = self._config, self._config.beam
        best, parents, tokens = best_continuations(scores, log_probabilities, 2 * beam)
        ends = tokens == self._end
        last = length == config.max_tokens
        ended = (ends[:, :beam] | last).nonzero(as_tuple=True)
        # After a forced token there is one continuation; impossible ones beside it would be searched for.
        width = 1 if length == 1 and config.forced_first_token is not None else beam
        going = best.masked_fill(ends, NEVER).topk(width).indices
        chosen = parents.gather(1, going), tokens.gather(1, going), best.gather(1, going)
        return Chosen((ended[0], parents[ended], tokens[ended], best[ended]), chosen, chosen[2][:, 0].tolist())

    def keep(self, places: Sequence[int]) -> None:
        """Nothing depends on the sentence."""


def best_continuations(scores: Tensor, log_probabilities: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best continuations of each sentence: their scores, parent rows and tokens, (sentences, count) each.

    scores (sentences, width); log_probabilities (sentences, width, vocabulary)
    """
    if scores.shape[1] == 1:  # the best token is that of the best log-probability, which a sum might round away
        best, parents, tokens = _best(torch.zeros_like(scores), log_probabilities, count)
        return best + scores, parents, tokens
    return _best(scores, log_probabilities, count)


def _best(scores: Tensor, log_probabilities: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    native = library()
    if native is None or log_probabilities.device.type != "cpu" or log_probabilities.dtype != torch.float32:
        return in_pytorch(scores, log_probabilities, count)
    sentences, width, vocabulary = log_probabilities.shape
    scores, log_probabilities = scores.contiguous(), log_probabilities.contiguous()
    best, places = torch.empty((sentences, count)), torch.empty((sentences, count), dtype=torch.long)
    tensors = (scores, log_probabilities, best, places)
    native.knnmt_best(
        *(tensor.data_ptr() for tensor in tensors), sentences, width, vocabulary, count, torch.get_num_threads()
    )
    return best, places // vocabulary, places % vocabulary


def in_pytorch(scores: Tensor, log_probabilities: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same as `best_continuations`; equal ones may come in any order.

    NaN counts as impossible, and so do the others in its block. Exact, and faster than one large top-k: the `count`
    best numbers are in the `count` blocks with the best maxima.
    """
    _, width, vocabulary = log_probabilities.shape
    whole = vocabulary // _BLOCK * _BLOCK
    maxima = [torch.unflatten(log_probabilities[..., :whole], -1, (-1, _BLOCK)).amax(-1)]
    if whole < vocabulary:
        maxima.append(log_probabilities[..., whole:].amax(-1, keepdim=True))
    block_best = _possible(torch.cat(maxima, dim=-1) + scores[..., None])
    blocks = block_best.shape[-1]
    chosen = block_best.flatten(1).topk(min(count, width * blocks), sorted=False).indices
    rows = chosen // blocks
    columns = ((chosen % blocks) * _BLOCK)[..., None] + torch.arange(_BLOCK, device=chosen.device)
    flat = (rows[..., None] * vocabulary + columns).flatten(1)
    if whole < vocabulary:
        beyond = (columns >= vocabulary).flatten(1)
        flat = flat.masked_fill(beyond, 0)
    candidates = log_probabilities.flatten(1).gather(1, flat) + scores.gather(1, rows).repeat_interleave(_BLOCK, 1)
    if whole < vocabulary:
        candidates = candidates.masked_fill_(beyond, float("-inf"))
    best, place = _possible(candidates).topk(count)
    best_flat = flat.gather(1, place)
    return best, best_flat // vocabulary, best_flat % vocabulary


def _possible(scores: Tensor) -> Tensor:
    """Scores with -inf in place of NaN, which a top-k would put first."""
    return scores.nan_to_num(float("-inf"), float("inf"), float("-inf"))
