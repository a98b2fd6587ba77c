"""The entries of a PO catalog of gettext, with their places: one parser for memories and for documents.

A message may be an identifier, as in Plone: then its text is in a comment, `Default: "…"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_KEYWORD = re.compile(rf"(msgctxt|msgid_plural|msgid|msgstr(?:\[(\d{{1,3}})\])?)\s*({_QUOTED})")
_STRING = re.compile(_QUOTED)
_FIELD = re.compile(r"^([\w-]+):[ \t]*+(.*)", re.MULTILINE)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_IDENTIFIER = re.compile(r"[A-Za-z0-9]+(?:[_.:/-]+[A-Za-z0-9]+)+_?")
_SURELY_IDENTIFIER = re.compile(r"[a-z0-9]{2,}(?:_+[a-z0-9]{2,})+")  # no word of a language, no accelerator (Sav_e)
_DEFAULT = re.compile(r"\s*Default\s*:(.*)")
_NEXT_STRING = re.compile(r'(?<!\\)"[^\S\n]*\n\s*"')
_ESCAPED_SIGN = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class PoLine:
    """A line of a catalog.

    start, end: its place, including its line end
    problem: what is wrong with it, if that is known already
    """

    text: str
    start: int = 0
    end: int = 0
    problem: str = ""


@dataclass(slots=True)
class PoString:
    """A quoted string of one or several lines, from its first quote to its last. before: what a new one needs there"""

    start: int
    end: int
    lines: list[str]
    before: str = ""

    @property
    def text(self) -> str:
        if len(self.lines) > 1:
            self.lines = ["".join(self.lines)]
        return self.lines[0]


@dataclass(slots=True)
class PoEntry:
    """An entry: its content and its place.

    line: the number of the line with its msgid
    start: its first line
    before: the place for new flags
    flags: the place after `#,`
    formats: the flags that say which directives count, such as python-format or no-c-format
    extracted: what programmers said about it
    comments: what translators said about it, with the places of whole lines
    strings: by their keyword
    problem: the number of the first line that is not as it must be, and why
    """

    line: int
    start: int = -1
    before: int = -1
    flags: int = -1
    is_fuzzy: bool = False
    is_obsolete: bool = False
    is_translated: bool = False
    formats: list[str] = field(default_factory=list)
    extracted: list[str] = field(default_factory=list)
    comments: list[PoLine] = field(default_factory=list)
    strings: dict[str, PoString] = field(default_factory=dict)
    problem: tuple[int, str] | None = None

    @property
    def is_header(self) -> bool:
        return "msgctxt" not in self.strings and not self.text("msgid")

    def text(self, keyword: str) -> str:
        """The text of a string; empty if there is none."""
        string = self.strings.get(keyword)
        return "" if string is None else string.text

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a header, by their names in small letters."""
        return {name.lower(): value.strip() for name, value in _FIELD.findall(self.text("msgstr"))}

    def source(self, keyword: str, singular: int | None) -> str:
        """The source of a translation; empty for an identifier whose text is not in the catalog.

        keyword: of the translation
        singular: the number of the form that translates msgid if there are several
        """
        message = self.text("msgid")
        if "msgid_plural" in self.strings:
            return message if keyword == f"msgstr[{singular}]" else self.text("msgid_plural")
        if not _IDENTIFIER.fullmatch(message):
            return message
        if text := _default(self.extracted) or _default([each.text for each in self.comments]):
            return text
        # A translator keeps an underscore unless it belongs to an identifier.
        return "" if _SURELY_IDENTIFIER.fullmatch(message) and "_" not in self.text(keyword) else message


