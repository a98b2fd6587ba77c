"""What beam search needs from the code that makes its steps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from knnmt.decoding.hypothesis import Hypothesis, Numbers, Scores

Leading = dict[int, list[int]]


class Backend(Protocol):
    """The running hypotheses of a batch, and the steps that extend them.

    A step looks at the 2 x beam best continuations of a sentence, so that enough remain when some end. Those that end
    and are among the best `beam` are returned; the best `beam` that do not end continue.

    context: entered while steps are made
    sentences: (running,), the numbers in the batch of those that still run
    leaders: (running,), the best score of each, a sum of log-probabilities
    lengths: (running,), the number of tokens of its hypotheses
    """

    @property
    def context(self) -> AbstractContextManager[object]: ...

    @property
    def sentences(self) -> Numbers: ...

    @property
    def leaders(self) -> Scores: ...

    @property
    def lengths(self) -> Numbers: ...

    def advance(self, least: Scores, one_step: bool) -> list[tuple[int, Hypothesis]]:
        """Make a step, or several until a hypothesis ends; return sentences and hypotheses that ended.

        least: for each sentence, the score that its leader must be able to beat; steps end if one cannot
        one_step: make no more than one, because somebody looks at each of them
        """

    def keep(self, places: Sequence[int]) -> None:
        """Continue only with these places of `sentences`."""

    def leading(self) -> Leading:
        """The tokens of each sentence's first hypothesis."""
