"""Reads PO catalogs of gettext, entry by entry: translated entries, with a pair for every plural form."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import chain
from pathlib import PurePath
from typing import Any, SupportsIndex

from knnmt.corpus.languages import is_tag, matches, name_tags
from knnmt.corpus.lines import raw_lines, refuse_utf16
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.plural_forms import form_contexts, singular_form
from knnmt.corpus.po_identifiers import message_text
from knnmt.corpus.report import ReadingReport, UnitError
from knnmt.corpus.text_encodings import is_codec, text_encoding
from knnmt.errors import InputError, MalformedMemoryError, MissingDependencyError
from knnmt.records import shown

_MAX_ENTRY_BYTES = 1 << 18  # including comments and references
_LINE = re.compile(r'(?:#~\s*)?(?:(?P<keyword>msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s*)?".*"')
_CHARSET = re.compile(rb"charset=([\w.:-]+)", re.IGNORECASE)
# These look like languages even if they were not requested: fr.po, pt_BR.po. Longer names are mostly program names.
_SHORT_TAG = re.compile(r"[a-z]{2}([_-][A-Z]{2})?")


class _EntryText(str):
    """Text that only line feeds divide: a message may contain other characters at which str.splitlines divides."""

    __slots__ = ()

    def splitlines(self, keepends: SupportsIndex = False) -> list[str]:  # noqa: ARG002
        return self.split("\n")


@dataclass(slots=True)
class _Entry:
    """The lines of one entry, and the number of the line with its msgid."""

    lines: list[bytes] = field(default_factory=list)
    first: int = 0
    message: int = 0
    size: int = 0
    translated: bool = False


def read_po(stream: BufferedReader, name: str, config: ReadingConfig, report: ReadingReport) -> Iterator[SegmentPair]:
    """Pairs of a catalog. Its translations are in one requested language; its messages are assumed to be in the other.

    Fuzzy, obsolete and untranslated entries are left out; a broken entry affects no other entry.
    """
    try:
        import polib
    except ImportError as error:
        raise MissingDependencyError("polib", f"reading {name}, which is a PO catalog,", "formats") from error
    entries = _entries(stream, name)
    header = next(entries, None)
    if header is None:
        return
    encoding = _encoding(header, name)
    is_first, language, singular = True, "", None
    for entry in chain([header], entries):
        try:
            catalog = _parse(polib, entry, encoding)
        except UnitError as error:
            report.problem(f"{name}, line {entry.message or entry.first}", str(error), config)
            continue
        if is_first:
            is_first, language = False, _language_of(catalog.metadata.get("Language"), name, config)
            singular = singular_form(catalog.metadata.get("Plural-Forms", ""))
        elif catalog.metadata:
            report.skip("header entry")
        for parsed in catalog:
            for form in _forms(parsed, singular, f"{name}#{entry.message}", language, config, report):
                if pair := report.admit(*form):
                    yield pair


def po_languages(stream: BufferedReader, name: str) -> tuple[str | None, str | None]:
    """The source and target language that a catalog's header states; None if it does not."""
    header = next(_entries(stream, name), None)
    if header is None:
        return None, None
    quoted = (
        line.decode(_encoding(header, name), "replace").partition('"')[2].rpartition('"')[0] for line in header.lines
    )
    fields = (field.partition(":") for field in "".join(quoted).split("\\n"))
    stated = {key.strip().lower(): value.strip() for key, _, value in fields if is_tag(value)}
    return stated.get("x-source-language"), stated.get("language")


def _entries(stream: BufferedReader, name: str) -> Iterator[_Entry]:
    """Cut the file into entries: an entry ends when a comment or a new message follows its translation."""
    entry = _Entry()
    for number, raw in enumerate(raw_lines(stream, name), start=1):
        if number == 1:
            refuse_utf16(raw, name)
            raw = raw.removeprefix(codecs.BOM_UTF8)
        line = raw.strip()
        text = line.removeprefix(b"#~").lstrip() if not line.startswith(b"#~|") else line
        if entry.translated and text.startswith((b"#", b"msgctxt", b"msgid")):
            yield entry
            entry = _Entry()
        entry.first = entry.first or number
        entry.lines.append(line)
        entry.size += len(raw)
        if entry.size > _MAX_ENTRY_BYTES:
            raise MalformedMemoryError(
                f"{name}, line {entry.first}: expected entries of a PO catalog, found one of more than "
                f"{_MAX_ENTRY_BYTES >> 10} KiB"
            )
        if not entry.message and text.startswith(b"msgid"):
            entry.message = number
        entry.translated = entry.translated or text.startswith(b"msgstr")
    # Comments after the last message belong to no entry.
    if any(line and not line.startswith(b"#") for line in entry.lines) or entry.translated or entry.message:
        yield entry


