"""The characters of a token: in the text that tokens decode to, and in a segment that they came from."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate, islice, pairwise, takewhile

from knnmt.engine.tokenizer import Tokenizer

Span = tuple[int, int]
Change = tuple[str, int, int, int, int]
_COMPARED = 1_000_000  # pairs of characters or words


def spans_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[Span]:
    """(start, end) of each token in `tokenizer.decode(tokens)`, without the white space before it.

    A token that adds no character has an empty span before the next character: an end token, the space of a word whose
    letters follow, the first bytes of a character.
    """
    whole = tokenizer.decode(tokens)
    return _between(whole, [_decoded(tokenizer, tokens[:count], whole) for count in range(len(tokens) + 1)])


def span_in_segment(tokenizer: Tokenizer, tokens: Sequence[int], position: int, segment: str) -> Span:
    """(start, end) in a segment of one of its tokens; empty at its end for the end token.

    The decoded text may differ from the segment in white space, in the spelling of characters, and in characters that
    the vocabulary lacks, so the two are aligned. Each of several bytes of one character stands for all of it.
    """
    whole = tokenizer.decode(tokens)
    prefixes = [_decoded(tokenizer, tokens[: position + more], whole) for more in (0, 1)]
    ((start, end),) = _between(whole, prefixes)
    if position == len(tokens) - 1 and start == end:
        return len(segment), len(segment)
    if whole == segment:
        return start, max(end, start + 1) if start < len(segment) else end
    start, end = _aligned(start, end, whole, segment, changes_between(whole, segment))
    text = segment[start:end]
    return start + len(text) - len(text.lstrip()), start + len(text.rstrip())


def moved_spans(spans: Sequence[Span], text: str, other: str) -> list[Span]:
    """Spans of a text as those of another that differs from it only in white space and the like."""
    if text == other:
        return list(spans)
    changes = changes_between(text, other)
    whole = [_aligned(start, max(end, start + 1), text, other, changes) for start, end in spans]
    return [(first, last if end > start else first) for (first, last), (start, end) in zip(whole, spans, strict=True)]


def changes_between(one: Sequence[str] | Sequence[int], other: Sequence[str] | Sequence[int]) -> list[Change]:
    """What turns one text, or its tokens, into another, as `SequenceMatcher.get_opcodes`.

    What is between equal beginnings and equal ends is compared only if it is short, because that takes more than linear
    time; otherwise it is one change.
    """
    begin = sum(1 for _ in takewhile(_are_equal, zip(one, other, strict=False)))
    most = min(len(one), len(other)) - begin
    end = sum(1 for _ in takewhile(_are_equal, islice(zip(reversed(one), reversed(other), strict=False), most)))
    middle = one[begin : len(one) - end], other[begin : len(other) - end]
    changes: list[Change] = [("equal", 0, begin, 0, begin)] if begin else []
    if len(middle[0]) * len(middle[1]) > _COMPARED:
        changes.append(("replace", begin, len(one) - end, begin, len(other) - end))
    else:
        codes = SequenceMatcher(None, *middle, autojunk=False).get_opcodes()
        changes += [(kind, begin + a, begin + b, begin + c, begin + d) for kind, a, b, c, d in codes]
    return [*changes, ("equal", len(one) - end, len(one), len(other) - end, len(other))] if end else changes


def _are_equal(pair: tuple[object, object]) -> bool:
    return pair[0] == pair[1]


def _decoded(tokenizer: Tokenizer, prefix: Sequence[int], whole: str) -> int:
    """How many characters of the whole a prefix of its tokens determines:

    half a character decodes to something else.
    """
    decoded = tokenizer.decode(prefix)
    return sum(1 for _ in takewhile(_are_equal, zip(decoded, whole, strict=False)))


def _between(whole: str, ends: list[int]) -> list[Span]:
    spans = []
    for before, end in pairwise(accumulate(ends, max)):
        start = len(whole) - len(whole[before:].lstrip())
        spans.append((start, max(start, end)))
    return spans


def _aligned(start: int, end: int, whole: str, segment: str, changes: Sequence[Change]) -> Span:
    """The part of `segment` that corresponds to whole[start:end]."""
    if start == end:
        for kind, before, _, first, last in changes:
            if kind == "insert" and before == start and segment[first:last].strip():
                return first, last  # the vocabulary does not have it
        end = min(start + 1, len(whole))
    first, last = len(segment), len(segment)
    for kind, before, after, here, there in changes:
        if before <= start < after:
            first = here + (start - before if kind == "equal" else 0)
        if before < end <= after:
            last = here + end - before if kind == "equal" else there
    return first, max(first, last)
