"""`Job`: a segment that waits to be decoded."""

from __future__ import annotations

from dataclasses import dataclass

from knnmt.corpus.glossary import Glossary
from knnmt.retrieval.retriever import Retrieval
from knnmt.translator.guarded import Guarded
from knnmt.translator.segments import TextSegment


@dataclass(frozen=True, slots=True)
class Job:
    """A segment to translate: its token ids, and how it retrieves."""

    segment: TextSegment
    source: list[int]
    retrieval: Retrieval | None
    glossary: Glossary | None = None

    @property
    def guarded(self) -> Guarded:
        assert self.segment.guarded is not None  # noqa: S101 - only such become jobs
        return self.segment.guarded
