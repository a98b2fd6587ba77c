"""Memories, documents and folders that can be read several times, with an account of every unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from knnmt.config import check
from knnmt.corpus.filters import FilterConfig
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import AnyPair, SegmentPair, as_pairs
from knnmt.corpus.report import ReadingReport, counted
from knnmt.corpus.visible import visible
from knnmt.documents.read_memories import read_memories
from knnmt.errors import InputError


@dataclass(slots=True)
class MemoryReading:
    """Memories to read, the settings for reading, and what became of their units in the last reading."""

    paths: Sequence[Path]
    reading: ReadingConfig
    filters: FilterConfig | None = None
    report: ReadingReport = field(default_factory=ReadingReport)

    def pairs(self) -> Iterator[SegmentPair]:
        """The pairs, read lazily; the report starts again."""
        self.report = ReadingReport()
        return read_memories(self.paths, self.reading, self.report, self.filters)

    def count(self) -> int | None:
        """The number of pairs. This reads everything once, which takes little time compared with encoding.

        None if it cannot be known, because the content of a pipe comes only once.
        """
        if not all(path.is_file() or path.is_dir() for path in self.paths):
            return None
        return sum(1 for _ in read_memories(self.paths, self.reading, filters=self.filters))

    def require_files(self) -> None:
        """Raise an error for pipes, which can only be read once."""
        for path in self.paths:
            if path.exists() and not path.is_file() and not path.is_dir():
                raise InputError(
                    f"{path}: expected a file or a folder, because adapting reads a memory several times. Save the "
                    f"memory to a file first"
                )

    def brief(self) -> str:
        """One line: the units that were read, and those left out with the most frequent reasons."""
        first, report = self.summary()[0], self.report
        left_out = report.skipped + Counter({"malformed": report.malformed})
        if not left_out:
            return first
        reasons = [f"{count:,} {visible(reason)}" for reason, count in left_out.most_common(3)]
        others = left_out.total() - sum(count for _, count in left_out.most_common(3))
        reasons += [f"{others:,} for other reasons"] if others else []
        return f"{first}; left out: {', '.join(reasons)}"

    def summary(self, dropped: Counter[str] | None = None) -> list[str]:
        """Lines that account for every unit: read, left out and why, noted, malformed."""
        report = self.report
        folders = sum(path.is_dir() for path in self.paths)
        kinds = ((len(self.paths) - folders, "file"), (folders, "folder"))
        places = " and ".join(counted(number, kind) for number, kind in kinds if number)
        lines = [f"read       {counted(report.pairs, 'pair')} from {places}"]
        left_out = report.skipped + (dropped or Counter())
        lines += [f"left out   {count:,}  {visible(reason)}" for reason, count in left_out.most_common()]
        lines += [f"noted      {count:,}  {visible(remark)}" for remark, count in report.noted.most_common()]
        if report.malformed:
            lines.append(f"malformed  {counted(report.malformed, 'unit')}, left out; the first:")
            lines += [f"           {visible(problem)}" for problem in report.problems[:5]]
        return lines


MemoriesOrPairs = str | Path | Sequence[str | Path] | Iterable[AnyPair] | MemoryReading


def files_or_pairs(
    memories: MemoriesOrPairs, reading: ReadingConfig, languages: tuple[str | None, str | None] | None = None
) -> MemoryReading | Iterable[SegmentPair]:
    """Files as memories to read, with these settings unless they have their own; pairs of any form as segment pairs.

    A sequence can be read several times.

    languages: of pairs with texts by language; by default those of `reading`
    """
    if isinstance(memories, MemoryReading):
        return memories
    if isinstance(memories, str | Path):
        return MemoryReading([Path(memories)], reading)
    languages = languages or (reading.source_language, reading.target_language)
    if isinstance(memories, Sequence):
        paths = [Path(each) for each in memories if isinstance(each, str | Path)]
        check(len(paths) in (0, len(memories)), "memories must be either all files or all pairs; found both")
        if paths:
            return MemoryReading(paths, reading)
        return list(as_pairs(memories, languages))
    return as_pairs(memories, languages)
