"""Development text, divided into the part for choosing settings and the reported part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import halves, spread
from knnmt.corpus.visible import visible
from knnmt.documents.memory_reading import MemoriesOrPairs, MemoryReading, files_or_pairs
from knnmt.errors import InputError
from knnmt.progress import ignore

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
    development: MemoriesOrPairs,
    most: int = MAX_PAIRS,
    all_dev: bool = False,
    keep_known: bool = False,
    on_message: Callable[[str], object] = ignore,
) -> DevelopmentText:
    """Divide memories in any format, or pairs, by a hash of their sources.

    most: at most this many pairs of either kind, evenly chosen from the text
    all_dev: tune on all of it, and report the same
    keep_known: also use pairs whose source the store holds
    on_message: is called with lines about the use of the text
    """
    from knnmt.datastore.overlap import overlap  # brings NumPy, and the command line must start at once

    manifest = store.manifest
    text = files_or_pairs(development, ReadingConfig(manifest.source_language, manifest.target_language))
    if isinstance(text, MemoryReading):
        name, pairs = " and ".join(map(str, text.paths)), list(text.pairs())
        for reason, count in text.report.skipped.most_common():
            on_message(f"left out    {count:,} of {name}: {visible(reason)}")
    else:
        name, pairs = "the given pairs", list(text)
    shared = overlap(store, pairs)
    if shared.known:
        fate = "kept" if keep_known else "left out"
        on_message(
            f"known       {len(shared.known):,} of {len(pairs):,} pairs have a source that the store holds, "
            f"{shared.whole:,} with the same target: {fate}"
        )
    usable = pairs if keep_known else list(shared.new)
    tuning, reported = (usable, usable) if all_dev else halves(usable)
    if not tuning or not reported:
        raise InputError(f"{name}: {len(usable)} pairs are too few to tune and report on; give more, or --all-dev")
    divided = DevelopmentText(name, spread(tuning, most), spread(reported, most))
    other = "the same pairs are reported" if all_dev else f"{len(divided.reported):,} others are reported"
    on_message(f"development {len(divided.tuning):,} pairs of {name} for tuning; {other}")
    return divided
