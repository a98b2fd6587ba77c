"""Finds errors in the translations of a document, without translating anything.

Every finding can be seen in the document, the glossary and the memory; no model guesses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from knnmt.corpus.glossary import Glossary
from knnmt.corpus.pairs import SegmentPair
from knnmt.documents.document import Document, State, Unit
from knnmt.documents.elements import plain
from knnmt.documents.form_checks import form_findings
from knnmt.protection.content import MAX_SPELLED_OUT, lost_signs, more_signs
from knnmt.protection.marked import Code, Marked, Role
from knnmt.protection.placeholder_syntax import PlaceholderSyntax
from knnmt.protection.placeholders import Needs, find
from knnmt.protection.tags import with_tags

KINDS = ("untranslated", "placeholder", "tag", "number", "term", "name", "length", "copy", "form")
_MAX_LENGTH_RATIO, _MIN_LENGTH_RATIO = 3.0, 1 / 3  # longest translation, relative to the length of its source
_COMPARED_WORDS = 500  # of a translation, with a name that it lacks
_MIN_LENGTH = 12  # shortest source for which the length means anything
_MIN_COPIED_WORDS = 3  # more equal words than this in both languages are not names
# A possible name: a capitalised word. The memory decides whether it is one.
_NAME = re.compile(r"(?<![\w-])(?=[\w-]*[A-ZÄÖÜ])[^\W_][\w-]{2,}")
# What a tag says to readers, which is translated: attributes, texts inside the codes of XLIFF, an image of Markdown.
_READ_VALUE = re.compile(
    r"""(?i)(?<![\w-])(alt|title|placeholder|aria-label|label|summary|alttext|equiv-text|equiv|disp)"""
    r"""\s*=\s*(?:"[^"]*"|'[^']*')"""
)
_READ_TEXT = re.compile(r"(<sub>)[^<]*(?=</sub>)")
_MIN_KEPT_SHARE = 0.8  # share of the memory's pairs with a name in the source that also have it in the target


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding in a unit that a person should look at. kind: one of `KINDS`"""

    unit: str
    kind: str
    message: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Report:
    """The findings in a document. states: how many units are in each state"""

    name: str
    states: Mapping[State, int]
    problems: tuple[Problem, ...]


def check_units(
    name: str,
    units: Sequence[Unit],
    glossary: Glossary | None = None,
    memory: Iterable[SegmentPair] = (),
    placeholders: tuple[str, ...] = (),
    language: str | None = None,
) -> Report:
    """Check every unit that is to be translated.

    memory: pairs, read once, that show which names stay as they are
    placeholders: patterns of placeholders of one's own
    language: of the translations, if it is known; what a document states counts first
    """
    looked_at = [unit for unit in units if unit.translatable and any(each.isalpha() for each in plain(unit.source))]
    names = _kept_names(looked_at, memory)
    problems = tuple(
        problem for unit in looked_at for problem in _problems(unit, glossary, names, placeholders, language)
    )
    return Report(name, Counter(unit.state for unit in looked_at), problems)


def check_document(
    document: Document,
    name: str,
    glossary: Glossary | None = None,
    memory: Iterable[SegmentPair] = (),
    placeholders: tuple[str, ...] = (),
    language: str | None = None,
) -> Report:
    """Check a document with two sides. The arguments are those of `check_units`."""
    return check_units(name, document.units, glossary, memory, placeholders, document.languages[1] or language)


def _problems(
    unit: Unit,
    glossary: Glossary | None,
    names: frozenset[str],
    placeholders: tuple[str, ...],
    language: str | None,
) -> Iterator[Problem]:
    target = unit.target or ()
    texts = _read(unit.source), _read(target)

    def problem(kind: str, message: str) -> Problem:
        return Problem(unit.id, kind, message, *texts)

    if unit.state is State.UNTRANSLATED or not texts[1].strip():
        yield problem("untranslated", "has no translation")
        return
    for kind, look in _LOOKS.items():
        for message in look(unit.source, target):
            yield problem(kind, message)
    syntax = PlaceholderSyntax(unit.text_kinds, placeholders)
    unequal = list(_unequal(unit.source, target, syntax))
    for kind, message in unequal:
        yield problem(kind, message)
    words = _words(unit.source), _words(target)
    for sign in (*more_signs(*words), *lost_signs(*words)) if not unequal else ():
        yield problem("placeholder", _unequal_times(sign, words[0].count(sign), words[1].count(sign)))
    for message in form_findings(*texts, language, syntax):
        yield problem("form", message)
    for use in glossary.uses(texts[0]) if glossary is not None else ():
        if not glossary.is_met(use.term, texts[1]):  # type: ignore[union-attr]
            yield problem(
                "term", f"the glossary has {use.term.target!r} for {use.term.source!r}; the translation does not"
            )
    compared = re.findall(r"[\w-]+", texts[1])[:_COMPARED_WORDS]
    for each in sorted(set(_NAME.findall(texts[0])) & names):
        if each not in texts[1]:
            close = get_close_matches(each, compared, 1, 0.7)
            instead = f"; the translation has {close[0]!r}" if close else ""
            yield problem("name", f"{each!r} stays unchanged in the memory{instead}")


def _unequal(source: Marked, target: Marked, syntax: PlaceholderSyntax) -> Iterator[tuple[str, str]]:
    """Placeholders and numbers that are lost or invented: kinds and messages."""
    wanted, has = (Needs.of(find(_words(text), syntax=syntax)) for text in (source, target))
    for each in wanted.exact | has.exact:
        if wanted.exact[each] != has.exact[each]:
            yield "placeholder", _unequal_times(each, wanted.exact[each], has.exact[each])
    for each in wanted.digits | has.digits:
        may_be_spelled_out = not wanted.digits[each] and len(each) < 5 and int(each) <= MAX_SPELLED_OUT
        if wanted.digits[each] != has.digits[each] and not may_be_spelled_out:
            yield "number", _unequal_times(each, wanted.digits[each], has.digits[each])
    for each in wanted.signs:
        if wanted.signs[each] != has.signs[each]:
            yield (
                "number",
                f"{each} beside a number {_times(wanted.signs[each])} in the source, but not in the translation",
            )


def _tags(source: Marked, target: Marked) -> Iterator[str]:
    sides = _codes(source), _codes(target)
    wanted, has = (Counter(_without_read(code.raw) for code in side) for side in sides)
    named = {_without_read(code.raw): code.raw for side in reversed(sides) for code in side}
    for each in wanted | has:
        if wanted[each] != has[each]:
            yield _unequal_times(named[each], wanted[each], has[each])
    if wanted == has and not _is_nested(target):
        yield "tags are not nested correctly"


def _without_read(raw: str) -> str:
    """A code without what readers see of it, such as its alternative text, with one kind of quotation marks."""
    if raw.startswith("!["):
        return f"![]({raw.rpartition('](')[2].partition(' ')[0].rstrip(')')})"
    return _READ_TEXT.sub(r"\1", _READ_VALUE.sub(r"\1", raw)).replace("'", '"')


def _length(source: Marked, target: Marked) -> Iterator[str]:
    sizes = len(_read(source).strip()), len(_read(target).strip())
    if sizes[0] >= _MIN_LENGTH and not _MIN_LENGTH_RATIO <= sizes[1] / sizes[0] <= _MAX_LENGTH_RATIO:
        yield f"{sizes[1]} characters for {sizes[0]} in the source"


def _copies(source: Marked, target: Marked) -> Iterator[str]:
    words = [word for word in re.findall(r"[^\W\d_]+", plain(source)) if not _NAME.fullmatch(word)]
    if len(words) >= _MIN_COPIED_WORDS and _read(source).strip() == _read(target).strip():
        yield "the translation equals the source"


_LOOKS: dict[str, Callable[[Marked, Marked], Iterator[str]]] = {
    "tag": _tags,
    "length": _length,
    "copy": _copies,
}


def _with_codes(text: Marked) -> Marked:
    """A text whose tags are codes, including those that the format treats as text."""
    parts = (with_tags(part) if isinstance(part, str) else (part,) for part in text)
    return tuple(each for part in parts for each in part)


def _codes(text: Marked) -> list[Code]:
    return [part for part in _with_codes(text) if isinstance(part, Code)]


def _words(text: Marked) -> str:
    return " ".join(part for part in _with_codes(text) if isinstance(part, str))


def _is_nested(text: Marked) -> bool:
    """Whether every tag closes the last open one; tags without a known partner do not count."""
    opened: list[str] = []
    for part in text:
        for code in _codes((part,)) if isinstance(part, str) else [part]:
            if code.role is Role.OPENING and code.pair is not None:
                opened.append(f"{isinstance(part, str)}{code.pair}")
            closes = code.role is Role.CLOSING and code.pair is not None
            if closes and (not opened or opened.pop() != f"{isinstance(part, str)}{code.pair}"):
                return False
    return True


def _read(text: Marked) -> str:
    return "".join(part if isinstance(part, str) else part.shown for part in text)


def _unequal_times(found: str, wanted: int, has: int) -> str:
    return f"{found} {_times(wanted)} in the source, {_times(has)} in the translation"


def _times(count: int) -> str:
    return {0: "not", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _kept_names(units: Iterable[Unit], memory: Iterable[SegmentPair]) -> frozenset[str]:
    """The names in these sources that the memory keeps unchanged."""
    asked = {name for unit in units for name in _NAME.findall(_read(unit.source))}
    if not asked:
        return frozenset()
    seen, kept = Counter[str](), Counter[str]()
    for pair in memory:
        for name in asked.intersection(_NAME.findall(pair.source)):
            seen[name] += 1
            kept[name] += name in pair.target
    return frozenset(name for name, count in seen.items() if kept[name] >= _MIN_KEPT_SHARE * count)
