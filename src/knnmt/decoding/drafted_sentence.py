"""A sentence that is being translated with drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite


@dataclass(slots=True, eq=False)
class DraftedSentence:
    """A sentence that is being translated.

    source: its number among the sources of its batch
    last: the decoder's next input
    drafted: as in `Hypothesis`
    """

    source: int
    last: int
    generated: list[int] = field(default_factory=list)
    draft: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    score: float = 0.0
    lost: bool = False
    ended: bool = False

    def room(self, most: int) -> int:
        """How many tokens may be drafted if the sentence may have at most so many tokens."""
        return 0 if self.ended or self.lost else max(most - len(self.generated) - 1, 0)

    def take(self, gains: Sequence[float], tokens: Sequence[int], end: int, max_tokens: int) -> int:
        """Take the tokens of a pass up to the first that was not drafted. Return how many turns were used.

        gains: what each adds to the score
        tokens (turns,): the choice after the last token, and after each drafted one
        """
        for turn, (gain, token) in enumerate(zip(gains, tokens, strict=True)):
            if not isfinite(gain):
                self.lost = True
                return turn + 1
            self.generated.append(token)
            self.drafted.append(turn > 0)
            self.score += gain
            self.last = token
            self.ended = token == end or len(self.generated) == max_tokens
            if self.ended or turn == len(self.draft) or self.draft[turn] != token:
                return turn + 1
        raise AssertionError("a pass has a turn more than the draft has tokens")
