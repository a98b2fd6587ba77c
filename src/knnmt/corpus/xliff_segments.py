"""Segments of XLIFF units and their states, for version 1.2 with the SDL dialect and versions 2.x."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from knnmt.corpus.markup import local_name
from knnmt.corpus.report import UnitError

if TYPE_CHECKING:
    from lxml import etree

FINISHED_1 = frozenset({"translated", "final", "signed-off"})
FINISHED_2 = frozenset({"translated", "reviewed", "final"})
MACHINE_SUBSTATE = "knnmt:mt-suggestion"  # marks translations that `knnmt translate` adds, for people to review
FINISHED_TRADOS = frozenset({"Translated", "ApprovedTranslation", "ApprovedSignOff"})
FINISHED_MEMOQ = frozenset({"ManuallyConfirmed", "ConfirmedTranslator", "ConfirmedReviewer1", "Proofread"})
PLACES = frozenset({"sourcefile", "linenumber"})  # contexts that give the place of the text, not its use
_SDL = "{http://sdl.com/FileTypes/SdlXliff/1.0}"
_MEMOQ = "{MQXliff}"


@dataclass(frozen=True, slots=True)
class XliffSegment:
    """A source with its target; one of them may be missing. `state` is None if the file states none."""

    source: etree._Element | None
    target: etree._Element | None
    identifier: str | None = None
    state: str | None = None
    finished: bool = False
    codes: Mapping[str, str] = field(default_factory=dict)


def segments_of(unit: etree._Element) -> list[XliffSegment]:
    """Segments of a <trans-unit> (1.2) or <unit> (2.x)."""
    return list(_segments_2(unit) if local_name(unit) == "unit" else _segments_1(unit))


def codes_of_header(header: etree._Element) -> dict[str, str]:
    """The single codes that Trados describes in the file's header, by their ids."""
    return {tag.get("id", ""): tag.findtext(f"{_SDL}ph") or "" for tag in header.iter(f"{_SDL}tag")}


def count_ignorables(unit: etree._Element) -> int:
    """The number of parts between segments of a <unit> (2.x), which have nothing to translate."""
    return len(unit.findall(_in_namespace(unit, "ignorable")))


def context_of(unit: etree._Element) -> str:
    """A unit's description of where its text is used: its name (resname in 1.2), then its contexts, one per line."""
    said = [unit.get("name") if local_name(unit) == "unit" else unit.get("resname")]
    for group in unit.findall(_in_namespace(unit, "context-group")):
        contexts = group.findall(_in_namespace(unit, "context"))
        said += [context.text for context in contexts if context.get("context-type") not in PLACES]
    return "\n".join(text.strip() for text in said if text and text.strip())


def _in_namespace(element: etree._Element, name: str) -> str:
    """The name in the element's own namespace, so that elements of extensions are not confused with XLIFF's."""
    return element.tag.removesuffix(local_name(element)) + name


def _child(element: etree._Element, name: str) -> etree._Element | None:
    return element.find(_in_namespace(element, name))


def _segments_1(unit: etree._Element) -> Iterator[XliffSegment]:
    source, target = _child(unit, "source"), _child(unit, "target")
    if source is None:
        raise UnitError("expected a <source>, found none")
    state = target.get("state") if target is not None else None
    finished_states = FINISHED_1
    if status := unit.get(f"{_MEMOQ}status"):
        state, finished_states = status, FINISHED_MEMOQ
    elif unit.get("approved") == "yes":
        state = "final"
    sources = _marked(_child(unit, "seg-source"))
    targets = _marked(target)
    if not sources or (target is not None and not targets and "".join(map(str, target.itertext())).strip()):
        yield XliffSegment(source, target, state=state, finished=state in finished_states)
        return
    definitions = {seg.get("id", ""): seg.get("conf", "unspecified") for seg in unit.iter(f"{_SDL}seg")}
    for identifier, segment in sources.items():
        confirmed = definitions.get(identifier)
        yield XliffSegment(
            segment,
            targets.get(identifier),
            identifier,
            confirmed or state,
            finished=confirmed in FINISHED_TRADOS if confirmed else state in finished_states,
        )
    for identifier in targets.keys() - sources.keys():
        yield XliffSegment(None, targets[identifier], identifier)


def _marked(element: etree._Element | None) -> dict[str, etree._Element]:
    """Segment marks by their identifier, in the order of the text."""
    if element is None:
        return {}
    marks = [mark for mark in element.iter(_in_namespace(element, "mrk")) if mark.get("mtype") == "seg"]
    named = {mark.get("mid") or str(ordinal): mark for ordinal, mark in enumerate(marks, start=1)}
    if len(named) < len(marks):
        raise UnitError('expected <mrk mtype="seg"> with different mid, found the same one twice')
    return named


def _segments_2(unit: etree._Element) -> Iterator[XliffSegment]:
    segments = unit.findall(_in_namespace(unit, "segment"))
    if not segments:
        raise UnitError("expected a <segment>, found none")
    original = _child(unit, "originalData")
    codes = {data.get("id", ""): data.text or "" for data in original} if original is not None else {}
    for ordinal, segment in enumerate(segments, start=1):
        source = _child(segment, "source")
        if source is None:
            raise UnitError("expected a <source> in every <segment>, found one without")
        state = segment.get("state")
        yield XliffSegment(
            source,
            _child(segment, "target"),
            (segment.get("id") or str(ordinal)) if len(segments) > 1 else None,
            state,
            finished=state in FINISHED_2 and segment.get("subState") != MACHINE_SUBSTATE,
            codes=codes,
        )
