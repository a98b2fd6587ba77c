"""DOCX: paragraphs of the text, headers, footers and notes. All other members of the archive stay as they are."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from knnmt.corpus.report import UnitError
from knnmt.documents.content import Content, Edit
from knnmt.documents.document import Document, Unit, Written
from knnmt.documents.elements import core, joined
from knnmt.documents.markup import Element, escaped, parse, pieces, xml_content
from knnmt.documents.provenance import NOTHING_KNOWN, Provenances
from knnmt.errors import MalformedDocumentError
from knnmt.protection.marked import Code, Marked, Role

_MAX_FORMAT = 10_000  # characters of the properties of a run
_MOST_REPEATED = 20  # times the length of a run that its properties may take, written with each of its parts
_TEXTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml")
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)
_AROUND = ("w:hyperlink", "w:ins", "w:smartTag")  # elements that hold runs of the same sentence
_NOISE = ("w:proofErr", "w:lastRenderedPageBreak")
_FORMAT, _FORMAT_END = "<w:rPr", "</w:rPr>"
_UNSEEN = re.compile(r"<w:(?:lang|noProof)\b[^<>]*/>")  # Word puts these around words for its spelling checker
_EMPTY = re.compile(r"<w:rPr\s*(?:/>|>\s*</w:rPr>)")
_LETTERS = re.compile(r"[^\W\d_]")
_Located = tuple[str | Code, int, int]


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """The largest archive that is unpacked: number of members, bytes of all together, and bytes of those with text."""

    members: int = 10_000
    bytes: int = 1 << 28
    text_bytes: int = 1 << 26


USUAL_LIMITS = ArchiveLimits()


class Docx(Document):
    """A document of Word. Runs of one format are one text, and a change of format is a pair of codes."""

    format = "docx"
    bilingual = False

    def __init__(self, data: bytes, name: str, limits: ArchiveLimits = USUAL_LIMITS) -> None:
        self._data = data
        self._contents: dict[str, Content] = {}
        self._places: dict[str, tuple[str, int, int, str]] = {}
        found: list[tuple[Unit, tuple[str, int, int, str]]] = []
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                _check(archive, name, limits)
                for info in archive.infolist():  # damaged members would only show when the document is written
                    archive.read(info)
                for member in archive.namelist():
                    if _TEXTS.fullmatch(member):
                        content = xml_content(archive.read(member), f"{name}, {member}")
                        self._contents[member] = content
                        found += _units(content, member)
        except _BROKEN as error:
            raise MalformedDocumentError(f"{name}: expected a DOCX archive, found: {error}") from error
        if "word/document.xml" not in self._contents:
            raise MalformedDocumentError(f"{name}: expected a DOCX archive, found one without word/document.xml")
        super().__init__(unit for unit, _ in found)
        self._places = {unit.id: place for unit, (_, place) in zip(self.units, found, strict=True)}

    def with_targets(self, targets: Mapping[str, Marked], _provenances: Provenances = NOTHING_KNOWN) -> Written:
        edits: dict[str, list[Edit]] = {}
        failures = {}
        for name, target in targets.items():
            member, start, end, properties = self._places[name]
            try:
                edits.setdefault(member, []).append(Edit(start, end, _runs(target, properties)))
            except UnitError as error:
                failures[name] = str(error)
        if not any(edits.values()):
            return Written(self._data, failures)
        return Written(self._rewritten(edits), failures)

    def _rewritten(self, edits: Mapping[str, Iterable[Edit]]) -> bytes:
        written = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self._data)) as old, zipfile.ZipFile(written, "w") as new:
            new.comment = old.comment
            for info in old.infolist():
                member = info.filename
                data = self._contents[member].replaced(edits[member]) if member in edits else old.read(info)
                new.writestr(info, data, compress_type=info.compress_type)
        return written.getvalue()


def _check(archive: zipfile.ZipFile, name: str, limits: ArchiveLimits) -> None:
    members = archive.infolist()
    names = Counter(each.filename for each in members)
    again = next((each for each, count in names.items() if count > 1), None)
    if again is not None:
        raise MalformedDocumentError(f"{name}: expected an archive with each member once, found {again!r} again")
    size = sum(each.file_size for each in members)
    text = sum(each.file_size for each in members if _TEXTS.fullmatch(each.filename))
    if len(members) > limits.members or size > limits.bytes or text > limits.text_bytes:
        raise MalformedDocumentError(
            f"{name}: expected an archive of at most {limits.members:,} members and {limits.bytes >> 20} MiB, of which "
            f"{limits.text_bytes >> 20} MiB are text, found {len(members):,}, {size >> 20:,} MiB and {text >> 20:,} MiB"
        )


def _units(content: Content, member: str) -> Iterator[tuple[Unit, tuple[str, int, int, str]]]:
    part = member.removeprefix("word/").removesuffix(".xml")
    number = 0
    for paragraph in parse(content).walk():
        if paragraph.name != "w:p":
            continue
        number += 1
        for parts, properties in _texts(content, paragraph):
            first, last = core(tuple(part for part, *_ in parts))
            while 0 < first < last and parts[first - 1][1:] == parts[first][1:]:  # a run is written as a whole
                first -= 1
            while first < last < len(parts) and parts[last][1:] == parts[last - 1][1:]:
                last += 1
            words = joined([part for part, *_ in parts[first:last]])
            if any(isinstance(each, str) and _LETTERS.search(each) for each in words):
                place = member, parts[first][1], parts[last - 1][2], properties
                yield Unit(f"{part}, paragraph {number}", words), place


def _texts(content: Content, container: Element) -> Iterator[tuple[list[_Located], str]]:
    """The texts of a paragraph, each with its most frequent properties; nested paragraphs separate them."""
    runs: list[Element] = []
    for child in container.children:
        if child.name == "w:pPr":
            continue
        if _holds(child, "w:p") or (child.name not in ("w:r", *_AROUND) and _holds(child, "w:t")):
            yield from _text(content, runs)
            runs = []
            if child.name not in ("w:r", "w:p"):
                yield from _texts(content, child)
        else:
            runs.append(child)
    yield from _text(content, runs)


def _holds(element: Element, name: str) -> bool:
    return any(each.name == name for each in element.walk() if each is not element)


def _text(content: Content, elements: list[Element]) -> Iterator[tuple[list[_Located], str]]:
    plain_runs = [each for element in elements for each in element.walk() if each.name == "w:r"]
    if not any(_holds(each, "w:t") for each in plain_runs):
        return
    sizes: dict[str, int] = {}
    for each in plain_runs:
        sizes[_properties(content, each)] = sizes.get(_properties(content, each), 0) + len(_words(content, each))
    base = max(sizes, key=lambda properties: sizes[properties])
    yield list(_Parts(content, base).of(elements)), base


class _Parts:
    """Turns runs into words and codes.

    base: the properties of what needs no code
    """

    def __init__(self, content: Content, base: str) -> None:
        self._content, self._base = content, base
        self._pairs = 0

    def of(self, elements: Iterable[Element]) -> Iterator[_Located]:
        found = [element for element in elements if element.name not in _NOISE]
        place = 0
        while place < len(found):
            element, start = found[place], place
            place += 1
            if element.name in _AROUND and not element.is_one_tag:
                yield from self._around(element)
            elif element.name != "w:r":
                yield Code(self._content.text[element.start : element.end]), element.start, element.end
            elif _begins_field(element):
                place = _field_end(found, start)
                shown = "".join(_words(self._content, each) for each in found[start:place])
                end = found[place - 1].end
                yield Code(self._content.text[element.start : end], shown=shown), element.start, end
            else:
                while place < len(found) and self._goes_on(element, found[place]):
                    place += 1
                yield from self._runs(found[start:place])

    def _around(self, element: Element) -> Iterator[_Located]:
        self._pairs += 1
        pair, text = self._pairs, self._content.text
        yield Code(text[element.start : element.inside], Role.OPENING, pair), element.start, element.inside
        yield from self.of(element.children)
        yield Code(text[element.inside_end : element.end], Role.CLOSING, pair), element.inside_end, element.end

    def _goes_on(self, run: Element, following: Element) -> bool:
        """Whether the next element is a run of the same format: Word splits runs anywhere."""
        return (
            following.name == "w:r"
            and not _begins_field(following)
            and _properties(self._content, run) == _properties(self._content, following)
        )

    def _runs(self, runs: list[Element]) -> Iterator[_Located]:
        """Runs of one format. All parts of a run have its position, because translations are written as new runs."""
        properties = _properties(self._content, runs[0])
        is_marked = properties != self._base and any(_words(self._content, run) for run in runs)
        self._pairs += is_marked
        pair = self._pairs
        if is_marked:
            yield Code(properties or f"{_FORMAT}/>", Role.OPENING, pair), runs[0].start, runs[0].end
        for run in runs:
            if _words(self._content, run) and not _is_repetitive(run, properties):
                yield from ((part, run.start, run.end) for part in self._held(run, properties))
            else:
                yield Code(self._content.text[run.start : run.end]), run.start, run.end
        if is_marked:
            yield Code(_FORMAT_END, Role.CLOSING, pair), runs[-1].start, runs[-1].end

    def _held(self, run: Element, properties: str) -> Iterator[str | Code]:
        """The words of a run, with the elements between them as separate runs."""
        for held in run.children:
            if held.name == "w:t":
                yield "".join(piece.text for piece in pieces(self._content.text[held.inside : held.inside_end]))
            elif held.name not in ("w:rPr", *_NOISE):
                yield Code(f"<w:r>{properties}{self._content.text[held.start : held.end]}</w:r>")


def _is_repetitive(run: Element, properties: str) -> bool:
    """Whether a run that is divided would become far longer. It is left as it is."""
    return len(properties) * len(run.children) > _MOST_REPEATED * (run.end - run.start)


def _begins_field(run: Element) -> bool:
    return any(each.name == "w:fldChar" and each.attributes.get("w:fldCharType") == "begin" for each in run.children)


def _field_end(elements: list[Element], start: int) -> int:
    """The end of the field that starts at an element: the number of the first element after it."""
    depth = 0
    for number in range(start, len(elements)):
        for each in elements[number].walk():
            if each.name == "w:fldChar":
                depth += {"begin": 1, "end": -1}.get(each.attributes.get("w:fldCharType", ""), 0)
        if depth == 0:
            return number + 1
    return len(elements)


def _properties(content: Content, run: Element) -> str:
    found = run.child("rPr")
    if found is not None and found.end - found.start > _MAX_FORMAT:
        line = content.line_number(found.start)
        raise MalformedDocumentError(
            f"{content.name}, line {line}: expected properties of a run in at most {_MAX_FORMAT:,} characters, found "
            f"{found.end - found.start:,}"
        )
    properties = _UNSEEN.sub("", content.text[found.start : found.end]) if found is not None else ""
    return "" if _EMPTY.fullmatch(properties) else properties


def _words(content: Content, run: Element) -> str:
    texts = (each for each in run.walk() if each.name == "w:t")
    return "".join(piece.text for each in texts for piece in pieces(content.text[each.inside : each.inside_end]))


def _runs(target: Marked, base: str) -> str:
    """A target as runs with the properties of the codes around them."""
    formats, written = [base], ""
    for part in target:
        if isinstance(part, str):
            text = "".join(each for each in part if each >= " " or each in "\t\n").replace("\n", " ")
            written += f'<w:r>{formats[-1]}<w:t xml:space="preserve">{escaped(text)}</w:t></w:r>' if text else ""
        elif part.raw.startswith(_FORMAT):
            formats.append(part.raw)
        elif part.raw == _FORMAT_END:
            if len(formats) == 1:
                raise UnitError("expected codes in pairs, found one that closes nothing")
            formats.pop()
        else:
            written += part.raw
    return written
