"""Streams the units of an XML file, in memory that does not grow with the file.

Nothing is fetched or expanded: external DTDs are not loaded, and entity declarations are an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BufferedReader
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, cast

from knnmt.corpus.opening import HEAD
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.prolog import read_prolog
from knnmt.corpus.report import ReadingReport
from knnmt.errors import MalformedMemoryError, MissingDependencyError

if TYPE_CHECKING:
    from lxml import etree

_MAX_PROLOG_BYTES = 1 << 20
_MAX_PIECE_BYTES = 1 << 20
# Limits for the content between two units, which is all in memory: bytes, and marks that each make an object.
_MAX_UNIT_BYTES = 1 << 26
_MAX_MARKS = 1 << 20
_MAX_DEPTH = 100


def read_units(
    stream: BufferedReader,
    name: str,
    root: str,
    units: tuple[str, ...],
    parts: tuple[str, ...],
    config: ReadingConfig,
    report: ReadingReport,
) -> Iterator[etree._Element]:
    """Finished elements called one of `units` or `parts`, in any namespace; each is emptied when the next is requested.

    If XML is broken and `config` asks to continue, problems are counted, and the units that contain them are left out.
    """
    try:
        from lxml import etree
    except ImportError as error:
        raise MissingDependencyError("lxml", f"reading {name}, which is {root.upper()},", "formats") from error
    start = _safe_start(stream, name, root)
    parser = etree.XMLPullParser(
        events=("end",),
        tag=[f"{{*}}{tag}" for tag in (*units, *parts)],
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        recover=config.on_error == "skip",
        # Original documents embedded in XLIFF exceed the usual limit of 10 MB for a text. `_Held` has its own limits.
        huge_tree=True,
    )  # collect_ids stays on: switching it off makes lxml 6 load external DTDs
    pieces = _pieces(start, stream, units) if config.on_error == "skip" else _chunks(start, stream)
    is_first = True
    for element in _elements(parser, pieces, name, units, config, report):
        if is_first:
            _check_declarations(element, name)
            is_first = False
        yield element
        _release(element)


def local_name(element: etree._Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _safe_start(stream: BufferedReader, name: str, root: str) -> bytes:
    """The beginning of the file, once it is known to have the right root element and no entity declaration."""
    head = b""
    while True:
        more = stream.read(HEAD)
        head += more
        prolog = read_prolog(head)
        if prolog.entity is not None:
            raise _entity_error(name, prolog.entity)
        if prolog.error is not None:
            raise MalformedMemoryError(f"{name}: expected the XML of a {root} file, found: {prolog.error}")
        if prolog.reached:
            break
        if not more or len(head) > _MAX_PROLOG_BYTES:
            raise MalformedMemoryError(f"{name}: expected XML with the root element <{root}>, found no element")
    if prolog.root != root:
        raise MalformedMemoryError(
            f"{name}: expected XML with the root element <{root}>, found <{prolog.root}>. "
            "If the format was given as an option, it may be the wrong one"
        )
    return head


def _check_declarations(element: etree._Element, name: str) -> None:
    """A second check by the actual parser, in case the two parsers ever read a DOCTYPE differently."""
    dtd: Any = element.getroottree().docinfo.internalDTD
    for entity in dtd.entities() if dtd is not None else ():
        raise _entity_error(name, entity.name or "")


def _entity_error(name: str, entity: str) -> MalformedMemoryError:
    return MalformedMemoryError(
        f"{name}: declares the entity {entity!r} in its DOCTYPE. knnmt does not read files that declare entities, "
        f"because entities can expand without end or include other files; replace it by its text "
        "and remove the declaration"
    )


def _chunks(start: bytes, stream: BufferedReader) -> Iterator[bytes]:
    yield start
    while chunk := stream.read(HEAD):
        yield chunk


def _elements(
    parser: etree.XMLPullParser,
    pieces: Iterator[bytes],
    name: str,
    units: tuple[str, ...],
    config: ReadingConfig,
    report: ReadingReport,
) -> Iterator[etree._Element]:
    from lxml import etree

    seen = 0
    held = _Held(name, units)
    for piece in chain(pieces, [b""]):
        held.add(piece)
        failure = None
        try:
            if piece:
                parser.feed(piece)
            else:
                parser.close()
        except etree.XMLSyntaxError as error:
            failure = error
        # The log knows more than the exception, which is missing after some errors and vague after others.
        log = list(parser.feed_error_log)
        errors = [(error.line, error.message) for error in log[seen:] if error.level >= etree.ErrorLevels.ERROR]
        if failure and not errors:
            errors = [(failure.lineno or 0, failure.msg or "")]
        seen = len(log)
        for line, message in errors:
            report.problem(f"{name}, line {line}", f"expected well-formed XML, found: {message}", config)
        elements = [cast("etree._Element", element) for _, element in parser.read_events()]
        if elements:
            held.release(elements[-1])
        # A piece usually ends with its only unit; if the parser held several back, line numbers show the broken one.
        lines = [element.sourceline for element in elements] + [1 << 62]
        for element, first, last in zip(elements, lines, lines[1:], strict=False):
            if local_name(element) in units and any(first <= line <= last for line, _ in errors):
                report.skip("unit with broken XML")
                _release(element)
            else:
                yield element


class _Held:
    """Counts the data in memory since the last unit ended, and raises an error if it grows too large."""

    def __init__(self, name: str, units: tuple[str, ...]) -> None:
        self._name = name
        self._expected = f"expected elements <{'> or <'.join(units)}>"
        self._bytes = self._marks = 0

    def add(self, piece: bytes) -> None:
        self._bytes += len(piece)
        self._marks += sum(map(piece.count, (b"<", b"=", b"&")))
        if self._bytes > _MAX_UNIT_BYTES or self._marks > _MAX_MARKS:
            found = f"{self._bytes >> 10:,} KiB and {self._marks:,} marks without the end of an element"
            raise MalformedMemoryError(f"{self._name}: {self._expected}, found {found}")

    def release(self, element: etree._Element) -> None:
        """Call after an element has ended; only the elements around it stay."""
        around = list(islice(element.iterancestors(), _MAX_DEPTH + 1))
        if len(around) > _MAX_DEPTH:
            raise MalformedMemoryError(
                f"{self._name}: {self._expected}, found one inside more than {_MAX_DEPTH} elements"
            )
        if self._bytes > _MAX_PIECE_BYTES:  # otherwise they cannot be long
            names = (text for each in around for text in (*each.values(), *each.nsmap.values()))
            if sum(map(len, names)) > _MAX_PIECE_BYTES:
                raise MalformedMemoryError(
                    f"{self._name}: {self._expected}, found one inside elements with huge attributes"
                )
        self._bytes = self._marks = 0


def _pieces(start: bytes, stream: BufferedReader, units: tuple[str, ...]) -> Iterator[bytes]:
    """The file cut after every unit, so that each error belongs to one unit."""
    encoding = {b"\xff\xfe": "utf-16-le", b"<\x00": "utf-16-le", b"\xfe\xff": "utf-16-be", b"\x00<": "utf-16-be"}
    closing = [f"</{unit}>".encode(encoding.get(start[:2], "utf-8")) for unit in units]
    end = re.compile(b"|".join(map(re.escape, closing)))
    rest = b""
    for chunk in _chunks(start, stream):
        rest += chunk
        done = 0
        for match in end.finditer(rest):
            yield rest[done : match.end()]
            done = match.end()
        rest = rest[done:]
        if len(rest) > _MAX_PIECE_BYTES:
            yield rest
            rest = b""
    if rest:
        yield rest


def _release(element: etree._Element) -> None:
    """Free an element and everything before it, except the elements that contain it."""
    element.clear()
    while (parent := element.getparent()) is not None:
        parent.text = None
        while element.getprevious() is not None:
            del parent[0]
        element = parent
