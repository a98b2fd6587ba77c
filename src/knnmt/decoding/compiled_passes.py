"""Several passes of greedy search with drafts in one compiled call, as in `native/passes.cpp`."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.drafted_sentence import DraftedSentence
from knnmt.engine.compiled_ahead import CompiledAhead
from knnmt.engine.state import StateInTurn
from knnmt.retrieval.compiled import CompiledSteps
from knnmt.retrieval.own_entries import Drafting

_STAGES = ("decoder", "output", "search", "greedy")


class _Passes(ctypes.Structure):
    """As in passes.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("end", "max_tokens", "positions", "until", "room")),
        ("forbidden", ctypes.c_int32),
        ("never", ctypes.c_void_p),
        *((name, ctypes.c_double) for name in ("row_cost", "speed", "surely", "surer")),
        *((name, ctypes.c_void_p) for name in ("generated", "drafted", "lengths", "last", "scores", "lost", "ended")),
        *((name, ctypes.c_void_p) for name in ("sums", "steps", "drafts", "draft_lengths")),
        *((name, ctypes.c_int64) for name in ("searches", "accepted")),
        ("by_length", ctypes.c_void_p),
        ("seconds", ctypes.c_double * len(_STAGES)),
    )


@dataclass(frozen=True, slots=True)
class DraftPolicy:
    """When a token is drafted, as `drafted.least_chance` and `drafted.certainty` say.

    positions: up to which tokens are drafted
    """

    row_cost: float
    speed: float
    surely: float
    surer: float
    positions: int


class CompiledPasses:
    """Passes over running sentences, which may belong to several batches. A call has those that are not done."""

    def __init__(
        self,
        ahead: CompiledAhead,
        steps: CompiledSteps,
        config: DecodingConfig,
        constraints: Constraints,
        drafting: Drafting,
        policy: DraftPolicy,
    ) -> None:
        self._ahead, self._steps = ahead, steps
        self._config, self._constraints = config, constraints
        self._drafting, self._policy = drafting, policy

    def run(self, state: StateInTurn, running: Sequence[DraftedSentence]) -> tuple[int, Counter[int], int]:
        """Make passes until a sentence is done or something else is forbidden; none if it is so already.

        Returns the number of passes, that of drafts by length, and how many drafted tokens were accepted.
        """
        config, most, policy = self._config, self._drafting.most, self._policy
        shortest = min(len(each.generated) for each in running)
        never, steady = self._constraints.steady(shortest)
        if steady < 1:
            return 0, Counter(), 0
        state.make_room([1 + len(each.draft) for each in running])
        count, room = len(running), max(config.max_tokens, 1)
        generated = torch.zeros((count, room), dtype=torch.long)
        drafted = torch.zeros((count, room), dtype=torch.uint8)
        drafts = torch.zeros((count, most), dtype=torch.long)
        for place, each in enumerate(running):
            drafts[place, : len(each.draft)] = torch.tensor(each.draft, dtype=torch.long)
        before = [len(each.generated) for each in running]
        lengths, last = (ctypes.c_int64 * count)(*before), (ctypes.c_int64 * count)(*(each.last for each in running))
        scores = (ctypes.c_double * count)(*(each.score for each in running))
        lost, ended = (ctypes.c_uint8 * count)(), (ctypes.c_uint8 * count)()
        draft_lengths = (ctypes.c_int32 * count)(*(len(each.draft) for each in running))
        by_length = (ctypes.c_int64 * (1 + most))()
        forbidden = (ctypes.c_int64 * len(never))(*never)
        sums, steps = self._steps.sums_and_steps
        passes = _Passes(
            self._drafting.end,
            config.max_tokens,
            policy.positions,
            shortest + steady,
            room,
            len(never),
            ctypes.addressof(forbidden),
            policy.row_cost,
            policy.speed,
            policy.surely,
            policy.surer,
            generated.data_ptr(),
            drafted.data_ptr(),
            *(ctypes.addressof(each) for each in (lengths, last, scores, lost, ended)),
            sums.data_ptr(),
            steps.data_ptr(),
            drafts.data_ptr(),
            ctypes.addressof(draft_lengths),
            0,
            0,
            ctypes.addressof(by_length),
        )
        described = self._steps.described(self._drafting, self._ahead.vocabulary)
        made = self._ahead.passes(state, (*described, ctypes.addressof(passes)), never)
        self._steps.require_sound(made != -2, self._ahead.vocabulary)
        for stage, seconds in zip(_STAGES, passes.seconds, strict=True):
            timing.spent(stage, seconds, made)
        for place, each in enumerate(running):
            new = slice(before[place], lengths[place])
            each.generated += generated[place, new].tolist()
            each.drafted += drafted[place, new].bool().tolist()
            each.draft = drafts[place, : draft_lengths[place]].tolist()
            each.last, each.score = last[place], scores[place]
            each.lost, each.ended = bool(lost[place]), bool(ended[place])
        state.lengths = list(lengths)
        self._steps.count(passes.searches)
        return made, Counter({length: times for length, times in enumerate(by_length) if times}), passes.accepted
