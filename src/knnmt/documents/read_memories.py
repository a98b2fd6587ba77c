"""Documents as memories: documents that people translated, pairs of files in two languages, and folders of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from knnmt.corpus.detection import detect_format
from knnmt.corpus.filters import FilterConfig, filter_pairs
from knnmt.corpus.languages import direction, is_tag, matches, plain_name
from knnmt.corpus.opening import origin_name
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.sides import SidesCheck
from knnmt.documents.document import Document, State, Unit
from knnmt.documents.opening import document_format, documents_in, open_document
from knnmt.errors import InputError
from knnmt.protection.marked import Marked

_STREAMED = (None, "po", "xliff", "tmx")  # the readers of memories accept any size
_BY_ID = ("android", "properties", "json", "yaml", "resx", "subtitles")
_TABLES = (".tsv", ".tab", ".csv")
_SEPARATED = re.compile(r"(^|[._-])([A-Za-z]{2,3}(?:[_-](?:r?[A-Za-z]{2}|[A-Za-z]{4}))?)(?=[._-]|$)")


def read_memories(
    memories: str | Path | Sequence[str | Path],
    config: ReadingConfig | None = None,
    report: ReadingReport | None = None,
    filters: FilterConfig | None = None,
) -> Iterator[SegmentPair]:
    """The pairs of all memories in order, read lazily.

    memories: TMX, XLIFF, SDLXLIFF, PO, TSV or CSV files, also compressed, in constant memory; Qt catalogs; folders; and
        pairs of text files or documents with one language: source and target as their names say, or in this order. In a
        folder, files whose names differ only in the language form a pair
    config: the languages, German and English by default, and how to read
    report: counts what happens to every unit
    filters: what to leave out; by default nothing
    """
    paths = [memories] if isinstance(memories, str | Path) else memories
    report = ReadingReport() if report is None else report
    pairs = _read(list(map(Path, paths)), config or ReadingConfig(), report)
    return pairs if filters is None else filter_pairs(pairs, filters, report.skipped)


def _read(memories: Sequence[Path], config: ReadingConfig, report: ReadingReport) -> Iterator[SegmentPair]:
    for job in jobs_of(memories, config):
        if len(job) == 1 and document_format(job[0]) == "qt":
            yield from _checked(_both_sides(open_document(job[0]), job[0], config, report), job[0], config, report)
        elif document_format(job[0]) in (*_STREAMED, "text"):
            yield from read_files(job, config, report)
        else:
            yield from _checked(_matched(job[0], job[1], config, report), job[0], config, report)


def _checked(
    pairs: Iterable[SegmentPair], path: Path, config: ReadingConfig, report: ReadingReport
) -> Iterator[SegmentPair]:
    sides = SidesCheck(path, document_format(path) or "", config)
    for pair in pairs:
        report.pairs += 1
        sides.see(pair)
        yield pair
    sides.end()


def jobs_of(memories: Sequence[Path], config: ReadingConfig) -> Iterator[list[Path]]:
    """Single files, or pairs of files: source and target."""
    remaining = iter(memories)
    for path in remaining:
        if path.is_dir():
            yield from _in_folder(path, config)
        elif config.format is not None or _is_bilingual(path):
            both = config.format == "text" or (config.format is None and document_format(path) == "text")
            yield [path, *([second] if both and (second := next(remaining, None)) else [])]
        else:
            second = next(remaining, None)
            if second is None or document_format(second) != document_format(path):
                raise InputError(
                    f"{path}: expected two files of {document_format(path)} in a row, source and target, because it "
                    f"holds one language; found {second or 'no second one'}. Or name the folder that both are in"
                )
            yield [second, path] if _target_comes_first(path, second, config) else [path, second]


def _target_comes_first(first: Path, second: Path, config: ReadingConfig) -> bool:
    """Whether the names of two files, or their folders, say that the first is the target."""
    sides = [named_side(path, config) for path in (first, second)]
    if sides[0] is not None and sides[0] == sides[1]:
        raise InputError(
            f"{first} and {second}: expected a {config.source_language} and a {config.target_language} file, but both "
            f"names say {config.languages[sides[0]]}. Name the files in pairs"
        )
    return sides[0] == 1 or sides[1] == 0


def named_side(path: Path, config: ReadingConfig) -> int | None:
    """The side that the name of a file, or of a folder above it, says: 0 for the source, 1 for the target."""
    return next(iter([side for side, _ in _sides(path, config) if side is not None][-1:]), None)


def _is_bilingual(path: Path) -> bool:
    return document_format(path) in (*_STREAMED, "qt", "text")


def _in_folder(folder: Path, config: ReadingConfig) -> Iterator[list[Path]]:
    known = {*documents_in(folder), *(path for path in folder.rglob("*") if _is_memory(path))}
    waiting: dict[str, dict[int | None, Path]] = {}
    found = False
    for path in sorted(known):
        if document_format(path) in (*_STREAMED, "qt"):
            found = True
            yield [path]
            continue
        for side, key in _sides(path.relative_to(folder), config):
            waiting.setdefault(key, {}).setdefault(side, path)
    for sides in waiting.values():
        # A file without a language in its name is the other side of one that has one.
        source, target = (sides.get(side, sides.get(None)) for side in (0, 1))
        if source is not None and target is not None and source != target:
            found = True
            yield [source, target]
    if not found:
        raise InputError(
            f"{folder}: expected a folder with memories, or with documents in {' and '.join(config.languages)} whose "
            "names differ by their languages, found none"
        )


def _is_memory(path: Path) -> bool:
    named = plain_name(path)
    is_packed = named != path and path.is_file()
    return path.is_file() and (
        named.suffix.lower() in _TABLES or (is_packed and detect_format(Path(named), b"") != "text")
    )


def _sides(path: PurePath, config: ReadingConfig) -> Iterator[tuple[int | None, str]]:
    """The side of a file (None for either), with its name without the language, for each way to read it."""
    yield None, str(path)
    for place, part in enumerate(path.parts):
        for found in _SEPARATED.finditer(part):
            tag = re.sub(r"[_-]r?(?=[A-Z]{2}$)", "-", found[2])
            for side, asked in enumerate(config.languages):
                if is_tag(tag) and matches(asked, tag):
                    rest = part[: found.start()] + part[found.end() :]
                    yield side, str(PurePath(*path.parts[:place], rest, *path.parts[place + 1 :]))


def _both_sides(document: Document, path: Path, config: ReadingConfig, report: ReadingReport) -> Iterator[SegmentPair]:
    """The pairs of a document with two sides."""
    way = direction(config.languages, *document.languages)
    if way is None:
        described = " to ".join(each or "unstated" for each in document.languages)
        report.skip(f"file is {described}", len(document.units))
        return
    for unit in document.units:
        if not unit.translatable:
            report.skip("not to be translated")
        elif unit.state is State.UNTRANSLATED or unit.target is None:
            report.skip("untranslated")
        elif unit.state is State.FUZZY and not config.unfinished:
            report.skip("fuzzy")
        else:
            sides = (unit.source, unit.target) if way == "same" else (unit.target, unit.source)
            origin = f"{origin_name(path)}#{unit.id}"
            if pair := report.admit(_text(sides[0]), _text(sides[1]), origin, unit.context):
                yield pair


def _matched(first: Path, second: Path, config: ReadingConfig, report: ReadingReport) -> Iterator[SegmentPair]:
    """The pairs of two documents of one language each."""
    units = matched_units(open_document(first), open_document(second), config)
    if units is None:
        report.skip("files with different numbers of units, which cannot be paired")
        return
    for unit in units:
        if unit.target is None:
            report.skip("no unit of the same name in the other file")
        elif not unit.translatable:
            report.skip("not to be translated")
        else:
            origin = f"{origin_name(first)}#{unit.id}"
            if pair := report.admit(_text(unit.source), _text(unit.target), origin, unit.context):
                yield pair


def matched_units(source: Document, target: Document, config: ReadingConfig) -> list[Unit] | None:
    """The units of one document with those of another as their targets: by id, or by order.

    None if they cannot be paired.
    """
    if source.format in _BY_ID:
        others = {_own(unit.id, config): unit for unit in target.units}
        partners = [others.get(_own(unit.id, config)) for unit in source.units]
    elif len(source.units) == len(target.units):
        partners = list(target.units)
    else:
        return None
    return [
        replace(unit, target=other.source, state=State.TRANSLATED) if other is not None else unit
        for unit, other in zip(source.units, partners, strict=True)
    ]


def _own(name: str, config: ReadingConfig) -> str:
    """An id without the language that Rails puts at its beginning."""
    first, dot, rest = name.partition(".")
    is_language = dot and is_tag(first) and any(matches(asked, first) for asked in config.languages)
    return rest if is_language else name


def _text(text: Marked) -> str:
    """The words of a text, with the readable text of its codes."""
    return "".join(part if isinstance(part, str) else part.shown for part in text)
