"""What the model sees of a unit of a memory: its text without accelerators, and its lines."""

from __future__ import annotations

from itertools import pairwise

from knnmt.corpus.accelerators import MARKS, Accelerators, drop_accelerators
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sentences import split_lines


def for_model(pair: SegmentPair, accelerators: Accelerators = "drop") -> SegmentPair:
    """The pair as the model is shown it. White space is the tokenizer's, to which all of it is the same."""
    if accelerators == "keep" or not any(mark in pair.source for mark in MARKS):
        return pair
    return SegmentPair(*drop_accelerators(pair.source, pair.target), pair.origin, pair.context)


def lines_of(pair: SegmentPair) -> list[SegmentPair]:
    """The lines of a unit that is written in several, each with its translation; none where that is not clear.

    Both sides have as many lines, and none goes on in the next: that begins with no small letter, or punctuation stands
    before it.
    """
    sources, targets = _lines(pair.source), _lines(pair.target)
    if len(sources) != len(targets) or len(sources) < 2 or _is_wrapped(sources) or _is_wrapped(targets):
        return []
    return [SegmentPair(*sides, pair.origin, pair.context) for sides in zip(sources, targets, strict=True)]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _is_wrapped(lines: list[str]) -> bool:
    return any(after[0].islower() and len(split_lines(f"{before}\n{after}")) == 1 for before, after in pairwise(lines))
