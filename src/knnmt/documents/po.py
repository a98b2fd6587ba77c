"""PO catalogs of gettext: plural forms, contexts, fuzzy and obsolete entries, any encoding and line end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

from knnmt.corpus.languages import is_tag
from knnmt.corpus.plural_forms import form_contexts, form_count, singular_form
from knnmt.corpus.po_identifiers import message_text
from knnmt.corpus.text_encodings import is_codec
from knnmt.documents.content import Content, Edit
from knnmt.documents.document import State, TextDocument, Unit
from knnmt.documents.provenance import REMARK, Provenances
from knnmt.errors import MalformedDocumentError
from knnmt.protection.marked import Marked, written
from knnmt.protection.placeholder_kinds import UNFLAGGED

_CHARSET = re.compile(rb"charset=([\w.:-]+)", re.IGNORECASE)
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|$)")
_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_KEYWORD = re.compile(rf"(msgctxt|msgid_plural|msgid|msgstr(?:\[(\d{{1,3}})\])?)\s*({_QUOTED})")
_STRING = re.compile(_QUOTED)
_FIELD = re.compile(r"^([\w-]+):[ \t]*+(.*)", re.MULTILINE)
_MAX_FORMS = 6  # of any language
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = {"\\": "\\\\", '"': '\\"', "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}


@dataclass(slots=True)
class _String:
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
class _Entry:
    """An entry: its content and position.

    line: of its msgid
    start: its first line
    before: the position for new flags
    flags: after `#,`
    formats: the flags that say which directives count, such as python-format or no-c-format
    remarks: the lines of an earlier run, from start to end
    """

    line: int
    start: int = -1
    before: int = -1
    flags: int = -1
    remarks: list[tuple[int, int]] = field(default_factory=list)
    is_fuzzy: bool = False
    is_obsolete: bool = False
    formats: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    strings: dict[str, _String] = field(default_factory=dict)

    @property
    def is_translated(self) -> bool:
        return any(keyword.startswith("msgstr") for keyword in self.strings)


class PoDocument(TextDocument):
    """A catalog. A target makes its entry fuzzy, which is gettext's mark for review."""

    format = "po"
    bilingual = True

    def __init__(self, data: bytes, name: str) -> None:
        content = Content(data, name, _encoding(data))
        self._places: dict[str, tuple[_Entry, _String]] = {}
        entries = list(_entries(content))
        header = next((_header(entry) for entry in entries if _is_header(entry)), {})
        language = header.get("language", "").strip()
        source = header.get("x-source-language", "").strip()
        super().__init__(
            content,
            self._units(entries, header.get("plural-forms", "")),
            (source if is_tag(source) else None, language if is_tag(language) else None),
        )

    def _units(self, entries: list[_Entry], rule: str) -> Iterator[Unit]:
        singular, needed = singular_form(rule), form_count(rule)
        for entry in entries:
            if _is_header(entry):
                continue
            if "msgid_plural" in entry.strings:
                _add_forms(entry, needed)
            context = entry.strings.get("msgctxt")
            forms = [keyword for keyword in entry.strings if keyword.startswith("msgstr")]
            sources = [_source(entry, keyword, singular) for keyword in forms]
            contexts = form_contexts(context.text if context else "", sources)
            for keyword, source, used in zip(forms, sources, contexts, strict=True):
                string = entry.strings[keyword]
                name = f"line {entry.line}{keyword.removeprefix('msgstr')}"
                self._places[name] = entry, string
                yield Unit(
                    name,
                    (source,) if source else (),
                    (string.text,) if string.text else None,
                    _state(entry, string),
                    used,
                    translatable=bool(source.strip()),
                    text_kinds=_text_kinds(entry),
                )

    def written(self, _unit: Unit, target: Marked, /) -> str:
        lines = ["".join(_WRITTEN.get(each, each) for each in line) for line in written(target).split("\n")]
        strings = [f'"{line}\\n"' for line in lines[:-1]] + ([f'"{lines[-1]}"'] if lines[-1] or not lines[:-1] else [])
        return self.content.line_end.join(strings if len(strings) == 1 else ['""', *strings])

    def edits(self, targets: Mapping[str, str], provenances: Provenances, /) -> Iterable[Edit]:
        changed: dict[int, tuple[_Entry, list[str]]] = {}
        for name, target in targets.items():
            entry, string = self._places[name]
            yield Edit(string.start, string.end, string.before.replace("\n", self.content.line_end) + target)
            changed.setdefault(entry.line, (entry, []))[1].append(name)
        for entry, names in changed.values():
            yield from (Edit(*lines, "") for lines in entry.remarks)
            remarks = "".join(f"# {each}{self.content.line_end}" for each in provenances.remarks(names))
            flag = ""
            if not entry.is_fuzzy and entry.flags >= 0:
                yield Edit(entry.flags, entry.flags, " fuzzy,")
            elif not entry.is_fuzzy:
                flag = f"#, fuzzy{self.content.line_end}"
            if entry.start == entry.before:
                yield Edit(entry.start, entry.start, remarks + flag)
            else:
                yield Edit(entry.start, entry.start, remarks)
                yield Edit(entry.before, entry.before, flag)


