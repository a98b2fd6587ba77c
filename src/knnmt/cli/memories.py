"""What `build` and `add` share: the options for reading memories, and the words about what was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from knnmt.corpus.filters import FilterConfig, filter_pairs
from knnmt.corpus.options import FORMATS, ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_memories
from knnmt.corpus.report import ReadingReport

Memories = Annotated[
    list[Path],
    typer.Argument(
        metavar="MEMORY...",
        help="TMX, XLIFF, SDLXLIFF, PO, TSV or CSV files, or text files two by two (source, target); "
        "also compressed with gzip, xz or zstd.",
        show_default=False,
    ),
]
SourceLanguage = Annotated[str, typer.Option("--source-lang", help="Language to translate from.")]
TargetLanguage = Annotated[str, typer.Option("--target-lang", help="Language to translate to.")]
Format = Annotated[
    str | None,
    typer.Option("--format", help=f"One of {', '.join(FORMATS)}.  [default: by content and name]", show_default=False),
]
KeepInline = Annotated[
    bool, typer.Option("--keep-inline", help="Keep the text of inline codes instead of dropping it.")
]
KeepAccelerators = Annotated[
    bool, typer.Option("--keep-accelerators", help="Keep accelerator marks (&File, _File) of PO entries.")
]
Unfinished = Annotated[
    bool, typer.Option("--unfinished", help="Take XLIFF units not marked as translated, and fuzzy PO entries, too.")
]
SkipMalformed = Annotated[
    bool, typer.Option("--skip-malformed", help="Leave out malformed units and count them, instead of stopping.")
]
CatalogLanguage = Annotated[
    str | None,
    typer.Option(
        "--catalog-lang", help="Language of a PO file's translations, if it does not say.", show_default=False
    ),
]
MaxCharacters = Annotated[
    int | None, typer.Option(min=1, help="Leave out pairs with a longer side.", show_default=False)
]
MaxRatio = Annotated[
    float | None, typer.Option(min=1, help="Leave out pairs whose sides differ more in length.", show_default=False)
]
DropCopies = Annotated[bool, typer.Option("--drop-copies", help="Leave out pairs whose target is the source.")]
DropDuplicates = Annotated[bool, typer.Option("--drop-duplicates", help="Leave out pairs that came before.")]


@dataclass(slots=True)
class MemoryReading:
    """Memories to read, how, and what became of their units."""

    paths: list[Path]
    reading: ReadingConfig
    filters: FilterConfig
    report: ReadingReport = field(default_factory=ReadingReport)
    filtered: Counter[str] = field(default_factory=Counter)

    def pairs(self) -> Iterator[SegmentPair]:
        """The pairs, read as they are asked for."""
        return filter_pairs(read_memories(self.paths, self.reading, self.report), self.filters, self.filtered)

    def count(self) -> int:
        """How many pairs there will be: reads everything once, which takes little beside encoding it."""
        uncounted = MemoryReading(self.paths, self.reading, self.filters)
        return sum(1 for _ in uncounted.pairs())

    def summary(self, dropped: Counter[str] | None = None) -> list[str]:
        """Lines that account for every unit: read, left out and why, noted, malformed."""
        report = self.report
        lines = [f"read       {report.pairs:,} pairs from {len(self.paths)} file{'s' * (len(self.paths) != 1)}"]
        left_out = report.skipped + self.filtered + (dropped or Counter())
        lines += [f"left out   {count:,}  {reason}" for reason, count in left_out.most_common()]
        lines += [f"noted      {count:,}  {remark}" for remark, count in report.noted.most_common()]
        if report.malformed:
            lines.append(f"malformed  {report.malformed:,} units, left out; the first:")
            lines += [f"           {problem}" for problem in report.problems[:5]]
        return lines


def in_words(count: int) -> str:
    """Bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
