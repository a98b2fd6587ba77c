"""Memories in columns: TSV, where a tab always separates, and CSV, where fields may be quoted and span lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import BufferedReader

from knnmt.corpus.lines import MAX_LINE_BYTES, decode_line, raw_lines, refuse_utf16, without_end
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.report import ReadingReport, UnitError
from knnmt.errors import MalformedMemoryError

_DELIMITERS = "\t;,"


def read_tsv(stream: BufferedReader, name: str, config: ReadingConfig, report: ReadingReport) -> Iterator[SegmentPair]:
    """Pairs of a TSV file. There is no quoting: a quotation mark is a character like any other."""
    yield from _pairs(_tsv_records(stream, name, config, report), name, config, report)


def _tsv_records(
    stream: BufferedReader, name: str, config: ReadingConfig, report: ReadingReport
) -> Iterator[tuple[int, Sequence[str]]]:
    columns = config.last_column
    for number, line in _lines(stream, name, config, report):
        record = without_end(line)
        if "\r" in record:
            message = "expected a line, found a carriage return in it. If those are the line ends, convert them first"
            report.problem(f"{name}, line {number}", message, config)
        else:
            yield number, record.split("\t", columns)  # any number of columns may follow


def read_csv(stream: BufferedReader, name: str, config: ReadingConfig, report: ReadingReport) -> Iterator[SegmentPair]:
    """Pairs of a CSV file, separated as `config.delimiter` says or as the first line suggests."""
    yield from _pairs(_csv_records(stream, name, config, report), name, config, report)


def _lines(
    stream: BufferedReader, name: str, config: ReadingConfig, report: ReadingReport
) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(raw_lines(stream, name), start=1):
        if number == 1:
            refuse_utf16(raw, name)
        try:
            yield number, decode_line(raw, number)
        except UnitError as error:
            report.problem(f"{name}, line {number}", str(error), config)


class _CsvLines:
    """Passes lines to the csv module and keeps their numbers, which differ from its own if a line was broken."""

    def __init__(self, lines: Iterator[tuple[int, str]], name: str) -> None:
        self._lines = lines
        self._name = name
        self.taken = 0  # characters of the current record
        self._ahead = next(lines, None)
        self.number = 0
        self.first = self._ahead[1] if self._ahead else ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._ahead is None:
            raise StopIteration
        self.number, line = self._ahead
        self.taken += len(line)
        if self.taken > MAX_LINE_BYTES:
            raise MalformedMemoryError(
                f"{self._name}, line {self.number}: expected a CSV record, found one of more than "
                f"{MAX_LINE_BYTES >> 20} MiB without an end. Is a quotation mark missing before it?"
            )
        self._ahead = next(self._lines, None)
        return line

    @property
    def next_number(self) -> int:
        return self._ahead[0] if self._ahead else self.number + 1


def _csv_records(
    stream: BufferedReader, name: str, config: ReadingConfig, report: ReadingReport
) -> Iterator[tuple[int, Sequence[str]]]:
    lines = _CsvLines(_lines(stream, name, config, report), name)
    # Strict, because otherwise an unclosed quote silently swallows the rest of the file.
    records = csv.reader(lines, delimiter=config.delimiter or _delimiter(lines.first, config), strict=True)
    while True:
        start, lines.taken = lines.next_number, 0
        try:
            yield start, next(records)
        except StopIteration:
            return
        except csv.Error as error:
            message = f"expected a CSV record, found one that ends in line {lines.number} with: {error}"
            report.problem(f"{name}, line {start}", message, config)


def _delimiter(line: str, config: ReadingConfig) -> str:
    """The delimiter that gives enough columns but the fewest, because sentences also contain commas and semicolons."""
    counts = {mark: _columns(line, mark) for mark in _DELIMITERS}
    enough = {mark: count for mark, count in counts.items() if count >= config.last_column}
    return min(enough or {",": 0}, key=lambda mark: enough.get(mark, 0))


def _columns(line: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([without_end(line)], delimiter=delimiter), []))
    except csv.Error:  # not a record with this delimiter; the reader reports the problem
        return 0


def _pairs(
    records: Iterator[tuple[int, Sequence[str]]], name: str, config: ReadingConfig, report: ReadingReport
) -> Iterator[SegmentPair]:
    before, columns = not config.header, config.last_column
    for number, fields in records:
        if not before:
            before = True
            report.skip("header line")
        elif not any(fields) and len(fields) <= 1:
            report.skip("empty line")
        elif len(fields) < columns:
            message = f"expected at least {columns} columns, found {len(fields)}"
            report.problem(f"{name}, line {number}", message, config)
        else:
            origin = fields[config.origin_column - 1] if config.origin_column else ""
            pair = report.admit(
                fields[config.source_column - 1], fields[config.target_column - 1], origin or f"{name}#{number}"
            )
            if pair:
                yield pair