def _encoding(data: bytes) -> str:
    """The charset of the header, if Python knows it; templates say CHARSET."""
    head = data[: data.find(b"\n\n", data.find(b"msgid")) if b"\n\n" in data else len(data)]
    found = _CHARSET.search(head) or _CHARSET.search(data[:8192])
    name = found[1].decode("ascii") if found else "utf-8"
    return name if is_codec(name) else "utf-8"


def _entries(content: Content) -> Iterator[_Entry]:
    """Active entries. An entry ends if a comment or a message follows its translation."""
    entry = _Entry(1)
    current: _String | None = None
    place, number = content.start, 0
    while place < len(content.text):
        line = _LINE.match(content.text, place)
        assert line is not None  # noqa: S101 - the pattern matches anything
        text, start, place, number = line[1].rstrip(), place, line.end(), number + 1
        start += len(text) - len(text.lstrip())
        text = text.lstrip()
        keyword = _KEYWORD.fullmatch(text)
        begins = text.startswith("#") or (keyword is not None and keyword[1] in ("msgctxt", "msgid"))
        if begins and (entry.is_translated or (entry.is_obsolete and not text.startswith("#~"))):
            if not entry.is_obsolete:
                yield _require_message(entry, content)
            entry = _Entry(number)
        entry.start = start if text and entry.start < 0 else entry.start
        if text.startswith("#"):
            current = None
            _take_comment(entry, text, start, place)
        elif keyword:
            current = _String(start + keyword.start(3), start + len(text), [_unescaped(keyword[3])])
            if keyword[1] in entry.strings:
                raise MalformedDocumentError(
                    f"{content.name}, line {number}: expected each keyword of an entry once, found {keyword[1]} twice"
                )
            entry.strings[keyword[1]] = current
            entry.line = number if keyword[1] == "msgid" else entry.line
            entry.before = start if entry.before < 0 else entry.before
        elif current is not None and _STRING.fullmatch(text):
            current.end = start + len(text)
            current.lines.append(_unescaped(text))
        elif text:
            raise MalformedDocumentError(
                f"{content.name}, line {number}: expected a comment or a quoted string after msgid or msgstr, found "
                f"{text[:60]!r}"
            )
    if entry.strings and not entry.is_translated:
        raise MalformedDocumentError(f"{content.name}, line {entry.line}: expected a msgstr, found the end of the file")
    if entry.strings and not entry.is_obsolete:
        yield _require_message(entry, content)


def _take_comment(entry: _Entry, text: str, start: int, end: int) -> None:
    if text.startswith(f"# {REMARK}"):
        entry.remarks.append((start, end))
    elif text.startswith("#~"):
        entry.is_obsolete = True
    elif text.startswith("#,"):
        names = re.split(r"[,\s]+", text[2:])
        entry.is_fuzzy = entry.is_fuzzy or "fuzzy" in names
        entry.formats += [name for name in names if name.endswith("-format")]
        entry.flags = start + 2
    elif text.startswith("#|"):  # flags come before these
        entry.before = start if entry.before < 0 else entry.before
    else:
        entry.comments.append(text)


def _unescaped(quoted: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] == "x" and len(code) > 1:
            return chr(int(code[1:], 16))
        return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _ESCAPED.get(code, code)

    return _ESCAPE.sub(character, quoted[1:-1])


def _require_message(entry: _Entry, content: Content) -> _Entry:
    if "msgid" not in entry.strings:
        raise MalformedDocumentError(
            f"{content.name}, line {entry.line}: expected a msgid before the msgstr, found none"
        )
    return entry


def _is_header(entry: _Entry) -> bool:
    return "msgctxt" not in entry.strings and not entry.strings["msgid"].text


def _header(entry: _Entry) -> dict[str, str]:
    return {name.lower(): value for name, value in _FIELD.findall(entry.strings["msgstr"].text)}


def _add_forms(entry: _Entry, forms: int) -> None:
    """Give an entry the plural forms that the header requires and that it lacks."""
    there = [keyword for keyword in entry.strings if keyword.startswith("msgstr[")]
    if not there or forms > _MAX_FORMS:
        return
    end = max(entry.strings[keyword].end for keyword in there)
    for form in range(forms):
        keyword = f"msgstr[{form}]"
        if keyword not in entry.strings:
            entry.strings[keyword] = _String(end, end, [""], f"\n{keyword} ")


def _source(entry: _Entry, keyword: str, singular: int | None) -> str:
    """The source of a plural form."""
    if plural := entry.strings.get("msgid_plural"):
        return entry.strings["msgid"].text if keyword == f"msgstr[{singular}]" else plural.text
    comments = "\n".join(comment.lstrip("#.").strip() for comment in entry.comments)
    told = SimpleNamespace(
        msgid=entry.strings["msgid"].text, msgstr=entry.strings[keyword].text, comment=comments, tcomment=""
    )
    return message_text(told) or ""


def _text_kinds(entry: _Entry) -> tuple[str, ...]:
    """What decides which placeholders count in an entry: its flags, if they name a format."""
    names_one = any(not name.startswith("no-") for name in entry.formats)
    return (PoDocument.format, *entry.formats, *([] if names_one else [UNFLAGGED]))


def _state(entry: _Entry, string: _String) -> State:
    if not string.text:
        return State.UNTRANSLATED
    return State.FUZZY if entry.is_fuzzy else State.TRANSLATED
