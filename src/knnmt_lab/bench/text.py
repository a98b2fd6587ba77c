"""The text for measuring speed: its description in a report, and whether it is in the stores."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from knnmt import SegmentPair, System

_SHORT_HASH = 12  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class BenchText:
    """The translated sentences, as a report describes them.

    name: of the file they come from; "" if there is none
    sha256: the beginning of the hash of all sentences, one per line
    known: how many of them a store holds, by the store's path; stores that hold none are left out
    """

    name: str
    sentences: int
    sha256: str
    known: Mapping[str, int] = field(default_factory=dict)

    @property
    def warnings(self) -> list[str]:
        return [
            f"warning: {count:,} of {self.sentences:,} sentences are in {store}, which favours its cache; use "
            f"other sentences"
            for store, count in self.known.items()
        ]


def describe_text(name: str, sources: Sequence[str], systems: Sequence[System]) -> BenchText:
    """The description of a text for a report, after comparing it with every store of the systems."""
    from knnmt import Datastore, overlap  # which bring NumPy, and `knnmt --help` should not wait for it

    asked = [SegmentPair(source, "", name) for source in sources]
    places = dict.fromkeys(system.datastore for system in systems if system.datastore is not None)
    counts = {str(place): len(overlap(Datastore.open(place), asked).known) for place in places}
    digest = hashlib.sha256("".join(f"{source}\n" for source in sources).encode()).hexdigest()[:_SHORT_HASH]
    return BenchText(name, len(sources), digest, {place: count for place, count in counts.items() if count})
