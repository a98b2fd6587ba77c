"""Reads PO catalogs of gettext, entry by entry: translated entries, with a pair for every plural form."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from io import BufferedReader
from itertools import chain
from pathlib import PurePath

from knnmt.corpus.languages import is_tag, matches, name_tags
from knnmt.corpus.lines import raw_lines, refuse_utf16
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.plural_forms import form_contexts, singular_form
from knnmt.corpus.po_entries import PoEntry, PoLine, po_entries
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.text_encodings import is_codec, text_encoding
from knnmt.errors import InputError, MalformedMemoryError
from knnmt.records import shown

_MAX_ENTRY_BYTES = 1 << 18  # including comments and references
_CHARSET = re.compile(rb"charset=([\w.:-]+)", re.IGNORECASE)
# These look like languages even if they were not requested: fr.po, pt_BR.po. Longer names are mostly program names.
_SHORT_TAG = re.compile(r"[a-z]{2}([_-][A-Z]{2})?")


def read_po(stream: BufferedReader, name: str, config: ReadingConfig, report: ReadingReport) -> Iterator[SegmentPair]:
    """Pairs of a catalog. Its translations are in one requested language; its messages are assumed to be in the other.

    Fuzzy, obsolete and untranslated entries are left out; a broken entry affects no other entry.
    """
    is_first, language, singular = True, "", None
    for entry in _entries(stream, name):
        problem = "" if entry.problem is None else entry.problem[1]
        if not problem and {"msgid_plural", "msgstr"} <= entry.strings.keys():
            problem = "expected msgstr[0] and so on beside msgid_plural, found msgstr"
        if problem:
            report.problem(f"{name}, line {entry.line}", problem, config)
            continue
        fields = entry.fields if entry.is_header else {}
        if is_first:
            is_first, language = False, _language_of(fields.get("language"), name, config)
            singular = singular_form(fields.get("plural-forms", ""))
        elif entry.is_header:
            report.skip("header entry")
        if not entry.is_header:
            for form in _forms(entry, singular, f"{name}#{entry.line}", language, config, report):
                if pair := report.admit(*form):
                    yield pair


def po_languages(stream: BufferedReader, name: str) -> tuple[str | None, str | None]:
    """The source and target language that a catalog's header states; None if it does not."""
    header = next(_entries(stream, name), None)
    fields = {} if header is None else header.fields
    source, target = fields.get("x-source-language", ""), fields.get("language", "")
    return source if is_tag(source) else None, target if is_tag(target) else None


def _entries(stream: BufferedReader, name: str) -> Iterator[PoEntry]:
    """The entries of a file, one after another in little memory."""
    lines = _Lines(stream, name)
    for entry in po_entries(lines):
        yield entry
        lines.size = 0


class _Lines:
    """The lines of a catalog in the encoding of its header. Entries that are too long stop the reading.

    size: the bytes since the last entry; whoever takes an entry resets it
    """

    def __init__(self, stream: BufferedReader, name: str) -> None:
        self._name, self.size = name, 0
        self._raw = self._limited(stream)
        self._head: list[bytes] = []
        messages = 0
        for raw in self._raw:
            self._head.append(raw)
            messages += raw.startswith(b"msgid ")
            if messages > 1 or _CHARSET.search(raw):
                break
        self._encoding = _encoding(b"".join(self._head), name)

    def __iter__(self) -> Iterator[PoLine]:
        for number, raw in enumerate(chain(self._head, self._raw), start=1):
            try:
                yield PoLine(raw.decode(self._encoding))
            except UnicodeDecodeError as error:
                problem = (
                    f"expected text in {self._encoding}, found byte 0x{raw[error.start]:02x} in line {number}. Correct "
                    "the charset in the header, or convert the file"
                )
                yield PoLine(raw.decode(self._encoding, "replace"), problem=problem)

    def _limited(self, stream: BufferedReader) -> Iterator[bytes]:
        for number, raw in enumerate(raw_lines(stream, self._name), start=1):
            if number == 1:
                refuse_utf16(raw, self._name)
                raw = raw.removeprefix(codecs.BOM_UTF8)
            self.size += len(raw)
            if self.size > _MAX_ENTRY_BYTES:
                raise MalformedMemoryError(
                    f"{self._name}, line {number}: expected entries of a PO catalog, found one of more than "
                    f"{_MAX_ENTRY_BYTES >> 10} KiB"
                )
            yield raw


def _encoding(head: bytes, name: str) -> str:
    """The charset of the header, if Python knows it; templates say CHARSET."""
    match = _CHARSET.search(head)
    stated = match[1].decode("ascii") if match else "utf-8"
    if not is_codec(stated):
        return "utf-8"
    if (encoding := text_encoding(stated)) is None:
        raise MalformedMemoryError(
            f"{name}: expected text in a known encoding, found {shown(stated)}. Convert it to UTF-8"
        )
    return encoding


def _forms(
    entry: PoEntry, singular: int | None, place: str, language: str, config: ReadingConfig, report: ReadingReport
) -> Iterator[tuple[str, str, str, str]]:
    """Source, target, origin and context of every form of an accepted entry.

    singular: the form that translates msgid if there are several
    """
    keywords = [each for each in entry.strings if each.startswith("msgstr")]
    keywords.sort(key=lambda each: int(each[len("msgstr[") : -1] or 0))
    reason = _reason_against(entry, language, config)
    if reason:
        report.skip(reason, len(keywords) or 1)
        return
    if entry.is_fuzzy:
        report.note("fuzzy, included on request")
    used = entry.text("msgctxt")
    named = f"|{' '.join(used.split())}" if used else ""
    is_target = matches(config.target_language, language)
    messages = [entry.source(keyword, singular) for keyword in keywords]
    contexts = form_contexts(used, messages) if is_target else [used] * len(messages)
    for keyword, message, context in zip(keywords, messages, contexts, strict=True):
        translation = entry.text(keyword)
        if not translation.strip():
            report.skip("untranslated")
            continue
        if not message:
            report.skip("identifier whose text the catalog does not state")
            continue
        source, target = (message, translation) if is_target else (translation, message)
        yield source, target, place + keyword.removeprefix("msgstr") + named, context


def _reason_against(entry: PoEntry, language: str, config: ReadingConfig) -> str | None:
    if entry.is_obsolete:
        return "obsolete"
    if not any(matches(asked, language) for asked in config.languages):
        return f"catalog is in {language}"
    return "fuzzy" if entry.is_fuzzy and not config.unfinished else None


def _language_of(header: str | None, name: str, config: ReadingConfig) -> str:
    """The language of the translations: the option's, else the header's, else that of the file's name or directory."""
    if config.catalog_language:
        return config.catalog_language
    if header and is_tag(header):
        return header
    path = PurePath(name)
    for part, before in zip(path.parts[1:], path.parts, strict=False):
        if part == "LC_MESSAGES" and is_tag(before):
            return before
    for tag in name_tags(path):
        if _SHORT_TAG.fullmatch(tag) or _asked(tag, config):
            return tag
    for directory in reversed(path.parts[:-1]):
        if _asked(directory, config):
            return directory
    raise InputError(
        f"{name}: expected a catalog that states its language, found neither a Language header nor a language in "
        f"its name or directory. Give it as catalog_language (--catalog-lang)"
    )


def _asked(tag: str, config: ReadingConfig) -> bool:
    return is_tag(tag) and any(matches(asked, tag) for asked in config.languages)
