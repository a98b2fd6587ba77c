"""What all documents have in common: units in, targets out, the rest untouched.

A format finds its units, and says which characters a target replaces. It never writes a file from a parsed form,
because the output of a parser differs from the original.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from knnmt.corpus.report import UnitError
from knnmt.documents.content import Content, Edit
from knnmt.documents.provenance import NOTHING_KNOWN, Provenances
from knnmt.protection.marked import Marked

_ID_CHARACTERS = 200  # at the beginning and at the end of an id


class State(Enum):
    """The state of a unit."""

    UNTRANSLATED = "untranslated"
    FUZZY = "fuzzy"  # translated, but needs review
    TRANSLATED = "translated"


@dataclass(frozen=True, slots=True)
class Unit:
    """Something to translate.

    id: unique in its document, and the same when the document is opened again
    context: distinguishes it from others with the same text; a memory made from the document keeps it as its context
    translatable: False if the document says that it must not be translated
    text_kinds: what decides which placeholders count: the format of the document, unless the document itself says more
    """

    id: str
    source: Marked
    target: Marked | None = None
    state: State = State.UNTRANSLATED
    context: str = ""
    translatable: bool = True
    text_kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """A document with targets. failures: why units stayed untranslated, by id"""

    data: bytes
    failures: dict[str, str] = field(default_factory=dict)


class Document(ABC):
    """An open document.

    languages: source and target as the document states them; None if it does not
    ignores_languages: whether it is translated whatever it states, and whatever its texts look like
    """

    ignores_languages = False
    format: ClassVar[str]
    bilingual: ClassVar[bool]
    """Whether a unit has a source and a target. If not, a target replaces its source."""

    def __init__(self, units: Iterable[Unit], languages: tuple[str | None, str | None] = (None, None)) -> None:
        self.units = tuple(
            unit if unit.text_kinds else replace(unit, text_kinds=(self.format,)) for unit in _distinct(units)
        )
        self.languages = languages

    @abstractmethod
    def with_targets(self, targets: Mapping[str, Marked], provenances: Provenances = NOTHING_KNOWN) -> Written:
        """The document with these targets, by unit id, marked as machine translations if the format allows it.

        provenances: where they came from, for formats that have a place for it
        """


class TextDocument(Document):
    """A document whose targets are written into its text."""

    def __init__(
        self, content: Content, units: Iterable[Unit], languages: tuple[str | None, str | None] = (None, None)
    ) -> None:
        super().__init__(units, languages)
        self.content = content

    def with_targets(self, targets: Mapping[str, Marked], provenances: Provenances = NOTHING_KNOWN) -> Written:
        units = {unit.id: unit for unit in self.units}
        written, failures = {}, {}
        for name, target in targets.items():
            try:
                written[name] = self.written(units[name], target)
                self.content.require(written[name])
            except UnitError as error:
                written.pop(name, None)
                failures[name] = str(error)
        return Written(self.content.replaced(self.edits(written, provenances)), failures)

    @abstractmethod
    def written(self, unit: Unit, target: Marked, /) -> str:
        """A target as it is written in the document; `UnitError` if it cannot be written."""

    @abstractmethod
    def edits(self, targets: Mapping[str, str], provenances: Provenances, /) -> Iterable[Edit]:
        """The edits for these targets, as `written` returned them."""


class Replacing(TextDocument):
    """A document in which targets replace their sources.

    found: the units, each with the span of its characters
    """

    bilingual = False

    def __init__(
        self,
        content: Content,
        found: Iterable[tuple[Unit, tuple[int, int]]],
        languages: tuple[str | None, str | None] = (None, None),
    ) -> None:
        units = list(found)
        super().__init__(content, (unit for unit, _ in units), languages)
        self.places = {unit.id: place for unit, (_, place) in zip(self.units, units, strict=True)}

    def edits(self, targets: Mapping[str, str], _provenances: Provenances, /) -> Iterable[Edit]:
        return (Edit(*self.places[name], text) for name, text in targets.items())


def short_id(name: str) -> str:
    """A unit's id, or the part of it that many units share, without its middle if it is very long."""
    name = without_halves(name)
    return name if len(name) <= 2 * _ID_CHARACTERS else f"{name[:_ID_CHARACTERS]}…{name[-_ID_CHARACTERS:]}"


def without_halves(text: str) -> str:
    """A text with halves of surrogate pairs written out, which JSON and YAML can have, but UTF-8 cannot."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _distinct(units: Iterable[Unit]) -> Iterable[Unit]:
    """The same units with numbers after repeated ids: files may repeat what should be unique."""
    seen: Counter[str] = Counter()
    for unit in units:
        seen[unit.id] += 1
        yield unit if seen[unit.id] == 1 else replace(unit, id=f"{unit.id}~{seen[unit.id]}")
