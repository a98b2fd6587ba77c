"""XLIFF 1.2, with the extensions of Trados (SDLXLIFF) and memoQ (MQXLIFF), and XLIFF 2.x."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from knnmt.corpus.xliff_segments import (
    FINISHED_1,
    FINISHED_2,
    FINISHED_MEMOQ,
    FINISHED_TRADOS,
    MACHINE_SUBSTATE,
    PLACES,
)
from knnmt.documents.content import Content, Edit
from knnmt.documents.document import Document, State, TextDocument, Unit, short_id
from knnmt.documents.elements import Kind, as_markup, marked_text, plain
from knnmt.documents.markup import Element, marked_start, parse, with_content, xml_content
from knnmt.documents.provenance import Provenance, Provenances
from knnmt.documents.xliff_remarks import former_remarks_1, remarks_1, remarks_2, separator
from knnmt.errors import MalformedDocumentError
from knnmt.protection.marked import Marked

_UNTOUCHED = frozenset({"new", "needs-translation"})
_OF_ONE_TAG = {"bx": Kind.OPENING, "ex": Kind.CLOSING, "bpt": Kind.OPENING, "ept": Kind.CLOSING}
_OF_2 = {"sc": Kind.OPENING, "ec": Kind.CLOSING, "sm": Kind.OPENING, "em": Kind.CLOSING}


def open_xliff(data: bytes, name: str) -> Document:
    """A document of either version."""
    content = xml_content(data, name)
    root = parse(content, "xliff")
    version = root.attributes.get("version", "")
    if version.startswith("2"):
        return Xliff2(content, root)
    if version.startswith("1"):
        return Xliff1(content, root)
    raise MalformedDocumentError(f"{name}: expected XLIFF of version 1 or 2, found version {version!r}")


@dataclass(slots=True)
class _TransUnit:
    """A <trans-unit> with its parts.

    segments, targets: the marks in seg-source and in the target by their mid; empty without segments
    """

    element: Element
    source: Element
    target: Element | None
    context: str
    segmented: Element | None = None
    segments: dict[str, Element] = field(default_factory=dict)
    targets: dict[str, Element] = field(default_factory=dict)
    definitions: dict[str, Element] = field(default_factory=dict)
    units: dict[str | None, str] = field(default_factory=dict)


class Xliff1(TextDocument):
    """XLIFF 1.2. Targets get state="needs-review-translation" and a state-qualifier: "mt-suggestion", or for a match of
    the memory "exact-match" or "fuzzy-match".

    In files of Trados, the segment's definition gets conf="Draft", origin="mt" or "tm", and the percent of a match
    instead; in those of memoQ, the unit also gets mq:status="PartiallyEdited" and the mq:percent of a match.
    """

    format = "xliff"
    bilingual = True

    def __init__(self, content: Content, root: Element) -> None:
        self._trans_units: list[_TransUnit] = []
        found = list(self._units(content, root))
        files = [each for each in root.walk() if each.local == "file"]
        languages = [_one(content.name, side, files) for side in ("source", "target")]
        super().__init__(content, (unit for _, _, unit in found), (languages[0], languages[1]))
        for (whole, segment, _), unit in zip(found, self.units, strict=True):
            whole.units[segment] = unit.id

    def _units(self, content: Content, root: Element) -> Iterator[tuple[_TransUnit, str | None, Unit]]:
        several = len(list(root.each("file"))) > 1
        for number, element in enumerate((each for each in root.walk() if each.local == "trans-unit"), 1):
            source = element.child("source")
            if source is None:
                line = content.line_number(element.start)
                raise MalformedDocumentError(f"{content.name}, line {line}: expected a <source>, found none")
            target, context = element.child("target"), _context(content, element)
            whole = _TransUnit(element, source, target, context, element.child("seg-source"))
            if whole.segmented is not None and not _is_unsegmented(content, target):
                whole.segments = _marks(whole.segmented)
                whole.targets = _marks(target) if target is not None else {}
            whole.definitions = {
                each.attributes.get("id", ""): each for each in element.walk() if each.name == "sdl:seg"
            }
            self._trans_units.append(whole)
            name = _name(element, element.attributes.get("id") or f"unit {number}", several)
            for segment in whole.segments or (None,):
                yield whole, segment, _unit_1(content, whole, segment, name)

    def written(self, _unit: Unit, target: Marked, /) -> str:
        return as_markup(target, self.content)

    def edits(self, targets: Mapping[str, str], provenances: Provenances, /) -> Iterable[Edit]:
        for whole in self._trans_units:
            names = {segment: name for segment, name in whole.units.items() if name in targets}
            if names:
                given = {segment: targets[name] for segment, name in names.items()}
                about = {segment: provenances[name] for segment, name in names.items()}
                yield from self._unit_edits(whole, given, about, provenances.with_remarks)

    def _unit_edits(
        self,
        whole: _TransUnit,
        given: Mapping[str | None, str],
        about: Mapping[str | None, Provenance],
        with_remarks: bool,
    ) -> Iterator[Edit]:
        content, target = self.content, whole.target
        marks = whole.targets
        status = {"state": "needs-review-translation", "state_qualifier": _qualifier(about.values())}
        of_a_tool = bool(whole.definitions) or "mq:status" in whole.element.attributes
        after = ""
        if with_remarks and not of_a_tool:
            between = separator(content, target if target is not None else whole.source)
            after = "".join(between + each for each in remarks_1(whole.element, about))
        if whole.definitions:
            status = {}
        if whole.segments and marks.keys() >= {each for each in given if each is not None} and target is not None:
            yield from (with_content(content, marks[name], text) for name, text in given.items() if name is not None)
            if status:
                yield marked_start(content, target, **status)
            yield Edit(target.end, target.end, after)
        else:
            inside = _built(content, whole, given) if whole.segments else given[None]
            if target is not None:
                yield with_content(content, target, inside, **status)
                yield Edit(target.end, target.end, after)
            else:
                yield _new_target(content, whole.segmented or whole.source, inside, status, after)
        if not of_a_tool:
            yield from former_remarks_1(content, whole.element, given)
        for segment in given:
            if definition := whole.definitions.get(segment or ""):
                origin = "tm" if about[segment].is_match else "mt"
                percent = _percent(definition, "percent", [about[segment]])
                yield marked_start(content, definition, conf="Draft", origin=origin, **percent)
        if "mq:status" in whole.element.attributes:
            percent = _percent(whole.element, "mq:percent", about.values())
            yield marked_start(content, whole.element, mq__status="PartiallyEdited", **percent)


def _qualifier(about: Iterable[Provenance]) -> str:
    """The state-qualifier of a target, whose segments may have come from several places."""
    kinds = {each.kind for each in about}
    if kinds == {"exact match"}:
        return "exact-match"
    return "fuzzy-match" if kinds <= {"exact match", "repaired match"} else "mt-suggestion"


def _percent(element: Element, attribute: str, about: Iterable[Provenance]) -> dict[str, str]:
    """The score of a match as an attribute. Without a match it is 0 if the element has the attribute."""
    scores = [each.match.score if each.match is not None and each.is_match else 0 for each in about]
    lowest = min(scores)
    return {attribute.replace(":", "__"): str(lowest)} if lowest or attribute in element.attributes else {}


def _is_unsegmented(content: Content, target: Element | None) -> bool:
    """Whether a target has text and no segments, whatever its source has."""
    return target is not None and not _marks(target) and bool(plain(marked_text(content, target, _rule_1)).strip())


def _unit_1(content: Content, whole: _TransUnit, segment: str | None, name: str) -> Unit:
    source: Element = whole.source
    target = whole.target
    if segment is not None:
        source = whole.segments[segment]
        target = whole.targets.get(segment)
        name = f"{name}/{short_id(segment)}"
    original = marked_text(content, source, _rule_1)
    translation = marked_text(content, target, _rule_1) if target is not None else None
    return Unit(
        name,
        original,
        translation or None,
        _state_1(whole, segment, original, plain(translation)),
        whole.context,
        _is_translatable(whole.element) and not _is_locked(whole, segment),
    )


def _state_1(whole: _TransUnit, segment: str | None, source: Marked, target: str) -> State:
    if not target.strip():
        return State.UNTRANSLATED
    if (definition := whole.definitions.get(segment or "")) is not None:
        if definition.attributes.get("conf") in FINISHED_TRADOS:
            return State.TRANSLATED
        return State.UNTRANSLATED if target == plain(source) else State.FUZZY  # tools copy the source there
    if (status := whole.element.attributes.get("mq:status")) is not None:
        if status == "NotStarted":
            return State.UNTRANSLATED
        return State.TRANSLATED if status in FINISHED_MEMOQ else State.FUZZY
    state = whole.target.attributes.get("state") if whole.target is not None else None
    if whole.element.attributes.get("approved") == "yes" or state is None or state in FINISHED_1:
        return State.TRANSLATED
    return State.UNTRANSLATED if state in _UNTOUCHED else State.FUZZY


def _is_locked(whole: _TransUnit, segment: str | None) -> bool:
    definition = whole.definitions.get(segment or "")
    locked = definition is not None and definition.attributes.get("locked") == "true"
    return locked or whole.element.attributes.get("mq:locked", "no") not in ("no", "false")


def _built(content: Content, whole: _TransUnit, given: Mapping[str | None, str]) -> str:
    """A target like seg-source, with the given segments, those of the old target, and the others empty."""
    assert whole.segmented is not None  # noqa: S101 - there are segments
    old, edits = whole.targets, []
    for name, mark in whole.segments.items():
        before = content.text[old[name].inside : old[name].inside_end] if name in old else ""
        edits.append((mark.inside, mark.inside_end, given.get(name, before)))
    text, place = "", whole.segmented.inside
    for start, end, inside in edits:
        text += content.text[place:start] + inside
        place = end
    return text + content.text[place : whole.segmented.inside_end]


def _new_target(content: Content, after: Element, inside: str, status: Mapping[str, str], more: str = "") -> Edit:
    """A <target> after an element, on its own line if the element is. more: what comes after it"""
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in status.items())
    target = f"<{after.prefix}target{attributes}>{inside}</{after.prefix}target>"
    return Edit(after.end, after.end, f"{separator(content, after)}{target}{more}")


def _marks(element: Element) -> dict[str, Element]:
    """Segments by their mid, in the order of the text."""
    marks = [each for each in element.walk() if each.local == "mrk" and each.attributes.get("mtype") == "seg"]
    return {mark.attributes.get("mid") or str(number): mark for number, mark in enumerate(marks, 1)}


def _rule_1(element: Element) -> tuple[Kind, str | None]:
    if element.local in ("g", "mrk"):
        return Kind.AROUND, None
    if element.local == "it":
        return {"open": Kind.OPENING, "close": Kind.CLOSING}.get(element.attributes.get("pos", ""), Kind.ALONE), None
    shared = element.attributes.get("rid") or element.attributes.get("id")
    return _OF_ONE_TAG.get(element.local, Kind.ALONE), shared


class Xliff2(TextDocument):
    """XLIFF 2.x. Targets get state="translated", which precedes "reviewed", and a sub-state of knnmt."""

    format = "xliff"
    bilingual = True

    def __init__(self, content: Content, root: Element) -> None:
        self._segments: dict[str, Element] = {}
        found = list(self._units(content, root))
        languages = root.attributes.get("srcLang"), root.attributes.get("trgLang")
        super().__init__(content, (unit for _, unit in found), languages)
        for (segment, _), unit in zip(found, self.units, strict=True):
            self._segments[unit.id] = segment

    def _units(self, content: Content, root: Element) -> Iterator[tuple[Element, Unit]]:
        several = len(list(root.each("file"))) > 1
        for element in root.walk():
            if element.local != "unit":
                continue
            segments, context = list(element.each("segment")), _context(content, element)
            for number, segment in enumerate(segments, 1):
                name = _name(element, element.attributes.get("id", ""), several)
                if len(segments) > 1:
                    name += f"/{short_id(segment.attributes.get('id') or str(number))}"
                yield segment, _unit_2(content, element, segment, name, context)

    def written(self, _unit: Unit, target: Marked, /) -> str:
        return as_markup(target, self.content)

    def edits(self, targets: Mapping[str, str], provenances: Provenances, /) -> Iterable[Edit]:
        units: dict[Element, dict[str, Provenance]] = {}
        names: dict[Element, dict[Element, str]] = {}
        for name, text in targets.items():
            segment = self._segments[name]
            target, source, unit = segment.child("target"), segment.child("source"), segment.parent
            assert source is not None  # noqa: S101 - looked for when the document was opened
            assert unit is not None  # noqa: S101 - the segments are those of a unit
            if target is not None:
                yield with_content(self.content, target, text)
            else:
                yield _new_target(self.content, source, text, {})
            identified: dict[str, str] = {}
            if provenances.with_remarks:
                if unit not in names:
                    names[unit] = _segment_ids(unit)
                named = names[unit][segment]
                identified = {} if "id" in segment.attributes else {"id": named}
                units.setdefault(unit, {})[named] = provenances[name]
            yield marked_start(self.content, segment, **identified, state="translated", subState=MACHINE_SUBSTATE)
        for unit, about in units.items():
            yield from remarks_2(self.content, unit, about)


def _segment_ids(unit: Element) -> dict[Element, str]:
    """The ids of a unit's segments; those without one get a free one, so that candidates can refer to them."""
    taken = {each.attributes.get("id") for each in unit.walk()}
    ids = {}
    for number, segment in enumerate(unit.each("segment"), 1):
        free = f"s{number}"
        while free in taken:
            free += "_"
        ids[segment] = segment.attributes.get("id") or free
    return ids


