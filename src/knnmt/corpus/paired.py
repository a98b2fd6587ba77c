"""Memories in two text files: one has the source and the other the target, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path

from knnmt.corpus.languages import matches, name_tags
from knnmt.corpus.lines import decode_line, raw_lines, refuse_utf16, without_end
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.report import ReadingReport, UnitError
from knnmt.errors import InputError, MalformedMemoryError


def target_comes_first(first: Path, second: Path, config: ReadingConfig) -> bool:
    """Whether the language tags at the ends of the names say that the first file has the target."""
    sides = [_side(path, config) for path in (first, second)]
    if sides[0] is not None and sides[0] == sides[1]:
        language = config.languages[sides[0]]
        raise InputError(
            f"{first} and {second}: expected a {config.source_language} and a {config.target_language} file, but both "
            f"names end in {language}. Rename one, or name the files in pairs"
        )
    return sides[0] == 1 or sides[1] == 0


def _side(path: Path, config: ReadingConfig) -> int | None:
    for tag in name_tags(path):
        for side, asked in enumerate(config.languages):
            if matches(asked, tag):
                return side
    return None


def read_paired(
    source: BufferedReader,
    source_name: str,
    target: BufferedReader,
    target_name: str,
    config: ReadingConfig,
    report: ReadingReport,
) -> Iterator[SegmentPair]:
    """Pairs of lines with the same number. Files of unequal length always stop the reading: their lines may have
    shifted against each other long before one of them ends.
    """
    names = (source_name, target_name)
    for number, raw in enumerate(zip_longest(*map(raw_lines, (source, target), names)), start=1):
        lines = []
        for name, line in zip(names, raw, strict=True):
            if line is None:
                other = names[1 - names.index(name)]
                raise MalformedMemoryError(
                    f"{other}, line {number}: has no partner, because {name} ends after line {number - 1}. "
                    f"Expected two files with the same number of lines; check that they belong together"
                )
            if number == 1:
                refuse_utf16(line, name)
            try:
                lines.append(without_end(decode_line(line, number)))
            except UnitError as error:
                report.problem(f"{name}, line {number}", str(error), config)
        if len(lines) == 2 and (pair := report.admit(lines[0], lines[1], f"{source_name}#{number}")):
            yield pair
