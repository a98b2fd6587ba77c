"""Reads translation memories of any format, one pair at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path

from knnmt.corpus.detection import detect_format
from knnmt.corpus.opening import open_stream, origin_name
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.paired import read_paired, target_comes_first
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.plain_text import MEMORIES, document_kind, require_text
from knnmt.corpus.po import read_po
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.sides import SidesCheck
from knnmt.corpus.tabular import read_csv, read_tsv
from knnmt.corpus.tmx import read_tmx
from knnmt.corpus.xliff import read_xliff
from knnmt.errors import InputError

_Reader = Callable[[BufferedReader, str, ReadingConfig, ReadingReport], Iterator[SegmentPair]]
_READERS: dict[str, _Reader] = {
    "tsv": read_tsv,
    "csv": read_csv,
    "tmx": read_tmx,
    "xliff": read_xliff,
    "po": read_po,
}


def read_files(
    files: Sequence[Path], config: ReadingConfig | None = None, report: ReadingReport | None = None
) -> Iterator[SegmentPair]:
    """Pairs of all files in order, read on demand in constant memory. `knnmt.read_memories` reads documents as well.

    Args:
        files: TMX, XLIFF, SDLXLIFF, PO, TSV or CSV files, also compressed. Two plain-text files in a row are the two
            sides of one memory: the language tags at the end of their names say which is the source, otherwise it is
            the first.
        config: the languages, German and English by default, and how to read.
        report: counts what happens to every unit.
    """
    config, report = config or ReadingConfig(), ReadingReport() if report is None else report
    remaining = iter(files)
    for path in remaining:
        with ExitStack() as opened:
            stream, found = _open(path, config, opened)
            if found == "text":
                pairs = _text_pairs(path, stream, next(remaining, None), config, report, opened)
            else:
                pairs = _READERS[found](stream, origin_name(path), config, report)
            sides = SidesCheck(path, found, config)
            for pair in pairs:
                report.pairs += 1
                sides.see(pair)
                yield pair
            sides.end()


def _open(path: Path, config: ReadingConfig, opened: ExitStack) -> tuple[BufferedReader, str]:
    stream = opened.enter_context(open_stream(path, config.max_bytes))
    require_text(path, stream.peek())
    return stream, config.format or detect_format(path, stream.peek())


def _text_pairs(
    first: Path,
    first_stream: BufferedReader,
    second: Path | None,
    config: ReadingConfig,
    report: ReadingReport,
    opened: ExitStack,
) -> Iterator[SegmentPair]:
    advice = "Plain text needs two files in a row, source and target; in one file, put a tab between them"
    if config.format is None and (kind := document_kind(first, first_stream.peek())):
        raise InputError(f"{first}: expected a translation memory, found {kind}. Memories are {MEMORIES}")
    if second is None:
        raise InputError(f"{first}: is a text file without a partner. {advice}")
    second_stream, found = _open(second, config, opened)
    if found != "text":
        raise InputError(f"{first}: is a text file without a partner; the next file {second} is {found}. {advice}")
    sides = [(first_stream, origin_name(first)), (second_stream, origin_name(second))]
    if target_comes_first(first, second, config):
        sides.reverse()
    (source, source_name), (target, target_name) = sides
    return read_paired(source, source_name, target, target_name, config, report)
