"""The characters of a token: in the text that tokens decode to, and in a segment that they came from."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate, pairwise, takewhile

from knnmt.engine.tokenizer import Tokenizer

Span = tuple[int, int]


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
    start, end = _aligned(start, end, whole, segment)
    text = segment[start:end]
    return start + len(text) - len(text.lstrip()), start + len(text.rstrip())


def moved_spans(spans: Sequence[Span], text: str, other: str) -> list[Span]:
    """Spans of a text as those of another that differs from it only in white space and the like."""
    if text == other:
        return list(spans)
    whole = [_aligned(start, max(end, start + 1), text, other) for start, end in spans]
    return [(first, last if end > start else first) for (first, last), (start, end) in zip(whole, spans, strict=True)]


def _decoded(tokenizer: Tokenizer, prefix: Sequence[int], whole: str) -> int:
    """How many characters of the whole a prefix of its tokens determines:

    half a character decodes to something else.
    """
    decoded = tokenizer.decode(prefix)
    agreed = takewhile(lambda pair: pair[0] == pair[1], zip(decoded, whole, strict=False))
    return sum(1 for _ in agreed)


def _between(whole: str, ends: list[int]) -> list[Span]:
    spans = []
    for before, end in pairwise(accumulate(ends, max)):
        start = len(whole) - len(whole[before:].lstrip())
        spans.append((start, max(start, end)))
    return spans


def _aligned(start: int, end: int, whole: str, segment: str) -> Span:
    """The part of `segment` that corresponds to whole[start:end]."""
    changes = SequenceMatcher(None, whole, segment, autojunk=False).get_opcodes()
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
