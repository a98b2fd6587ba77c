"""The files that a change of a store writes:

removed sentences, and added sentences joined with small segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from knnmt.corpus.accelerators import Accelerators
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array, write_stored
from knnmt.datastore.joining import free_to_join, joined_with, removed_of
from knnmt.datastore.manifest import SEGMENTS, Manifest, RemovedSentences, SegmentRecord
from knnmt.datastore.merging import join, sound_arrays
from knnmt.datastore.segment import Segment
from knnmt.datastore.slices import write_segment
from knnmt.datastore.source_hashes import possible_hashes, sentences_with

Selection = Callable[[SegmentPair], bool]


@dataclass(frozen=True, slots=True)
class AmongSources:
    """Selects among units with one of these sources, with or without accelerators; other units are not read."""

    sources: Collection[str]
    chosen: Selection

    def __call__(self, pair: SegmentPair) -> bool:
        """Whether a unit is chosen."""
        return self.chosen(pair)


@dataclass(frozen=True, slots=True)
class Holding:
    """Selects among units whose texts, origins or contexts contain some characters; other segments are not read."""

    characters: str
    chosen: Selection

    def __call__(self, pair: SegmentPair) -> bool:
        """Whether a unit is chosen."""
        return self.chosen(pair)

    def may_be_in(self, segment: Segment) -> bool:
        """Whether a segment has to be read."""
        texts: bytes = segment.arrays["texts"].tobytes()
        return self.characters.encode("utf-8", "surrogatepass") in texts


def chosen_units(
    segments: Sequence[Segment], chosen: Selection, accelerators: Accelerators
) -> Iterator[tuple[int, list[tuple[int, SegmentPair]]]]:
    """The units that a selection accepts in each segment, with their numbers, by the segment's position."""
    # If accelerators were kept, the hashes include them, but a selection may name sources without them.
    hashes = possible_hashes(chosen.sources) if isinstance(chosen, AmongSources) and accelerators == "drop" else None
    for place, segment in enumerate(segments):
        if isinstance(chosen, Holding) and not chosen.may_be_in(segment):
            continue
        read = segment.units() if hashes is None else _units(segment, sentences_with(segment, hashes))
        if units := [(sentence, pair) for sentence, pair in read if chosen(pair)]:
            yield place, units


def removed_by(segments: Sequence[Segment], chosen: Selection, accelerators: Accelerators) -> dict[int, Array]:
    """All removed sentences of each segment from which a selection removes some, by the segment's position."""
    removed = {}
    for place, units in chosen_units(segments, chosen, accelerators):
        segment = segments[place]
        live = segment.live_sentences()
        found = live[np.isin(segment.units_of(live), [sentence for sentence, _ in units])]
        removed[place] = np.union1d(segment.removed, found).astype(np.int32)
    return removed


def _units(segment: Segment, sentences: Array) -> Iterator[tuple[int, SegmentPair]]:
    """The units among some sentences, without lines of units."""
    return ((each, segment.pair(each)) for each in sentences[segment.arrays["lines"][sentences] == 0].tolist())


def write_change(
    path: Path,
    before: Manifest,
    segments: Sequence[Segment],
    removed: Mapping[int, Array],
    added: Iterator[tuple[str, dict[str, Array]]],
    progress: Callable[[int, int], None],
) -> Manifest:
    """Write the files of the next generation and return its manifest; return the current manifest if nothing changes.

    removed: as `removed_by` returns it
    added: arrays of segments, each with its name's digest; progress is called with the sentences and entries written
    """
    directory, generation, number = path / SEGMENTS, before.generation + 1, before.next_segment
    gone = [removed.get(place, segment.removed) for place, segment in enumerate(segments)]
    kept, sentences, entries = len(segments), 0, 0
    records: list[SegmentRecord] = []
    for name, arrays in added:
        sentences, entries = sentences + len(arrays["target_offsets"]) - 1, entries + len(arrays["values"])
        own: Array = np.empty(0, np.int32)
        if not records and (count := joined_with(segments[free_to_join(path, segments) :], arrays)):
            kept -= count
            name, arrays = "joined", join([*map(sound_arrays, segments[kept:]), arrays])
            own = removed_of(segments[kept:], gone[kept:])
        record = write_segment(directory, f"{number:05d}-{name}.safetensors", arrays)
        records.append(_without(directory, record, arrays["sentences"], own, generation))
        number += 1
        progress(sentences, entries)
    if not records and not removed:
        return before
    stay = [
        _without(directory, segment.record, segment.arrays["sentences"], gone[place], generation)
        if place in removed
        else segment.record
        for place, segment in enumerate(segments[:kept])
    ]
    return before.changed((*stay, *records), number)


def _without(
    directory: Path, record: SegmentRecord, sentences: Array, removed: Array, generation: int
) -> SegmentRecord:
    """The record of a segment after these sentences are removed; sentences: the sentence of each entry."""
    if not len(removed):
        return record
    number = record.stored.file.partition("-")[0]
    stored = write_stored(directory, f"{number}-removed-g{generation}.safetensors", {"removed": removed})
    return replace(record, removed=RemovedSentences(stored, len(removed), int(np.isin(sentences, removed).sum())))
