"""Codes that were taken out of a text are put back into its translation, where the attention of its tokens points."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from knnmt.engine.base import Engine
from knnmt.engine.forced import force
from knnmt.protection.marked import Marked, Role
from knnmt.protection.placeholders import Kind, Placeholder, find, joined_exact
from knnmt.protection.placing import Alignment, Placed, arrange
from knnmt.translator.assembly import Part
from knnmt.translator.guarded import Coded, with_shown_codes
from knnmt.translator.segments import Job
from knnmt.translator.spans import moved_spans, spans_of

_LITTLE = 1e-6  # in place of no attention
_UNIT = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


class CodePlacing:
    """Finds the places of codes in translations."""

    def __init__(self, engine: Engine[Any]) -> None:
        self._engine = engine

    def alignments(self, asked: Sequence[tuple[Job, Part]]) -> list[Alignment]:
        """(target tokens, source tokens) for each:

        how much each token attended to each source token when it was generated.
        """
        code = self._engine.special_tokens.target_code
        targets = [list(part.hypothesis.tokens) for _, part in asked]
        skipped = [int(code is not None and target[:1] == [code]) for target in targets]
        given = [target[skip:] for target, skip in zip(targets, skipped, strict=True)]
        block = force(self._engine, [job.source for job, _ in asked], given, cross_attention=True)
        assert block.cross_attention is not None  # noqa: S101 - asked for
        attention = block.cross_attention.float().cpu().numpy()
        found = []
        for row, ((job, _), target, skip) in enumerate(zip(asked, targets, skipped, strict=True)):
            alignment = np.zeros((len(target), len(job.source)), dtype=np.float32)
            alignment[skip:] = attention[row, : len(target) - skip, : len(job.source)]
            found.append(alignment)
        return found

    def arranged(self, job: Job, part: Part, attention: Alignment) -> tuple[Marked, bool]:
        """A translation with its codes."""
        engine, guarded, text = self._engine, job.guarded, part.text
        leading, trailing = self._frame()
        decoded = engine.tokenizer.decode(part.hypothesis.tokens)
        spans = moved_spans(spans_of(engine.tokenizer, part.hypothesis.tokens), decoded, text)
        items = joined_exact(find(text, guarded.shown, guarded.syntax))
        units = units_of(text, items)
        tokens = slice(leading, len(job.source) - trailing)
        alignment = np.full((len(units), len(job.source[tokens])), _LITTLE, dtype=np.float32)
        for (start, end), row in zip(spans, attention, strict=True):
            for number, (first, last) in enumerate(units):
                if start < last and first < end:
                    alignment[number] += row[tokens]
        offsets = self._token_offsets(job)
        for number, origin in _origins(units, items, joined_exact(guarded.placeholders)).items():
            alignment[number] = _LITTLE
            alignment[number, offsets(origin.start) : max(offsets(origin.end), offsets(origin.start) + 1)] = 1.0
        anchor_copies(alignment, (text, units), (job.segment.text, guarded.codes), offsets)
        placed = [
            Placed(
                each.code,
                offsets(each.offset),
                left=each.offset > 0 and not job.segment.text[each.offset - 1].isspace(),
                blank=each.blank,
            )
            for each in guarded.codes
            if not each.length
        ]
        arrangement = arrange(text, units, placed, alignment)
        return with_shown_codes(arrangement.marked, guarded), arrangement.whole

    def _frame(self) -> tuple[int, int]:
        """How many tokens precede and follow the text of every source."""
        encoded = self._engine.tokenizer.encode_sources(["", "a", "b"])
        leading = 0
        while encoded[1][leading] == encoded[2][leading]:
            leading += 1
        return leading, len(encoded[0]) - leading

    def _token_offsets(self, job: Job) -> Callable[[int], int]:
        """From characters of the source text to the number of its tokens before them."""
        leading, trailing = self._frame()
        known: dict[int, int] = {}
        text = job.segment.text
        count = len(job.source) - leading - trailing

        def offset(character: int) -> int:
            if character not in known:
                (prefix,) = self._engine.tokenizer.encode_sources([text[:character]])
                known[character] = min(len(prefix) - leading - trailing, count)
            return known[character]

        return offset


def anchor_copies(
    alignment: Alignment,
    translation: tuple[str, Sequence[tuple[int, int]]],
    source: tuple[str, Sequence[Coded]],
    offsets: Callable[[int], int],
) -> None:
    """Align the words inside a pair of codes, in place, if they are in the translation once, unchanged.

    translation: its text and units; source: its text and codes; offsets: from characters of the source to tokens
    """
    (text, units), (words, codes) = translation, source
    starts, ends = ({span[side]: number for number, span in enumerate(units)} for side in (0, 1))
    closed = {each.code.pair: each.offset for each in codes if each.code.role is Role.CLOSING}
    for each in codes:
        if each.code.role is not Role.OPENING or each.code.pair not in closed:
            continue
        held = words[each.offset : closed[each.code.pair]].strip()
        if not held or words.count(held) != 1 or text.count(held) != 1:
            continue
        place = text.find(held)
        first, last = starts.get(place), ends.get(place + len(held))
        if first is not None and last is not None:
            start = offsets(each.offset)
            tokens = slice(start, max(offsets(closed[each.code.pair]), start + 1))
            alignment[:, tokens] = _LITTLE
            alignment[first : last + 1] = _LITTLE
            alignment[first : last + 1, tokens] = 1.0


def between(text: str, found: Sequence[Placeholder]) -> list[tuple[int, int]]:
    """The parts of a text between what was found."""
    edges = [0, *(edge for each in found for edge in (each.start, each.end)), len(text)]
    return list(zip(edges[::2], edges[1::2], strict=True))


def units_of(text: str, items: Sequence[Placeholder]) -> list[tuple[int, int]]:
    """Words, marks, and what was found, which is not cut, as parts of a text."""
    units: list[tuple[int, int]] = []
    for (start, end), item in zip(between(text, items), [*items, None], strict=True):
        units += [match.span() for match in _UNIT.finditer(text, start, end)]
        if item is not None:
            units.append((item.start, item.end))
    return units


def _origins(
    units: Sequence[tuple[int, int]], items: Sequence[Placeholder], sources: Sequence[Placeholder]
) -> dict[int, Placeholder]:
    """The n-th of a kind in a translation comes from the n-th in the source; by their units."""
    waiting: dict[object, deque[Placeholder]] = {}
    for each in sources:
        waiting.setdefault(_same(each), deque()).append(each)
    places = {span: number for number, span in enumerate(units)}
    found = {}
    for each in items:
        if origin := waiting.get(_same(each)):
            found[places[each.start, each.end]] = origin.popleft()
    return found


def _same(found: Placeholder) -> object:
    return found.text if found.kind is Kind.EXACT else re.sub(r"\D", "", found.text)
