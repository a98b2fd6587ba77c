"""Streams XLIFF 1.2 (including SDLXLIFF) and 2.x: one pair for each finished segment."""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader
from typing import TYPE_CHECKING

from knnmt.corpus.inline import InlineRules, segment_texts
from knnmt.corpus.languages import direction
from knnmt.corpus.markup import local_name, read_units
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.report import ReadingReport, UnitError
from knnmt.corpus.xliff_segments import XliffSegment, codes_of_header, context_of, count_ignorables, segments_of

if TYPE_CHECKING:
    from lxml import etree

_PAIRED, _ALONE = frozenset({"bx", "ex", "bpt", "ept", "it", "sc", "ec"}), frozenset({"x", "ph"})
_UNITS = ("trans-unit", "unit")


def read_xliff(
    stream: BufferedReader, name: str, config: ReadingConfig, report: ReadingReport
) -> Iterator[SegmentPair]:
    """Pairs of an XLIFF file in the requested languages, in the same or the opposite direction.

    A language that the file does not state fits the request. A target without a state counts as translated.
    """
    ordinal = 0
    codes: dict[str, str] = {}
    for element in read_units(stream, name, "xliff", _UNITS, ("group", "header", "file"), config, report):
        if local_name(element) == "header":
            codes = codes_of_header(element)
        elif local_name(element) in _UNITS:
            ordinal += 1
            yield from _unit_pairs(element, ordinal, name, codes, config, report)


def xliff_languages(stream: BufferedReader, name: str, config: ReadingConfig) -> tuple[str | None, str | None]:
    """The source and target language that the file states for its first unit; None if it does not."""
    first = next(read_units(stream, name, "xliff", _UNITS, (), config, ReadingReport()), None)
    return (None, None) if first is None else _stated_languages(first)


def _unit_pairs(
    unit: etree._Element,
    ordinal: int,
    name: str,
    codes: dict[str, str],
    config: ReadingConfig,
    report: ReadingReport,
) -> Iterator[SegmentPair]:
    identifier = unit.get("id") or f"unit{ordinal}"
    place = f"{name}, line {unit.sourceline}, unit {identifier}"
    try:
        segments = segments_of(unit)
    except UnitError as error:
        report.problem(place, str(error), config)
        return
    if _untranslatable(unit):
        report.skip('marked translate="no"', len(segments))
        return
    reason, swapped = _direction(unit, config, report)
    if reason:
        report.skip(reason, len(segments))
        return
    if ignorables := count_ignorables(unit):
        report.skip("ignorable", ignorables)
    rules = InlineRules(_PAIRED, _ALONE, config.inline == "keep")
    unit_origin = f"{name}#{_file_name(unit)}/{identifier}"
    context = context_of(unit)
    for segment in segments:
        try:
            sides = _sides(segment, rules, codes, config, report)
        except UnitError as error:
            report.problem(place, str(error), config)
            continue
        if sides is None:
            continue
        source, target = reversed(sides) if swapped else sides
        origin = f"{unit_origin}/{segment.identifier}" if segment.identifier else unit_origin
        if pair := report.admit(source, target, origin, context):
            yield pair


def _sides(
    segment: XliffSegment, rules: InlineRules, codes: dict[str, str], config: ReadingConfig, report: ReadingReport
) -> tuple[str, str] | None:
    """Source and target as the file has them; None, and counted, if the segment is not accepted."""
    if segment.source is None:
        report.skip("target segment without source")
        return None
    source, target = "", ""
    if segment.target is not None:
        source, target = segment_texts(segment.source, segment.target, rules, segment.codes, codes)
    if not target.strip():
        report.skip("untranslated")
        return None
    if segment.state is None:
        report.note("target without state, taken as translated")
    elif not segment.finished:
        if not config.unfinished:
            report.skip(f"state {segment.state}")
            return None
        report.note(f"state {segment.state}, included on request")
    return source, target


def _direction(unit: etree._Element, config: ReadingConfig, report: ReadingReport) -> tuple[str | None, bool]:
    """The reason if the unit's languages exclude it, and whether its sides are swapped."""
    source, target = _stated_languages(unit)
    way = direction(config.languages, source, target)
    described = f"{source or 'unstated'} to {target or 'unstated'}"
    if way is None:
        return f"file is {described}", False
    if source is None or target is None:
        report.note(f"file is {described}, included on request")
    if way == "swapped":
        report.note(f"file is {described}, sides swapped")
    return None, way == "swapped"


def _stated_languages(unit: etree._Element) -> tuple[str | None, str | None]:
    """The source and target language that the elements around a unit state; None if they do not."""
    found: dict[str, str | None] = {"source": None, "target": None}
    for ancestor in unit.iterancestors():
        for side, short in (("source", "src"), ("target", "trg")):
            found[side] = found[side] or ancestor.get(f"{side}-language") or ancestor.get(f"{short}Lang")
    return found["source"], found["target"]


def _untranslatable(unit: etree._Element) -> bool:
    """Whether the nearest element with such a statement says that the unit is not to be translated."""
    for element in (unit, *unit.iterancestors()):
        if answer := element.get("translate"):
            return answer == "no"
    return False


def _file_name(unit: etree._Element) -> str:
    for ancestor in unit.iterancestors():
        if local_name(ancestor) == "file":
            return ancestor.get("original") or ancestor.get("id") or "file"
    return "file"
