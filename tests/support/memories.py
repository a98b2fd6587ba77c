"""Reading a memory that a test wrote as a string."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport


def read(path: Path, content: str | bytes, **settings: Any) -> tuple[list[tuple[str, str]], ReadingReport]:
    """The pairs of a file with that content, without origins, and the report."""
    triples, report = read_with_origins(path, content, **settings)
    return [(source, target) for source, target, _ in triples], report


def contexts(path: Path, content: str, **settings: Any) -> list[str]:
    """The contexts of the pairs of a file with that content."""
    path.write_text(content, "utf-8")
    return [pair.context for pair in read_files([path], ReadingConfig(**settings), ReadingReport())]


def read_with_origins(
    path: Path, content: str | bytes, **settings: Any
) -> tuple[list[tuple[str, str, str]], ReadingReport]:
    """The same, where an origin is what follows the path and the hash sign."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    report = ReadingReport()
    pairs = list(read_files([path], ReadingConfig(**settings), report))
    assert report.pairs == len(pairs)
    return [(pair.source, pair.target, pair.origin.removeprefix(f"{path}#")) for pair in pairs], report
