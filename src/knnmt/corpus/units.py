"""The part of a unit that the model sees: its text without accelerators, and its lines."""

from __future__ import annotations

from itertools import pairwise

from knnmt.corpus.accelerators import MARKS, Accelerators, drop_accelerators
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sentences import split_lines


def for_model(pair: SegmentPair, accelerators: Accelerators = "drop") -> SegmentPair:
    """The pair as the model sees it. The tokenizer handles white space; all of it is the same to it."""
    if accelerators == "keep" or not any(mark in pair.source for mark in MARKS):
        return pair
    return SegmentPair(*drop_accelerators(pair.source, pair.target), pair.origin, pair.context)


def lines_of(pair: SegmentPair) -> list[SegmentPair]:
    """The lines of a unit of several lines, each with its translation; none if the match is unclear.

    Both sides must have the same number of lines, and no line may continue in the next: the next does not begin with a
    small letter, or punctuation precedes it.
    """
    sources, targets = _lines(pair.source), _lines(pair.target)
    if len(sources) != len(targets) or len(sources) < 2 or _is_wrapped(sources) or _is_wrapped(targets):
        return []
    return [SegmentPair(*sides, pair.origin, pair.context) for sides in zip(sources, targets, strict=True)]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _is_wrapped(lines: list[str]) -> bool:
    return any(after[0].islower() and len(split_lines(f"{before}\n{after}")) == 1 for before, after in pairwise(lines))
