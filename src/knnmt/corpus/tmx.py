"""Streams TMX 1.4: one pair for each unit, in the requested languages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BufferedReader
from itertools import islice
from typing import TYPE_CHECKING

from knnmt.corpus.inline import InlineRules, segment_texts
from knnmt.corpus.languages import match_rank, matches, normalise
from knnmt.corpus.markup import local_name, read_units
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.report import ReadingReport, UnitError

if TYPE_CHECKING:
    from lxml import etree

MACHINE_TOOL = "knnmt"  # marks variants that `knnmt translate` adds, for people to review
ORIGIN_PROPERTY = "x-origin"
CONTEXT_PROPERTY = "x-context"  # also as a prefix: x-context-pre, x-context-post
_PAIRED, _ALONE = frozenset({"bpt", "ept", "it"}), frozenset({"ph", "ut"})
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"

_FIRST_UNITS = 100
_MAX_NAMED = 4  # languages of a unit in a message

_Variant = tuple[str, "etree._Element"]


def read_tmx(stream: BufferedReader, name: str, config: ReadingConfig, report: ReadingReport) -> Iterator[SegmentPair]:
    """Pairs of a TMX file.

    If several variants match a requested language, the best match is taken (`knnmt.corpus.languages`), and among equal
    matches the first. A variant without a language is in the source language of its unit or of the header.
    """
    rules = InlineRules(_PAIRED, _ALONE, config.inline == "keep")
    header_language: str | None = None
    ordinal = 0
    for element in read_units(stream, name, "tmx", ("tu",), ("header",), config, report):
        if local_name(element) == "header":
            header_language = element.get("srclang")
            continue
        ordinal += 1
        unit = element.get("tuid") or f"tu{ordinal}"
        try:
            chosen = _chosen(element, header_language, config, report)
            if chosen is None:
                continue
            source, target = segment_texts(_segment(chosen[0]), _segment(chosen[1]), rules)
        except UnitError as error:
            report.problem(f"{name}, line {element.sourceline}, unit {unit}", str(error), config)
            continue
        origin = next(_properties(element, lambda kind: kind == ORIGIN_PROPERTY), f"{name}#{unit}")
        context = "\n".join(_properties(element, lambda kind: kind.lower().startswith(CONTEXT_PROPERTY)))
        if pair := report.admit(source, target, origin, context):
            yield pair


def tmx_languages(stream: BufferedReader, name: str, config: ReadingConfig) -> tuple[str | None, str | None]:
    """The source language that the header states, and the only other language of the first units; None if unclear."""
    header_language: str | None = None
    languages: dict[str, None] = {}
    for element in islice(read_units(stream, name, "tmx", ("tu",), ("header",), config, ReadingReport()), _FIRST_UNITS):
        if local_name(element) == "header":
            header_language = element.get("srclang")
        else:
            variants = (variant for variant in element if _is(variant, "tuv"))
            languages.update((tag, None) for each in variants if (tag := each.get(_XML_LANG) or each.get("lang")))
    if header_language is None or header_language.lower() == "*all*":
        return None, None
    others = [tag for tag in languages if not matches(header_language, tag)]
    return header_language, others[0] if len({normalise(tag).split("-")[0] for tag in others}) == 1 else None


def _chosen(
    unit: etree._Element, header_language: str | None, config: ReadingConfig, report: ReadingReport
) -> tuple[etree._Element, etree._Element] | None:
    """The variants in the requested languages; None, and counted, if one is missing."""
    default = unit.get("srclang") or header_language
    variants = [_with_language(variant, default) for variant in unit if _is(variant, "tuv")]
    sides: list[list[tuple[int, int]]] = []
    for asked in config.languages:
        ranked = [(match_rank(asked, language), order) for order, (language, _) in enumerate(variants)]
        sides.append([(rank, order) for rank, order in ranked if rank is not None])
    for asked, answers in zip(config.languages, sides, strict=True):
        if not answers:
            report.skip(f"no {asked} in unit{_only(variants)}")
            return None
    # The best combination is among the two best of each side, because at most one variant is on both.
    best = [sorted(answers)[:2] for answers in sides]
    couples = [(source, target) for source in best[0] for target in best[1] if source[1] != target[1]]
    if not couples:
        report.skip(f"no {config.target_language} in unit besides {config.source_language}")
        return None
    if len(couples) > 1 or max(map(len, sides)) > 2:
        report.note("unit with several variants of a language; the best or first was used")
    (_, source), (_, target) = min(couples, key=lambda couple: (couple[0][0] + couple[1][0], couple))
    if not config.unfinished and MACHINE_TOOL in (variants[each][1].get("creationtool") for each in (source, target)):
        report.skip("machine translation without review")
        return None
    return variants[source][1], variants[target][1]


def _only(variants: list[_Variant]) -> str:
    """The languages that a unit has instead."""
    found = sorted({language for language, _ in variants})
    return f", only {', '.join(found[:_MAX_NAMED])}{', …' * (len(found) > _MAX_NAMED)}" if found else ""


def _with_language(variant: etree._Element, default: str | None) -> _Variant:
    language = variant.get(_XML_LANG) or variant.get("lang")
    if language:
        return language, variant
    if not default or default.lower() == "*all*":
        raise UnitError("expected <tuv> with xml:lang, found one without, and the header states no source language")
    return default, variant


def _segment(variant: etree._Element) -> etree._Element:
    segments = [child for child in variant if _is(child, "seg")]
    if not segments:
        raise UnitError("expected a <seg> in every <tuv>, found one without")
    if len(segments) > 1:
        raise UnitError(f"expected a single <seg> in every <tuv>, found {len(segments)}")
    return segments[0]


def _properties(unit: etree._Element, chosen: Callable[[str], bool]) -> Iterator[str]:
    """The content of the unit's properties of the chosen types, without empty ones."""
    for child in unit:
        if _is(child, "prop") and chosen(child.get("type", "")) and child.text:
            yield child.text


def _is(node: etree._Element, name: str) -> bool:
    return isinstance(node.tag, str) and local_name(node) == name
