"""From a text to the segments that the model translates, and back: sentences, overlong segments, white space, marks.

A text that a memory holds as one segment is one segment, whatever it consists of. It comes out as the memory has it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from knnmt.corpus.accelerators import accelerators_in, accelerators_of, with_accelerator
from knnmt.corpus.glossary import Glossary
from knnmt.corpus.sameness import plain
from knnmt.corpus.sentences import split_lines, split_long, split_sentences
from knnmt.datastore.sources import HeldSources
from knnmt.errors import LongSegmentWarning
from knnmt.protection.form import in_the_form_of
from knnmt.retrieval.retriever import Retrieval
from knnmt.translator.guarded import Guarded
from knnmt.translator.translation import Caution


@dataclass(frozen=True, slots=True)
class TextSegment:
    """A part of a text to translate, and the white space around it that belongs to the result.

    mark: the mark of the accelerator that was taken out of the text and belongs to the result
    key: the letter of the accelerator, if the result should have the same one
    held: the memory that holds the text, and says where its accelerator or line breaks belong in the result
    form: the requested text, if the text is the memory's form of it
    begins: whether it begins a sentence or a label
    guarded: what of it must be kept
    """

    text: str
    before: str = ""
    after: str = ""
    mark: str = ""
    key: str = ""
    held: HeldSources | None = None
    form: str = ""
    begins: bool = True
    guarded: Guarded | None = None


def segments_of(text: str, by_sentence: bool, held: HeldSources | None = None, whole: bool = True) -> list[TextSegment]:
    """The segments of a text: its sentences, or its lines; none if there is only white space.

    held: the sources in the memory
    whole: do not cut those
    """
    if not text.strip():
        return []
    return [understood(piece, held) for piece in pieces_of(text, by_sentence, held if whole else None)]


def pieces_of(text: str, by_sentence: bool, held: HeldSources | None) -> list[str]:
    """The parts of a text that become segments, including white space; those in `held` are not cut."""
    for cut in (split_lines, split_sentences) if by_sentence else (split_lines,):
        pieces = cut(text)
        if len(pieces) > 1:
            if held is not None and understood(text, held).text in held:
                return [text]
            return [part for piece in pieces for part in pieces_of(piece, by_sentence, held)]
    return [text]


def understood(piece: str, held: HeldSources | None) -> TextSegment:
    """A piece as a segment, in the memory's form if it has one.

    The accelerator is taken out if there is no doubt about it, or if the memory has the text without it.
    """
    segment = _with_margins(piece)
    if held is None:
        return segment
    stored = held.form_of(segment.text)
    if held.without_accelerators:
        for found in accelerators_in(segment.text):
            text = found.dropped_from(segment.text)
            form = held.form_of(text)
            if found.sure or (stored is None and form is not None):
                segment, stored = replace(segment, text=text, mark=found.mark, held=held), form
                break
    if "\n" in segment.text or stored is not None:
        segment = replace(segment, held=held)
    if stored is None or plain(stored) == plain(segment.text):
        return segment
    return replace(segment, text=stored, form=segment.text)


def laid_out(segment: TextSegment, translation: str, language: str | None = None) -> str:
    """The model's output in the form of the segment, with its accelerator before the first letter.

    If the output is the memory's translation, it is spelled as in the memory, with the accelerator and line breaks.

    language: of the translation, if it is known
    """
    in_memory = _as_held(segment, translation)
    text = translation if in_memory is None else in_memory
    if in_memory is None or segment.form:
        guarded = segment.guarded or Guarded()
        keeps = guarded.shown, guarded.syntax
        text = in_the_form_of(segment.form or segment.text, text, language, *keeps, begins=segment.begins)
    return with_accelerator(text, segment.mark, segment.key) if segment.mark else text


def loses_lines(segment: TextSegment, translation: str, by_sentence: bool) -> bool:
    """Whether a segment of several lines, uncut because the memory holds it, came out as something else."""
    uncut = segment.held is not None and len(pieces_of(segment.form or segment.text, by_sentence, None)) > 1
    return uncut and _as_held(segment, translation) is None


def _as_held(segment: TextSegment, translation: str) -> str | None:
    """The memory's translation that equals the model's output, as it is written there; None if there is none."""
    held = segment.held
    if held is None:
        return None
    for pair in held.pairs_of(segment.text):
        target = pair.target.strip() if "\n" in segment.text else plain(pair.target)
        there = accelerators_of(pair.source, target)[1] if held.without_accelerators else None
        without = there.dropped_from(target) if there else target
        if plain(without) == plain(translation):
            if there and segment.mark:
                key = target[there.start : there.end].replace(there.mark, segment.mark)
                return target[: there.start] + key + target[there.end :]
            return without
    return None


def cut_to_fit(segment: TextSegment, fits: Callable[[str], bool]) -> list[TextSegment]:
    """The segment's parts, each short enough for the model."""
    if segment.guarded is not None:
        cut = segment.guarded.cut(segment.text, lambda text: split_long(text, fits))
        first, *others = (TextSegment(text, begins=False, guarded=guarded) for text, guarded in cut)
        return [replace(first, mark=segment.mark, key=segment.key, begins=segment.begins), *others]
    parts: list[TextSegment] = []
    before, mark = segment.before, segment.mark
    for piece in split_long(segment.text, fits):
        if piece.strip():
            part = _with_margins(piece)
            begins = segment.begins and not parts
            parts.append(TextSegment(part.text, before + part.before, part.after, mark, key=segment.key, begins=begins))
            before = mark = ""
        else:
            before += piece
    last = parts[-1]
    parts[-1] = replace(last, after=last.after + before + segment.after)
    return parts


