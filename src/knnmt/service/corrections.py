"""`Corrections`: what the domains have learned from requests, so that it can be listed and undone.

DATA/corrections/DOMAIN.json has the last corrections of a domain, the oldest first. Without a data directory, they are
remembered until the service stops.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from knnmt.config import check
from knnmt.datastore.correcting import Replacement
from knnmt.datastore.publication import storage_errors
from knnmt.service.data_directory import read_record, write_record
from knnmt.service.problems import Problem

_CORRECTIONS = "corrections"
_MOST = 1_000  # corrections of a domain
_MOST_CHARACTERS = 4 << 20  # in all texts of a domain's corrections
_MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedCorrection:
    """A correction of one source.

    by: the name of the key that made it
    created: seconds since 1970
    """

    id: str
    by: str
    created: float
    replacement: Replacement

    def __post_init__(self) -> None:
        check(len(self.replacement.after) > 0, "a correction must have a pair")

    @property
    def characters(self) -> int:
        """The size of its texts."""
        pairs = (*self.replacement.before, *self.replacement.after)
        return sum(len(pair.source) + len(pair.target) + len(pair.context) + len(pair.origin) for pair in pairs)


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a file."""

    corrections: tuple[LearnedCorrection, ...]


class Corrections:
    """The corrections of all domains of a service. Threads may share it."""

    def __init__(self, data: Path | None) -> None:
        self._place = None if data is None else data.resolve() / _CORRECTIONS
        self._lock = Lock()
        self._known: dict[str, list[LearnedCorrection]] = {}
        if self._place is not None:
            with storage_errors(self._place):
                self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            for file in self._place.glob("*.json"):
                if (kept := read_record(file, _Content, _MAX_FILE_BYTES)) is not None:
                    self._known[file.stem] = list(kept.corrections)

    def learn(self, domain: str, by: str, replacements: Iterable[Replacement]) -> None:
        """Remember corrections that a domain has learned. The oldest are forgotten if there are too many."""
        now = time.time()
        new = [
            LearnedCorrection(id=secrets.token_hex(8), by=by, created=now, replacement=each) for each in replacements
        ]
        if new:
            with self._lock:
                self._put(domain, [*self._known.get(domain, []), *new])

    def of(self, domain: str) -> list[LearnedCorrection]:
        """The last correction of each source, the newest first."""
        with self._lock:
            last = {each.replacement.source: each for each in self._known.get(domain, [])}
            return [each for each in reversed(self._known.get(domain, [])) if last[each.replacement.source] is each]

    def one(self, domain: str, number: str) -> LearnedCorrection:
        """The correction with an id; raise a problem if it is none of those that `of` lists."""
        correction = next((each for each in self.of(domain) if each.id == number), None)
        if correction is None:
            raise Problem(404, "unknown_correction", f"there is no correction {number[:80]!r} that can be undone")
        return correction

    def drop(self, domain: str, correction: LearnedCorrection) -> None:
        """Forget a correction that was undone."""
        with self._lock:
            self._put(domain, [each for each in self._known.get(domain, []) if each is not correction])

    def forget(self, domain: str) -> None:
        """Forget a domain that was deleted."""
        with self._lock:
            self._put(domain, [])

    def _put(self, domain: str, corrections: list[LearnedCorrection]) -> None:
        corrections = corrections[-_MOST:]
        characters = sum(each.characters for each in corrections)
        while characters > _MOST_CHARACTERS:
            characters -= corrections.pop(0).characters
        self._known[domain] = corrections
        if self._place is None:
            return
        file = self._place / f"{domain}.json"
        if corrections:
            write_record(file, _Content(tuple(corrections)))
        else:
            with storage_errors(file):
                file.unlink(missing_ok=True)
