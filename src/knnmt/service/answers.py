"""The answers of a service, as a `Client` returns them. This module needs only the standard library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ServedMatch:
    """A segment of the memory that is similar to a text. score: in percent"""

    source: str
    target: str
    origin: str
    score: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Alternative:
    """A translation that is not the best."""

    text: str
    score: float


@dataclass(frozen=True, slots=True)
class ServedCaution:
    """A warning about a translation."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class ServedWord:
    """A word of a translation.

    span: its characters
    tokens: the numbers of its tokens in the translation
    share: how much of it came from the memory, 0 to 1
    """

    text: str
    span: tuple[int, int]
    share: float
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ServedTranslation:
    """A translation, as a service returns it.

    kind: "exact match", "repaired match", "with memory" or "model alone"; None if no translation was found
    index: the number of its text, in a stream of results
    certainty: how much of it a reviewer is likely to keep, 0 to 100; None if the store has no estimate
    evidence, segments, words: on request: the evidence of each token, the memory segments that it refers to, and the
        words
    error: why there is no translation
    """

    text: str
    kind: str | None
    score: float | None
    complete: bool
    index: int | None = None
    alternatives: tuple[Alternative, ...] = ()
    match: ServedMatch | None = None
    coverage: dict[str, float] | None = None
    warnings: tuple[ServedCaution, ...] = ()
    tokens: tuple[str, ...] | None = None
    evidence: tuple[dict[str, Any] | None, ...] | None = None
    segments: tuple[dict[str, str], ...] | None = None
    words: tuple[ServedWord, ...] | None = None
    certainty: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ServedDomain:
    """A domain of a service. memory: False for the model alone"""

    name: str
    default: bool
    memory: bool
    source_language: str | None = None
    target_language: str | None = None
    segments: int | None = None
    entries: int | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """The result of a change to a domain. segments: number in the domain after the change"""

    domain: str
    generation: int
    segments: int
    stored: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class SentMemory:
    """A memory that becomes a domain, or is added to one.

    state: "waiting", "running", "done", "failed" or "cancelled"
    done, of: pairs
    """

    id: str
    domain: str
    name: str
    state: str
    adding: bool
    done: int
    stage: str | None = None
    of: int | None = None
    message: str | None = None
    summary: tuple[str, ...] = field(default=())

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")


@dataclass(frozen=True, slots=True)
class ServedDocument:
    """A document that a service translates.

    id: whoever knows it may download the document
    download_name: of its translation, which says the language, once the document is read
    state: "waiting", "running", "done" or "failed"
    done, of: units to translate
    message: why it failed
    """

    id: str
    domain: str
    name: str
    state: str
    done: int
    of: int | None = None
    message: str | None = None
    download_name: str | None = None

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")
