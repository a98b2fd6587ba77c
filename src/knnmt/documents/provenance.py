"""Where the translation of a unit came from, as its reviewer and the document are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

REMARK = "knnmt: "
"""The beginning of what knnmt writes for people into a document. A later run replaces it."""


@dataclass(frozen=True, slots=True)
class MemorySegment:
    """A segment of the memory. score: the similarity of its source to the unit's, in percent"""

    source: str
    target: str
    origin: str
    score: int


@dataclass(frozen=True, slots=True)
class UnitWarning:
    """A warning about a translation. kind: the name of the warning's class"""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the translation of a unit came from, and how much of it a reviewer is likely to keep.

    kind: as in `Translation`; None if there was nothing to translate
    match: of a match, the memory's segment; of other translations on request, the most similar segment
    covered: the share of the source that the memory's segments cover, 0 to 1, if search is by segment
    certainty: 0 to 100, if the store was tuned
    """

    kind: str | None = None
    match: MemorySegment | None = None
    covered: float | None = None
    certainty: int | None = None
    warnings: tuple[UnitWarning, ...] = ()

    @property
    def is_match(self) -> bool:
        """Whether the translation is the memory's own, perhaps with other numbers and placeholders."""
        return self.kind in ("exact match", "repaired match")

    @property
    def remark(self) -> str:
        """One line for people, without line ends."""
        parts = [self.kind or "copied"]
        if self.match is not None and self.kind != "exact match":
            parts.append(f"{'match' if self.is_match else 'closest match'} {self.match.score}%")
        if self.certainty is not None:
            parts.append(f"certainty {self.certainty}%")
        parts += [f"warning: {each.message}" for each in self.warnings]
        return REMARK + " ".join("; ".join(parts).split())


UNKNOWN = Provenance()


@dataclass(frozen=True, slots=True)
class Provenances:
    """The provenance of new targets, by unit id.

    with_remarks: whether a document also gets remarks for people and the memory's segments, where its format has a
        place for them, and not only the attributes of its targets
    """

    of_units: Mapping[str, Provenance] = field(default_factory=dict)
    with_remarks: bool = False

    def __getitem__(self, unit: str) -> Provenance:
        return self.of_units.get(unit, UNKNOWN)

    def remarks(self, units: list[str]) -> list[str]:
        """The remarks about these units, without repetitions; none if they are not requested."""
        return list(dict.fromkeys(self[unit].remark for unit in units)) if self.with_remarks else []


NOTHING_KNOWN = Provenances()
