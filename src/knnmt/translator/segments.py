"""From a text to the segments that the model translates, and back: sentences, overlong segments, white space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from knnmt.corpus.sentences import split_long, split_sentences


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of text to translate, and the white space around it that belongs to the result."""

    text: str
    before: str = ""
    after: str = ""


def segments_of(text: str, by_sentence: bool) -> list[Segment]:
    """The segments of a text: its sentences, or the whole; none where there is nothing but white space."""
    if not text.strip():
        return []
    return [_with_margins(piece) for piece in split_sentences(text)] if by_sentence else [Segment(text)]


def cut_to_fit(segment: Segment, fits: Callable[[str], bool]) -> list[Segment]:
    """The segment's parts, each short enough for the model."""
    parts: list[Segment] = []
    before = segment.before
    for piece in split_long(segment.text, fits):
        if piece.strip():
            part = _with_margins(piece)
            parts.append(Segment(part.text, before + part.before, part.after))
            before = ""
        else:
            before += piece
    last = parts[-1]
    parts[-1] = Segment(last.text, last.before, last.after + before + segment.after)
    return parts


def join(segments: Sequence[Segment], translations: Sequence[str]) -> str:
    """Translations in the white space of their segments."""
    return "".join(
        f"{segment.before}{translation}{segment.after}"
        for segment, translation in zip(segments, translations, strict=True)
    )


def _with_margins(piece: str) -> Segment:
    text = piece.strip()
    start = piece.index(text)
    return Segment(text, piece[:start], piece[start + len(text) :])
