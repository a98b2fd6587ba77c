"""From a text to the segments that the model translates, and back: sentences, overlong segments, white space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from knnmt.corpus.sameness import in_the_form_of
from knnmt.corpus.sentences import split_long, split_sentences
from knnmt.retrieval.forms import StoredForms


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of text to translate, and the white space around it that belongs to the result.

    stored: the source of the memory that the text is a form of, which the model is given in its place
    """

    text: str
    before: str = ""
    after: str = ""
    stored: str | None = None

    @property
    def given(self) -> str:
        """What the model is given."""
        return self.text if self.stored is None else self.stored


def segments_of(text: str, by_sentence: bool, forms: StoredForms | None = None) -> list[Segment]:
    """The segments of a text: its sentences, or the whole; none where there is nothing but white space.

    forms: sources of the memory that is translated with; a text that is one of them stays whole
    """
    if not text.strip():
        return []
    if not by_sentence:
        return [_as_stored(Segment(text), forms)]
    whole = _as_stored(_with_margins(text), forms)
    if whole.stored is not None:
        return [whole]
    return [_as_stored(_with_margins(piece), forms) for piece in split_sentences(text)]


def _as_stored(segment: Segment, forms: StoredForms | None) -> Segment:
    return segment if forms is None else replace(segment, stored=forms.of(segment.text))


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
    """Translations in the white space of their segments, and in the form that each has."""
    return "".join(
        f"{segment.before}{in_form(segment, translation)}{segment.after}"
        for segment, translation in zip(segments, translations, strict=True)
    )


def in_form(segment: Segment, translation: str) -> str:
    """The translation of what the model was given, as that of the segment's text."""
    return translation if segment.stored is None else in_the_form_of(segment.text, segment.stored, translation)


def _with_margins(piece: str) -> Segment:
    text = piece.strip()
    start = piece.index(text)
    return Segment(text, piece[:start], piece[start + len(text) :])
