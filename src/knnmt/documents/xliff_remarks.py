"""What XLIFF says about a new target, besides its state: the memory's segment, and a note for people.

Version 1.2 has `<alt-trans match-quality>` and `<note>` after the target; versions 2.x have `<mtc:match>` of the module
for translation candidates and `<note>` at the beginning of the unit.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping

from knnmt.documents.content import Content, Edit
from knnmt.documents.markup import Element, escaped
from knnmt.documents.provenance import REMARK, MemorySegment, Provenance

_OURS = "knnmt"
_MATCHES = "urn:oasis:names:tc:xliff:matches:2.0"
_NO_TOKEN = re.compile(r"[^\w.-]")


def quoted(text: str) -> str:
    """A text as the value of an attribute, with its quotes."""
    return f'"{escaped(text).replace(chr(34), "&quot;")}"'


def remarks_1(element: Element, provenances: Mapping[str | None, Provenance]) -> list[str]:
    """Elements that go after the target of a <trans-unit>. provenances: by the mid of a segment; None for a whole"""
    found = []
    for segment, about in provenances.items():
        if about.match is not None:
            mid = "" if segment is None else f" mid={quoted(segment)}"
            head = f" match-quality={quoted(str(about.match.score))} origin={quoted(about.match.origin)}"
            texts = _texts(about.match, element.prefix)
            found.append(_element(f"{element.prefix}alt-trans", f"{mid}{head} extradata={quoted(_OURS)}", texts))
        text = escaped(about.remark if segment is None else _with_number(about.remark, segment))
        found.append(_element(f"{element.prefix}note", f" from={quoted(_OURS)} annotates={quoted('target')}", text))
    return found


def former_remarks_1(content: Content, element: Element, segments: Collection[str | None]) -> Iterator[Edit]:
    """Removes the elements of an earlier run."""
    begins = sorted(escaped(REMARK if segment is None else _with_number(REMARK, segment)) for segment in segments)
    known = set(segments)
    for child in element.each("alt-trans", "note"):
        attributes = child.attributes
        text = content.text[child.inside : child.inside_end]
        before = bisect_right(begins, text)
        is_note = attributes.get("from") == _OURS and before > 0 and text.startswith(begins[before - 1])
        if is_note or (attributes.get("extradata") == _OURS and attributes.get("mid") in known):
            yield _removed(content, child)


def remarks_2(content: Content, unit: Element, provenances: Mapping[str, Provenance]) -> Iterator[Edit]:
    """Edits of a <unit> of 2.x. provenances: by the ids of its segments"""
    matches = [each for each in unit.children if each.local == "matches"]
    notes = list(unit.each("notes"))
    ids = {_id_of(segment) for segment in provenances}
    for group in (*matches, *notes):
        yield from (_removed(content, each) for each in group.children if each.attributes.get("id") in ids)
    prefix = matches[0].prefix if matches else "mtc:"
    of_memory = [_match_2(segment, about, prefix, unit.prefix) for segment, about in provenances.items() if about.match]
    said = [
        _element(
            f"{unit.prefix}note",
            f" id={quoted(_id_of(segment))} category={quoted(_OURS)} appliesTo={quoted('target')}",
            escaped(about.remark),
        )
        for segment, about in provenances.items()
    ]
    namespace = f" xmlns:mtc={quoted(_MATCHES)}"
    later = next(each for each in unit.children if each.prefix == unit.prefix and each.local != "notes")
    new = []
    if matches:
        yield from _added(content, matches[0], of_memory)
    elif of_memory:
        new.append(_element("mtc:matches", namespace, "".join(of_memory)))
    if notes:
        yield from _added(content, notes[0], said)
        first = min(notes[0].start, later.start)
        yield from _before(content, first, new)
    else:
        yield from _before(content, later.start, [*new, _element(f"{unit.prefix}notes", "", "".join(said))])


def _match_2(segment: str, about: Provenance, prefix: str, of_unit: str) -> str:
    match = about.match
    assert match is not None  # noqa: S101 - asked only then
    score = quoted(str(match.score))
    attributes = (
        f" id={quoted(_id_of(segment))} ref={quoted('#' + segment)} type={quoted('tm')} similarity={score} "
        f"matchQuality={score} origin={quoted(match.origin)}"
    )
    return _element(f"{prefix}match", attributes, _texts(match, of_unit))


def _texts(match: MemorySegment, prefix: str) -> str:
    return _element(f"{prefix}source", "", escaped(match.source)) + _element(
        f"{prefix}target", "", escaped(match.target)
    )


def _element(name: str, attributes: str, inside: str) -> str:
    return f"<{name}{attributes}>{inside}</{name}>"


def _id_of(segment: str) -> str:
    return f"{_OURS}-{_NO_TOKEN.sub('_', segment)}"


def _with_number(remark: str, segment: str) -> str:
    return f"{REMARK}segment {segment}: {remark.removeprefix(REMARK)}"


def _added(content: Content, group: Element, elements: list[str]) -> Iterator[Edit]:
    """Elements at the end of a group, which is not empty."""
    if elements:
        last = group.children[-1] if group.children else None
        if last is None:
            yield Edit(group.inside, group.inside, "".join(elements))
        else:
            between = separator(content, last)
            yield Edit(last.end, last.end, "".join(between + each for each in elements))


def _before(content: Content, place: int, elements: list[str]) -> Iterator[Edit]:
    if elements:
        between = _separator_at(content, place)
        yield Edit(place, place, "".join(each + between for each in elements))


def _removed(content: Content, element: Element) -> Edit:
    return Edit(element.start - len(separator(content, element)), element.end, "")


def separator(content: Content, element: Element) -> str:
    """The line end and indentation before an element that begins its line; otherwise nothing."""
    return _separator_at(content, element.start)


def _separator_at(content: Content, place: int) -> str:
    indent = content.indent(place)
    if indent is None:
        return ""
    line = place - len(indent)
    end = 2 if content.text[line - 2 : line] == "\r\n" else 1
    return content.text[line - end : place]