def fitted(
    segmented: Sequence[Sequence[TextSegment]], encode: Callable[[list[str]], list[list[int]]], limit: int
) -> tuple[list[list[TextSegment]], list[list[int]], list[tuple[Caution, ...]]]:
    """The segments of some texts, with their token ids in a row. Those longer than the model's positions are cut.

    Each text comes with a list of its cuts, about which warnings are issued as well.
    """

    def fits(text: str) -> bool:
        return len(encode([text])[0]) <= limit

    sources = encode([segment.text for segments in segmented for segment in segments])
    if all(len(source) <= limit for source in sources):
        return [list(segments) for segments in segmented], sources, [()] * len(segmented)
    lengths = iter([len(source) for source in sources])
    cut: list[list[TextSegment]] = []
    cautions: list[tuple[Caution, ...]] = []
    for segments in segmented:
        fitting: list[TextSegment] = []
        said: list[Caution] = []
        for segment in segments:
            length = next(lengths)
            parts = [segment] if length <= limit else cut_to_fit(segment, fits)
            if len(parts) > 1:
                words = (
                    f"a segment of {length} tokens, more than the model's {limit}, was translated in {len(parts)} "
                    f"parts: {segment.text[:60]!r}"
                )
                said.append(Caution(LongSegmentWarning, words))
                warnings.warn(words, LongSegmentWarning, stacklevel=2)
            fitting.extend(parts)
        cut.append(fitting)
        cautions.append(tuple(said))
    return cut, encode([segment.text for segments in cut for segment in segments]), cautions


def join(segments: Sequence[TextSegment], translations: Sequence[str]) -> str:
    """Translations with the white space of their segments."""
    return "".join(
        f"{segment.before}{translation}{segment.after}"
        for segment, translation in zip(segments, translations, strict=True)
    )


def _with_margins(piece: str) -> TextSegment:
    text = piece.strip()
    start = piece.index(text)
    return TextSegment(text, piece[:start], piece[start + len(text) :])


@dataclass(frozen=True, slots=True)
class Job:
    """A segment to translate: its token ids, and how it retrieves."""

    segment: TextSegment
    source: list[int]
    retrieval: Retrieval | None
    glossary: Glossary | None = None

    @property
    def guarded(self) -> Guarded:
        assert self.segment.guarded is not None  # noqa: S101 - only such become jobs
        return self.segment.guarded
