"""PO catalogs of gettext: plural forms, contexts, fuzzy and obsolete entries, any encoding and line end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from knnmt.corpus.languages import is_tag
from knnmt.corpus.plural_forms import form_contexts, form_count, singular_form
from knnmt.corpus.po_entries import PoEntry, PoLine, PoString, po_entries
from knnmt.corpus.text_encodings import is_codec
from knnmt.documents.content import Content, Edit
from knnmt.documents.document import State, TextDocument, Unit
from knnmt.documents.provenance import REMARK, Provenances
from knnmt.errors import MalformedDocumentError
from knnmt.protection.marked import Marked, written
from knnmt.protection.placeholder_kinds import UNFLAGGED

_CHARSET = re.compile(rb"charset=([\w.:-]+)", re.IGNORECASE)
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|$)")
_MAX_FORMS = 6  # of any language
_WRITTEN = {"\\": "\\\\", '"': '\\"', "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}


class PoDocument(TextDocument):
    """A catalog. A target makes its entry fuzzy, which is gettext's mark for review."""

    format = "po"
    bilingual = True

    def __init__(self, data: bytes, name: str) -> None:
        content = Content(data, name, _encoding(data))
        self._places: dict[str, tuple[PoEntry, PoString]] = {}
        entries = list(_entries(content))
        header = next((entry.fields for entry in entries if entry.is_header), {})
        language, source = header.get("language", ""), header.get("x-source-language", "")
        super().__init__(
            content,
            self._units(entries, header.get("plural-forms", "")),
            (source if is_tag(source) else None, language if is_tag(language) else None),
        )

    def _units(self, entries: list[PoEntry], rule: str) -> Iterator[Unit]:
        singular, needed = singular_form(rule), form_count(rule)
        for entry in entries:
            if entry.is_header:
                continue
            if "msgid_plural" in entry.strings:
                _add_forms(entry, needed)
            forms = [keyword for keyword in entry.strings if keyword.startswith("msgstr")]
            sources = [entry.source(keyword, singular) for keyword in forms]
            contexts = form_contexts(entry.text("msgctxt"), sources)
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
        changed: dict[int, tuple[PoEntry, list[str]]] = {}
        for name, target in targets.items():
            entry, string = self._places[name]
            yield Edit(string.start, string.end, string.before.replace("\n", self.content.line_end) + target)
            changed.setdefault(entry.line, (entry, []))[1].append(name)
        for entry, names in changed.values():
            yield from (Edit(each.start, each.end, "") for each in entry.comments if each.text.startswith(REMARK))
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


def _entries(content: Content) -> Iterator[PoEntry]:
    """Active entries."""
    for entry in po_entries(_lines(content)):
        if entry.is_obsolete:
            continue
        if entry.problem is not None:
            number, problem = entry.problem
            raise MalformedDocumentError(f"{content.name}, line {number}: {problem}")
        if not entry.is_translated:
            raise MalformedDocumentError(
                f"{content.name}, line {entry.line}: expected a msgstr, found the end of the file"
            )
        yield entry


def _lines(content: Content) -> Iterator[PoLine]:
    place = content.start
    while place < len(content.text):
        line = _LINE.match(content.text, place)
        assert line is not None  # noqa: S101 - the pattern matches anything
        yield PoLine(line[1], place, line.end())
        place = line.end()


def _add_forms(entry: PoEntry, forms: int) -> None:
    """Give an entry the plural forms that the header requires and that it lacks."""
    there = [keyword for keyword in entry.strings if keyword.startswith("msgstr[")]
    if not there or forms > _MAX_FORMS:
        return
    end = max(entry.strings[keyword].end for keyword in there)
    for form in range(forms):
        keyword = f"msgstr[{form}]"
        if keyword not in entry.strings:
            entry.strings[keyword] = PoString(end, end, [""], f"\n{keyword} ")


def _text_kinds(entry: PoEntry) -> tuple[str, ...]:
    """What decides which placeholders count in an entry: its flags, if they name a format."""
    names_one = any(not name.startswith("no-") for name in entry.formats)
    return (PoDocument.format, *entry.formats, *([] if names_one else [UNFLAGGED]))


def _state(entry: PoEntry, string: PoString) -> State:
    if not string.text:
        return State.UNTRANSLATED
    return State.FUZZY if entry.is_fuzzy else State.TRANSLATED