def po_entries(lines: Iterable[PoLine]) -> Iterator[PoEntry]:
    """All entries, also obsolete ones. An entry ends if a comment or a message follows its translation."""
    entry = PoEntry(1)
    current: PoString | None = None
    for number, line in enumerate(lines, start=1):
        text = line.text.strip()
        start = line.start + len(line.text) - len(line.text.lstrip())
        obsolete = text.startswith("#~") and not text.startswith("#~|")
        inside = text[2:].lstrip() if obsolete else text
        start += len(text) - len(inside)
        begins = inside.startswith(("#", "msgctxt", "msgid"))
        if begins and (entry.is_translated or (entry.is_obsolete and not obsolete)):
            if entry.strings or entry.problem:
                yield _complete(entry)
            entry = PoEntry(number)
        entry.start = start if text and entry.start < 0 else entry.start
        entry.is_obsolete = entry.is_obsolete or obsolete
        entry.is_translated = entry.is_translated or inside.startswith("msgstr")
        keyword = _KEYWORD.fullmatch(inside)
        if line.problem:
            _fault(entry, number, line.problem)
        if inside.startswith("#"):
            current = None
            _take_comment(entry, inside, start, line)
        elif keyword:
            current = PoString(start + keyword.start(3), start + len(inside), [_unescaped(keyword[3])])
            if keyword[1] in entry.strings:
                _fault(entry, number, f"expected each keyword of an entry once, found {keyword[1]} twice")
            entry.strings[keyword[1]] = current
            entry.line = number if keyword[1] == "msgid" else entry.line
            entry.before = start if entry.before < 0 else entry.before
        elif current is not None and _STRING.fullmatch(inside):
            current.end = start + len(inside)
            current.lines.append(_unescaped(inside))
        elif inside:
            _fault(entry, number, f"expected a comment or a quoted string after msgid or msgstr, found {inside[:60]!r}")
    if entry.strings or entry.problem:
        yield _complete(entry)


def _complete(entry: PoEntry) -> PoEntry:
    if "msgid" not in entry.strings:
        _fault(entry, entry.line, "expected a msgid before the msgstr, found none")
    return entry


def _fault(entry: PoEntry, number: int, message: str) -> None:
    entry.problem = entry.problem or (number, message)


def _take_comment(entry: PoEntry, text: str, start: int, line: PoLine) -> None:
    if text.startswith("#,"):
        names = re.split(r"[,\s]+", text[2:])
        entry.is_fuzzy = entry.is_fuzzy or "fuzzy" in names
        entry.formats += [name for name in names if name.endswith("-format")]
        entry.flags = start + 2
    elif text.startswith("#|"):  # flags come before these
        entry.before = start if entry.before < 0 else entry.before
    elif text.startswith("#."):
        entry.extracted.append(text[2:].strip())
    elif not text.startswith(("#:", "#~")):
        entry.comments.append(PoLine(text[1:].strip(), start, line.end))


def _unescaped(quoted: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] == "x" and len(code) > 1:
            return chr(int(code[1:], 16))
        return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _ESCAPED.get(code, code)

    return _ESCAPE.sub(character, quoted[1:-1])


def _default(lines: list[str]) -> str:
    """The text that a comment gives as the default: a string on one line or on several, or several strings."""
    for number, line in enumerate(lines):
        if found := _DEFAULT.fullmatch(line):
            text = found[1].strip()
            if not text.startswith('"'):
                return text
            strings = [text[1:]]
            for further in lines[number + 1 :]:
                if _closes(strings[-1]) and not further.startswith('"'):
                    break
                strings.append(further)
            joined = " ".join(part.strip() for part in _NEXT_STRING.sub("", "\n".join(strings)).split("\n"))
            inside = joined[:-1] if _closes(joined) else joined
            return _ESCAPED_SIGN.sub(lambda each: {"n": "\n", "t": "\t"}.get(each[1], each[1]), inside).strip()
    return ""


def _closes(line: str) -> bool:
    """Whether a line ends with a quote that no backslash escapes."""
    inside = line[:-1]
    return line.endswith('"') and (len(inside) - len(inside.rstrip("\\"))) % 2 == 0
