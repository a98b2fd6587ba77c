"""Matches that are taken from the memory: its own target in place of a decoded translation.

A match is exact if the source is the text, apart from white space and the accelerator, and the contexts do not differ.
Of several pairs, those of the same context come first, then those spelled like the text, then the newest. A repaired
match is a fuzzy one with the text's numbers and placeholders inserted (`repairing`).
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from knnmt.config import MatchConfig
from knnmt.corpus.accelerators import accelerators_in, accelerators_of, with_accelerator
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import plain
from knnmt.datastore.sources import HeldSources
from knnmt.errors import MatchWarning, MissingDependencyError
from knnmt.protection.placeholder_syntax import PLAIN, PlaceholderSyntax
from knnmt.protection.placeholders import Kind, find
from knnmt.segments.matches import Match, SourceMatcher, likeness
from knnmt.translator.repairing import repaired
from knnmt.translator.translation import Caution, Translation, TranslationKind

_STAYS_REPAIRED = 0.98  # of repaired matches, as measured by benchmarks/certainty.py in software text


def taken_over(
    config: MatchConfig,
    text: str,
    context: str,
    held: HeldSources,
    matcher: SourceMatcher,
    language: str,
    syntax: PlaceholderSyntax = PLAIN,
) -> Translation | None:
    """The match that is taken for a text, or None.

    language: of the target
    syntax: what counts as a placeholder
    """
    if config.exact == "ignore" or not text.strip():
        return None
    if found := _exact(text, context, held):
        return _taken(text, context, found, config.exact == "prefer", syntax)
    if config.threshold == 100:
        return None
    match = matcher.closest(text, config.threshold)
    return None if match is None or match.exact else _repaired(text, context, match, held, language, syntax)


def _taken(
    text: str, context: str, found: list[tuple[SegmentPair, str]], only_surely: bool, syntax: PlaceholderSyntax
) -> Translation | None:
    first, target = found[0]
    pairs: dict[str, SegmentPair] = {}
    for pair, written in found:
        pairs.setdefault(written, pair)
    lacks = _other_placeholders(text, target, syntax)
    if only_surely and (len(pairs) > 1 or lacks or plain(first.context) != plain(context)):
        return None
    cautions: tuple[Caution, ...] = ()
    if lacks:
        words = f"the memory's target for {text[:60]!r} has other placeholders: {', '.join(lacks)}"
        warnings.warn(words, MatchWarning, stacklevel=2)
        cautions = (Caution(MatchWarning, words),)
    made = [_translation(text, each, pairs[each], 100, "exact match") for each in pairs]
    certainty = _agreement(target, [written for _, written in found])
    return replace(_with_alternatives(made), warnings=cautions, certainty=certainty)


def _exact(text: str, context: str, held: HeldSources) -> list[tuple[SegmentPair, str]]:
    """The pairs of a text with their targets, spelled for the text, best first."""
    for seen, mark in _understandings(text, held):
        if pairs := _ranked(held.pairs_of(seen), text, context):
            return [(pair, _written_for(text, mark, pair, held)) for pair in pairs]
    return []


def _repaired(
    text: str, context: str, match: Match, held: HeldSources, language: str, syntax: PlaceholderSyntax
) -> Translation | None:
    made: dict[str, Translation] = {}
    for source in dict.fromkeys(_sources_of(match, held)):
        for pair in _ranked(held.pairs_of(source), text, context):
            for seen, mark in _understandings(text, held):
                there = _written_for(text, mark, pair, held).strip()
                target = repaired(seen.strip(), source, there, language, syntax)
                if target is not None:
                    target = _within_margins(text, target)
                    made.setdefault(target, _translation(text, target, pair, match.score, "repaired match"))
    if not made:
        return None
    agreed = _agreement(next(iter(made)), list(made))
    certainty = None if agreed is None else round(_STAYS_REPAIRED * agreed)
    return replace(_with_alternatives(list(made.values())), certainty=certainty)


def _sources_of(match: Match, held: HeldSources) -> Iterator[str]:
    """The source of a match as the model may have seen it."""
    yield match.source
    if held.without_accelerators and (here := accelerators_of(match.source, match.target)[0]):
        yield here.dropped_from(match.source)


def _understandings(text: str, held: HeldSources) -> Iterator[tuple[str, str]]:
    """The forms of a text that the model may see: itself, or without a possible accelerator, with the mark of it."""
    yield text, ""
    if held.without_accelerators:
        for found in accelerators_in(text.strip()):
            yield found.dropped_from(text.strip()), found.mark


def _ranked(pairs: list[SegmentPair], text: str, context: str) -> list[SegmentPair]:
    """Those whose context does not differ, best first. pairs: newest first"""
    context = plain(context)

    def others(pair: SegmentPair) -> tuple[bool, bool]:
        return plain(pair.context) != context, plain(pair.source) != plain(text)

    fitting = [pair for pair in pairs if not (context and plain(pair.context)) or plain(pair.context) == context]
    return sorted(fitting, key=others)


def _written_for(text: str, mark: str, pair: SegmentPair, held: HeldSources) -> str:
    """A pair's target with the lines, the outer white space and the accelerator of a text, which has this mark."""
    target = pair.target.strip()
    if "\n" in pair.source.strip() and "\n" not in text.strip():
        target = " ".join(filter(None, map(str.strip, target.split("\n"))))
    if held.without_accelerators and plain(pair.source) != plain(text):
        there = accelerators_of(pair.source, target)[1]
        if there is None:
            target = with_accelerator(target, mark) if mark else target
        else:
            key = target[there.start : there.end].replace(there.mark, mark) if mark else ""
            target = target[: there.start] + key + target[there.end :]
    return _within_margins(text, target)


def _within_margins(text: str, target: str) -> str:
    start = len(text) - len(text.lstrip())
    return text[:start] + target.strip() + text[len(text.rstrip()) :]


def _other_placeholders(text: str, target: str, syntax: PlaceholderSyntax) -> list[str]:
    """The placeholders that one of two texts has more often than the other."""
    here, there = (
        Counter(each.text for each in find(side, syntax=syntax) if each.kind is Kind.EXACT) for side in (text, target)
    )
    return sorted((here - there) + (there - here))


def _agreement(target: str, targets: Sequence[str]) -> int | None:
    """How similar a target is to all targets that the memory has for the text, including itself, 0 to 100; None if
    unknown.
    """
    try:
        return round(fmean(100 if each == target else likeness(target, each) for each in targets))
    except MissingDependencyError:
        return None


def _translation(text: str, target: str, pair: SegmentPair, score: int, kind: TranslationKind) -> Translation:
    match = Match(pair.source, pair.target, pair.origin, score, exact=score == 100)
    return Translation(text, target, (), 0.0, match=match, kind=kind)


def _with_alternatives(made: list[Translation]) -> Translation:
    return replace(made[0], alternatives=tuple(made[1:]))
