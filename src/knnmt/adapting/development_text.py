"""Development text, divided into the part for choosing settings and the reported part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_memories
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.splitting import halves, spread
from knnmt.corpus.visible import visible
from knnmt.errors import InputError

if TYPE_CHECKING:
    from knnmt.datastore.store import Datastore

MAX_PAIRS = 1000  # at most this many for tuning, and at most this many for the report


@dataclass(frozen=True, slots=True)
class DevelopmentText:
    """Pairs for choosing settings, and pairs to report.

    name: their source, such as a file
    """

    name: str
    tuning: Sequence[SegmentPair]
    reported: Sequence[SegmentPair]


def read_development(
    store: Datastore,
    development: str | Path | Iterable[SegmentPair],
    most: int = MAX_PAIRS,
    all_dev: bool = False,
    keep_known: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> DevelopmentText:
    """Divide a memory in any format, or pairs, by a hash of their sources.

    most: at most this many pairs of either kind, evenly chosen from the text
    all_dev: tune on all of it, and report the same
    keep_known: also use pairs whose source the store holds
    tell: is called with lines about the use of the text
    """
    from knnmt.datastore.overlap import overlap  # brings NumPy, and the command line must start at once

    name, report = "the given pairs", ReadingReport()
    if isinstance(development, str | Path):
        name, manifest = str(development), store.manifest
        reading = ReadingConfig(source_language=manifest.source_language, target_language=manifest.target_language)
        development = read_memories([Path(development)], reading, report)
    pairs = list(development)
    for reason, count in report.skipped.most_common():
        tell(f"left out    {count:,} of {name}: {visible(reason)}")
    found = overlap(store, pairs)
    if found.known:
        fate = "kept" if keep_known else "left out"
        tell(
            f"known       {len(found.known):,} of {len(pairs):,} pairs have a source that the store holds, "
            f"{found.whole:,} with the same target: {fate}"
        )
    usable = pairs if keep_known else list(found.new)
    tuning, reported = (usable, usable) if all_dev else halves(usable)
    if not tuning or not reported:
        raise InputError(f"{name}: {len(usable)} pairs are too few to tune and report on; give more, or --all-dev")
    text = DevelopmentText(name, spread(tuning, most), spread(reported, most))
    other = "the same pairs are reported" if all_dev else f"{len(text.reported):,} others are reported"
    tell(f"development {len(text.tuning):,} pairs of {name} for tuning; {other}")
    return text
