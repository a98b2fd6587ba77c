"""How much greedy search drafts on a GPU: what a step with drafts costs, and how often its tokens are right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from knnmt.decoding.arena import MAX_TURNS

TURNS = (1, 4, MAX_TURNS)  # tokens of a sentence that a step computes: few numbers, which are recorded soon
# Of each further token, in terms of a step with one: for all sentences together, and for each sentence.
_TURN_COST, _ROW_COST = 0.03, 0.0004
# How often the first token of a draft is right, by λ, and every next one after it.
_MIN_CHANCE, _RIGHT, _RIGHT_BY_CHANCE, _GOES_ON = 0.02, 0.2, 0.65, 0.58
_LIKELY = 0.35  # the chance that a step ends a sentence above which the host waits: a useless step costs more


def turns_for(chances: npt.NDArray[np.floating], size: int) -> int:
    """How many tokens of a sentence make a step of so many sentences worth most.

    chances: (sentences,), the expected λ of each sentence that is not done, 0 if nothing is drafted
    """
    drafting = chances[chances > _MIN_CHANCE]
    first = _RIGHT * len(drafting) + _RIGHT_BY_CHANCE * float(drafting.sum())

    def worth(turns: int) -> float:
        tokens = len(chances) + first * (1 - _GOES_ON ** (turns - 1)) / (1 - _GOES_ON)
        return tokens / (1 + (_TURN_COST + _ROW_COST * size) * (turns - 1))

    return max(TURNS, key=worth)


def likely_ends(chance: float, ends: int, turns: int) -> bool:
    """Whether a step of so many tokens probably ends a sentence: all of its draft is right, up to the end.

    chance: λ, 0 if nothing is drafted; ends: how many tokens of the draft come before the end
    """
    right = (_RIGHT + _RIGHT_BY_CHANCE * chance) * _GOES_ON**ends
    return ends < turns - 1 and chance > 0 and right >= _LIKELY
