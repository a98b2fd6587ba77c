"""Translates a document: which units, in which order, and with which results."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

from knnmt.documents.document import Document, State, Unit
from knnmt.documents.elements import joined, plain
from knnmt.documents.kept import Kept
from knnmt.documents.provenance import MemorySegment, Provenance, Provenances, UnitWarning
from knnmt.documents.review import Draft, ReviewRow, review_rows
from knnmt.protection.marked import Code, Marked, written
from knnmt.protection.tags import Tags, with_tags

_MAX_CODES = 1000
WINDOW = 256  # units that are translated and saved together
_HALF = re.compile(r"[\ud800-\udfff]")
_ADDRESS = re.compile(
    r"\s*+(?:[a-z]++://\S++|\S[^\s@]*+@\S[^\s.]*+\.\S++|[a-z0-9]++[._][a-z0-9_-]++(?:\.[a-z0-9_-]++)*)\s*+"
)  # or an identifier


class Translated(Protocol):
    """The fields of a `Translation` that are used here."""

    @property
    def text(self) -> str: ...
    @property
    def marked(self) -> Marked | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def match(self) -> Any: ...
    @property
    def coverage(self) -> Any: ...
    @property
    def certainty(self) -> int | None: ...
    @property
    def warnings(self) -> Sequence[Any]: ...


Translate = Callable[[Sequence[Marked], Sequence[str], Sequence[tuple[str, ...]]], Sequence[Translated]]
"""`Translator.translate_marked` with the settings of a call: texts, their contexts and their kinds."""


@dataclass(slots=True)
class Outcome:
    """A document with the results of its units.

    copied: units without words whose target is their source
    kept: units that were not to be translated
    fuzzy: how many of them need review
    failures: why units stayed untranslated, by id
    rows: of all units, sorted by what to look at first
    """

    data: bytes
    translated: int = 0
    copied: int = 0
    kept: int = 0
    fuzzy: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    rows: Sequence[ReviewRow] = ()


def to_translate(document: Document, retranslate: bool = False) -> list[Unit]:
    """The units without a translation; with `retranslate`, also those that need review."""
    states = {State.UNTRANSLATED, State.FUZZY} if retranslate else {State.UNTRANSLATED}
    return [unit for unit in document.units if unit.translatable and unit.state in states and _has_words(unit.source)]


def translate_document(
    document: Document,
    translate: Translate,
    kept: Kept,
    retranslate: bool = False,
    tags: Tags = "auto",
    progress: Callable[[int], None] = lambda _units: None,
    with_remarks: bool = False,
) -> Outcome:
    """Translate a document's units, and insert the translations. A unit that fails stays untranslated.

    with_remarks: write into the document where its translations came from, if the format has a place for it
    tags: what counts as a tag in text that the format does not treat as mark-up, such as in a PO catalog
    """
    units = to_translate(document, retranslate)
    copies = {unit.id: Draft(unit.source) for unit in _without_words(document)}
    fuzzy = 0 if retranslate else sum(unit.translatable and unit.state is State.FUZZY for unit in document.units)
    outcome = Outcome(b"", fuzzy=fuzzy)
    waiting = [unit for unit in units if unit.id not in kept.drafts]
    progress(len(units) - len(waiting))
    for window in _windows(waiting, WINDOW):
        fits = [unit for unit in window if not _refusal(unit, outcome)]
        sources = [_with_tags(unit.source, tags) for unit in fits]
        found = translate(sources, [unit.context for unit in fits], [unit.text_kinds for unit in fits])
        done: dict[str, Draft] = {}
        for unit, source, translation in zip(fits, sources, found, strict=True):
            if translation.error is not None:
                outcome.failures[unit.id] = translation.error
            else:
                target = translation.marked if translation.marked is not None else (translation.text,)
                done[unit.id] = Draft(_without_tags(target, {*source} - {*unit.source}), _provenance(translation))
        kept.add(done)
        progress(len(window))
    drafts = {unit.id: kept.drafts[unit.id] for unit in units if unit.id in kept.drafts}
    # In a document with one language, a text without words is its own translation already.
    inserted = drafts | copies if document.bilingual else drafts
    result = document.with_targets(
        {name: draft.target for name, draft in inserted.items()},
        Provenances({name: draft.provenance for name, draft in inserted.items()}, with_remarks),
    )
    outcome.data = result.data
    outcome.failures |= result.failures
    outcome.translated = sum(unit.id not in outcome.failures for unit in units)
    outcome.copied = sum(name not in outcome.failures for name in copies) if document.bilingual else 0
    outcome.kept = len(document.units) - len(units) - (len(copies) if document.bilingual else 0)
    outcome.rows = review_rows(document.units, drafts | copies, outcome.failures)
    return outcome


def _without_words(document: Document) -> list[Unit]:
    """The untranslated units that have nothing to translate: their target is their source."""
    return [
        unit
        for unit in document.units
        if unit.translatable
        and unit.state is State.UNTRANSLATED
        and written(unit.source).strip()
        and not _has_words(unit.source)
    ]


def _provenance(translation: Translated) -> Provenance:
    match, coverage = translation.match, translation.coverage
    return Provenance(
        translation.kind,
        None if match is None else MemorySegment(match.source, match.target, match.origin, match.score),
        None if coverage is None else coverage.covered,
        translation.certainty,
        tuple(UnitWarning(each.kind.__name__, each.message) for each in translation.warnings),
    )


def _refusal(unit: Unit, outcome: Outcome) -> bool:
    """Why a unit cannot be translated as text, or None; it is noted."""
    if sum(isinstance(part, Code) for part in unit.source) > _MAX_CODES:
        outcome.failures[unit.id] = f"it has more than {_MAX_CODES:,} inline codes"
    elif _HALF.search(plain(unit.source)):
        outcome.failures[unit.id] = "it has half of a surrogate pair, which is not a character"
    return unit.id in outcome.failures


def _with_tags(text: Marked, tags: Tags) -> Marked:
    """A text whose tags are codes, too, in pairs that contain no other code."""
    parts: list[str | Code] = []
    pairs = max((part.pair or 0 for part in text if isinstance(part, Code)), default=0) + 1
    for part in text:
        if isinstance(part, Code):
            parts.append(part)
            continue
        cut = with_tags(part, tags)
        parts += [
            replace(each, pair=pairs + each.pair) if isinstance(each, Code) and each.pair is not None else each
            for each in cut
        ]
        pairs += sum(isinstance(each, Code) for each in cut) + 1
    return tuple(parts)


def _without_tags(target: Marked, made: Collection[str | Code]) -> Marked:
    """A translation in which codes that were made from text are text again."""
    return joined(part.raw if isinstance(part, Code) and part in made else part for part in target)


def _has_words(text: Marked) -> bool:
    words = plain(text)
    return any(each.isalpha() for each in words) and not _ADDRESS.fullmatch(words)


def _windows(units: Iterable[Unit], size: int) -> Iterator[list[Unit]]:
    remaining = iter(units)
    while window := list(islice(remaining, size)):
        yield window
