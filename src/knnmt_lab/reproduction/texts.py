"""The text of a domain: for its store, for tuning, and for the report.

DATA/<domain>/ has train.*, dev.* and optionally test.*, in any format that `corpus` reads; plain text has two files.
Without test.*, dev is divided by a fixed hash of its sources: one half is for tuning, the other for the report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knnmt import ReadingConfig, ReadingReport, SegmentPair, halves, overlap, read_memories, spread
from knnmt.errors import InputError


@dataclass(frozen=True, slots=True)
class DomainText:
    """The texts for tuning and for the report.

    reported_from: "test", or "half of dev"
    known: how many reported pairs have a source that is also in the training text
    """

    tuning: list[SegmentPair]
    reported: list[SegmentPair]
    reported_from: str
    known: int

    @property
    def sources(self) -> list[str]:
        return [pair.source for pair in self.reported]

    @property
    def references(self) -> list[str]:
        return [pair.target for pair in self.reported]

    def as_record(self) -> dict[str, Any]:
        """A record, from which `of_record` makes the text again on a machine without the data."""
        return {
            "reported_from": self.reported_from,
            "known": self.known,
            "reported": [[pair.source, pair.target] for pair in self.reported],
            "tuning": [[pair.source, pair.target] for pair in self.tuning],
        }

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> DomainText:
        tuning, reported = (
            [SegmentPair(source, target, f"{name}#{number}") for number, (source, target) in enumerate(record[name])]
            for name in ("tuning", "reported")
        )
        return cls(tuning, reported, record["reported_from"], record["known"])


def domains_in(data: Path) -> list[str]:
    """The names of the directories that have training text."""
    if not data.is_dir():
        raise InputError(f"{data}: expected a directory with a subdirectory for each domain")
    found = sorted(each.name for each in data.iterdir() if each.is_dir() and _files(each, "train"))
    if not found:
        raise InputError(f"{data}: expected DOMAIN/train.* and DOMAIN/dev.* in it, found no train.* in any directory")
    return found


def _files(domain: Path, part: str) -> list[Path]:
    return sorted(path for path in domain.glob(f"{part}.*") if path.is_file())


def files_of(domain: Path) -> list[Path]:
    """All files of a domain; raise an error if one is missing."""
    for part in ("train", "dev"):
        if not _files(domain, part):
            raise InputError(f"{domain}: expected {part}.* in any format of `knnmt build`, found none")
    return [path for part in ("train", "dev", "test") for path in _files(domain, part)]


def digest(domain: Path) -> str:
    """A digest of all files, because results of another text are other results."""
    found = hashlib.sha256()
    for path in files_of(domain):
        with path.open("rb") as file:
            found.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()[:16]


def read_training(domain: Path, languages: tuple[str, str], pairs: int) -> list[SegmentPair]:
    """This many pairs from the whole training text; 0 for all."""
    found = _read(domain, "train", languages)
    return spread(found, pairs) if pairs else found


def read_text(domain: Path, languages: tuple[str, str], sentences: int, training: Sequence[SegmentPair]) -> DomainText:
    """The text for tuning, without sources of the training or the reported text, and the reported text.

    sentences: of the reported text, at most, from all parts of it; 0 for all
    """
    development = _read(domain, "dev", languages)
    tuning = development if _files(domain, "test") else halves(development)[0]
    whole, origin = read_reported(domain, languages, 0)
    reported = spread(whole, sentences) if sentences else whole
    new = list(overlap([*training, *whole], tuning).new)
    if not new or not reported:
        raise InputError(
            f"{domain}: too little text: {len(new)} pairs for tuning whose source is neither in train.* nor "
            f"reported, {len(reported)} to report"
        )
    return DomainText(new, reported, origin, len(overlap(training, reported).known))


def read_reported(domain: Path, languages: tuple[str, str], sentences: int) -> tuple[list[SegmentPair], str]:
    """The reported text alone, at most this many sentences from all parts of it (0 for all), and where it is from."""
    if _files(domain, "test"):
        found, origin = _read(domain, "test", languages), "test"
    else:
        found, origin = halves(_read(domain, "dev", languages))[1], "half of dev"
    return spread(found, sentences) if sentences else found, origin


def _read(domain: Path, part: str, languages: tuple[str, str]) -> list[SegmentPair]:
    paths: Sequence[Path] = _files(domain, part)
    return list(read_memories(paths, ReadingConfig(*languages), ReadingReport()))