def _encoding(header: _Entry, name: str) -> str:
    """The charset of the header, if Python knows it; templates say CHARSET."""
    match = _CHARSET.search(b"".join(header.lines))
    stated = match[1].decode("ascii") if match else "utf-8"
    if not is_codec(stated):
        return "utf-8"
    if (encoding := text_encoding(stated)) is None:
        raise MalformedMemoryError(
            f"{name}: expected text in a known encoding, found {shown(stated)}. Convert it to UTF-8"
        )
    return encoding


def _parse(polib: Any, entry: _Entry, encoding: str) -> Any:
    lines = []
    for number, raw in enumerate(entry.lines, start=entry.first):
        try:
            line = raw.decode(encoding)
        except UnicodeDecodeError as error:
            raise UnitError(
                f"expected text in {encoding}, found byte 0x{raw[error.start]:02x} in line {number}. "
                "Correct the charset in the header, or convert the file"
            ) from error
        if line and not _LINE.fullmatch(line) and not (line.startswith("#") and not line.startswith("#~ msg")):
            raise UnitError(f"expected a comment or a quoted string after msgid or msgstr, found {line[:60]!r}")
        lines.append(line)
    if not entry.message:
        raise UnitError("expected an entry with a msgid, found none")
    keywords = [match["keyword"] for line in lines if (match := _LINE.fullmatch(line)) and match["keyword"]]
    if len(set(keywords)) < len(keywords):
        raise UnitError("expected each keyword of an entry once, found one of them twice")
    if "msgid_plural" in keywords and "msgstr" in keywords:
        raise UnitError("expected msgstr[0] and so on beside msgid_plural, found msgstr")
    try:
        catalog = polib.pofile(_EntryText("\n".join(lines)), encoding=encoding)
    except (OSError, ValueError, IndexError) as error:
        reason = str(error).rpartition("): ")[2]
        raise UnitError(f"expected an entry of a PO catalog, found one that cannot be read: {reason}") from error
    for parsed in catalog:
        parsed.tcomment = parsed.tcomment or catalog.header  # polib takes comments above the first entry as the file's
    return catalog


def _forms(
    entry: Any, singular: int | None, place: str, language: str, config: ReadingConfig, report: ReadingReport
) -> Iterator[tuple[str, str, str, str]]:
    """Source, target, origin and context of every form of an accepted entry.

    singular: the form that translates msgid if there are several
    """
    if entry.msgid_plural:
        forms = [
            (entry.msgid if form == singular else entry.msgid_plural, translation, f"{place}[{form}]")
            for form, translation in sorted(entry.msgstr_plural.items())
        ]
    else:
        forms = [(message_text(entry) or "", entry.msgstr, place)]
    reason = _reason_against(entry, language, config)
    if reason:
        report.skip(reason, len(forms))
        return
    if entry.fuzzy:
        report.note("fuzzy, included on request")
    used = entry.msgctxt or ""
    named = f"|{' '.join(used.split())}" if used else ""
    is_target = matches(config.target_language, language)
    contexts = form_contexts(used, [message for message, *_ in forms]) if is_target else [used] * len(forms)
    for (message, translation, origin), context in zip(forms, contexts, strict=True):
        if not translation.strip():
            report.skip("untranslated")
            continue
        if not message:
            report.skip("identifier whose text the catalog does not state")
            continue
        source, target = (message, translation) if is_target else (translation, message)
        yield source, target, origin + named, context


def _reason_against(entry: Any, language: str, config: ReadingConfig) -> str | None:
    if entry.obsolete:
        return "obsolete"
    if not any(matches(asked, language) for asked in config.languages):
        return f"catalog is in {language}"
    return "fuzzy" if entry.fuzzy and not config.unfinished else None


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