def _unit_2(content: Content, unit: Element, segment: Element, name: str, context: str) -> Unit:
    source, target = segment.child("source"), segment.child("target")
    if source is None:
        line = content.line_number(segment.start)
        raise MalformedDocumentError(f"{content.name}, line {line}: expected a <source> in the segment, found none")
    original = marked_text(content, source, _rule_2)
    translation = marked_text(content, target, _rule_2) if target is not None else None
    state = segment.attributes.get("state")
    by_machine = segment.attributes.get("subState") == MACHINE_SUBSTATE
    is_copy = state == "initial" and plain(translation) == plain(original)
    if not plain(translation).strip() or is_copy:
        found = State.UNTRANSLATED
    else:
        finished = state is None or (state in FINISHED_2 and not by_machine)
        found = State.TRANSLATED if finished else State.FUZZY
    return Unit(
        name,
        original,
        translation or None,
        found,
        context,
        _is_translatable(unit),
    )


def _rule_2(element: Element) -> tuple[Kind, str | None]:
    if element.local in ("pc", "mrk"):
        return Kind.AROUND, None
    kind = _OF_2.get(element.local, Kind.ALONE)
    opened = element.attributes.get("startRef") if kind is Kind.CLOSING else element.attributes.get("id")
    return kind, opened


def _name(unit: Element, own: str, several: bool) -> str:
    """The unit's id, after its file's id if there are several files."""
    file = next((each.attributes for each in unit.around() if each.local == "file"), {}) if several else {}
    stated = file.get("original") or file.get("id")
    return f"{short_id(stated)}/{short_id(own)}" if stated else short_id(own)


def _is_translatable(unit: Element) -> bool:
    """The setting of the nearest element that has one."""
    return (
        next((each.attributes["translate"] for each in unit.around() if "translate" in each.attributes), "yes") != "no"
    )


def _context(content: Content, unit: Element) -> str:
    """The context, as `knnmt.corpus.xliff_segments.context_of` reads it in memories."""
    said = [unit.attributes.get("name" if unit.local == "unit" else "resname", "")]
    for group in unit.each("context-group"):
        contexts = (each for each in group.each("context") if each.attributes.get("context-type") not in PLACES)
        said += [plain(marked_text(content, each, _rule_1)) for each in contexts]
    return "\n".join(text.strip() for text in said if text.strip())


def _one(name: str, side: str, files: Iterable[Element]) -> str | None:
    """The language that all files of a document state; None if they state none."""
    stated = {language for file in files if (language := file.attributes.get(f"{side}-language"))}
    if len(stated) > 1:
        raise MalformedDocumentError(
            f"{name}: expected one {side} language, found {', '.join(sorted(stated))}. Put each in its own document"
        )
    return next(iter(stated), None)
