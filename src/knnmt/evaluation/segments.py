"""The text of an evaluation: sources with references, the chosen half, and the segments left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from knnmt.config import check
from knnmt.corpus.opening import open_stream
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.paired import read_paired
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.plain_text import require_plain_text
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.splitting import halves
from knnmt.documents.memory_reading import MemoriesOrPairs, MemoryReading, files_or_pairs

Half = Literal["all", "report", "tune"]
HALVES: dict[Half, str] = {
    "all": "all of the text",
    "report": "the half for reports; the other one is for tuning",
    "tune": "the half for tuning: these figures are for choosing settings; do not publish them",
}


@dataclass(frozen=True, slots=True)
class EvaluationText:
    """Segments with references.

    name: the files that they came from
    left_out: how many were read but left out, by reason
    """

    segments: list[SegmentPair]
    name: str
    half: Half = "all"
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def sources(self) -> list[str]:
        """The texts to translate."""
        return [segment.source for segment in self.segments]

    @property
    def references(self) -> list[str]:
        """The texts to compare the translations with."""
        return [segment.target for segment in self.segments]

    def without(self, numbers: Iterable[int], reason: str) -> EvaluationText:
        """The text without the segments of these numbers, which are counted as left out."""
        gone = set(numbers)
        check(len(gone) < len(self.segments), f"{self.name}: every segment would be left out ({reason})")
        others = [segment for number, segment in enumerate(self.segments) if number not in gone]
        return replace(self, segments=others, left_out=self.left_out + Counter({reason: len(gone)}))


def read_text(source: Path, reference: Path, config: ReadingConfig, half: Half = "all") -> EvaluationText:
    """Two text files, line by line. The arguments say which one is the source, whatever the file names end in."""
    report = ReadingReport()
    with open_stream(source) as sources, open_stream(reference) as references:
        for path, stream in ((source, sources), (reference, references)):
            require_plain_text(path, stream.peek())
        pairs = list(read_paired(sources, str(source), references, str(reference), config, report))
    return _half_of(pairs, f"{source.name} and {reference.name}", half, report)


def read_pairs(memories: MemoriesOrPairs, config: ReadingConfig, half: Half = "all") -> EvaluationText:
    """Memories and documents in any format, or pairs. Their targets are the references."""
    text = files_or_pairs(memories, config)
    if not isinstance(text, MemoryReading):
        return _half_of(list(text), "the given pairs", half, ReadingReport())
    pairs = list(text.pairs())
    return _half_of(pairs, " and ".join(path.name for path in text.paths), half, text.report)


def _half_of(pairs: list[SegmentPair], name: str, half: Half, report: ReadingReport) -> EvaluationText:
    check(half in HALVES, f"half must be one of {', '.join(HALVES)}, got {half!r}")
    tuning, reporting = halves(pairs)
    chosen = {"all": pairs, "report": reporting, "tune": tuning}[half]
    check(len(chosen) > 0, f"{name}: has no segment to evaluate (in {HALVES[half]})")
    return EvaluationText(chosen, name, half, Counter(report.skipped))
