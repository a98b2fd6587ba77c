"""What a reviewer needs to know about the units of a translated document, and which unit to look at first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from knnmt.documents.document import State, Unit, without_halves
from knnmt.documents.provenance import UNKNOWN, Provenance
from knnmt.protection.marked import Marked, read

RowState = Literal["failed", "new", "fuzzy", "finished"]
_STATES: dict[State, RowState] = {State.FUZZY: "fuzzy", State.TRANSLATED: "finished"}
_URGENCY: dict[RowState, int] = {"failed": 0, "new": 1, "fuzzy": 2, "finished": 3}


@dataclass(frozen=True, slots=True)
class Draft:
    """A translation that was made for a unit."""

    target: Marked
    provenance: Provenance = UNKNOWN


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """A unit of a translated document, for its reviewer.

    unit: its id
    state: "new" if it was translated now, "failed" if that was not possible, "fuzzy" or "finished" if it had a
        translation before
    text: its translation
    error: why it failed
    """

    unit: str
    state: RowState
    source: str
    text: str
    provenance: Provenance = UNKNOWN
    error: str | None = None

    def as_json(self) -> dict[str, object]:
        """The row as JSON, with the names of `knnmt translate --jsonl`, without fields that have no value."""
        about = self.provenance
        match = about.match
        optional = {
            "match": match and {name: getattr(match, name) for name in ("source", "target", "origin", "score")},
            "coverage": None if about.covered is None else {"covered": round(about.covered, 4)},
            "certainty": about.certainty,
            "warnings": [{"kind": each.kind, "message": each.message} for each in about.warnings] or None,
            "error": self.error,
        }
        always = {"unit": self.unit, "state": self.state, "kind": about.kind, "source": self.source, "text": self.text}
        return always | {name: value for name, value in optional.items() if value is not None}


def review_rows(units: Iterable[Unit], drafts: Mapping[str, Draft], failures: Mapping[str, str]) -> list[ReviewRow]:
    """A row for every unit that may be translated and has text, sorted by what to look at first.

    Units that failed come first, then those with warnings, the least certain ones, and those that the memory knows
    least. Units that had a translation before come last.
    """
    rows = (_row(unit, drafts.get(unit.id), failures.get(unit.id)) for unit in units if unit.translatable)
    return sorted((row for row in rows if row is not None and row.source.strip()), key=_order)


def _row(unit: Unit, draft: Draft | None, failure: str | None) -> ReviewRow | None:
    source = without_halves(read(unit.source))
    if failure is not None:
        return ReviewRow(unit.id, "failed", source, "", error=failure)
    if draft is not None:
        return ReviewRow(unit.id, "new", source, read(draft.target), draft.provenance)
    state = _STATES.get(unit.state)
    return None if state is None else ReviewRow(unit.id, state, source, without_halves(read(unit.target or ())))


def _order(row: ReviewRow) -> tuple[float, ...]:
    about = row.provenance
    certainty = -1 if about.certainty is None else about.certainty
    score = about.match.score if about.match is not None else 0
    nothing_to_translate = about.kind is None
    return _URGENCY[row.state], not about.warnings, nothing_to_translate, certainty, about.covered or 0.0, score
