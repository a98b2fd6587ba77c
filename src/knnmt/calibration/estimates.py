"""Settings that fit a store, estimated from the store alone, so that it works well without tuning.

Entries of sampled sentences are queries that must not find their own sentence. A key is the input of the model's output
projection, so it also gives the model's own distribution. The likelihood of the entries' tokens under equation 3 then
shows which temperature and which λ fit, and how λ should fade with distance.
"""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import torch

from knnmt.calibration.held_out import SENTENCES, HeldOutQueries, sample
from knnmt.calibration.likelihood import FadingGrid, Positions, model_probabilities, spread
from knnmt.config import DEFAULT_SEGMENTS, Fading, RetrievalConfig, check
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Engine, State
from knnmt.errors import DatastoreDamagedError, SettingError, quoted
from knnmt.index.base import SearchResult
from knnmt.records import as_record
from knnmt.retrieval.open_store import OpenStore, Snapshot

SECTION, BY_SEGMENT = "calibration", "calibration_by_segment"  # of a store's settings
DEFAULT_K = 8
_TEMPERATURES = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.5, 4.0, 8.0)  # times the spread of the neighbours' distances
_FIXED_WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_QUANTILES = 20
_MAX_SENTENCES_AT_OPENING = 50  # for estimates when a store without saved ones is opened
_MAX_CHANGE = 0.1  # if more than this part of a store's entries came or went, it is estimated again


@dataclass(frozen=True, slots=True)
class Calibration:
    """Settings that fit a store.

    interpolation_weight: the best fixed λ
    fading_weight, fading: the best λ that fades with distance
    nearest_distances: quantiles, in 20 equal steps from the least to the greatest, of the Euclidean distance to the
        nearest entry
    queries: number of entries used as queries
    segments: number of segments in which each was searched; None for the whole store
    """

    k: int
    temperature: float
    interpolation_weight: float
    fading_weight: float
    fading: Fading
    nearest_distances: tuple[float, ...]
    queries: int
    segments: int | None = None

    def config(self, fading: bool = True) -> RetrievalConfig:
        """Settings for a translation, with fading or fixed λ."""
        if not fading:
            return RetrievalConfig(self.k, self.interpolation_weight, self.temperature, segments=self.segments)
        return RetrievalConfig(self.k, self.fading_weight, self.temperature, self.fading, segments=self.segments)

    @property
    def in_words(self) -> str:
        """The settings and their origin, for people."""
        return f"{self.config().signature()}, estimated from {self.queries:,} entries"

    def nearest_distance(self, quantile: float) -> float:
        """The Euclidean distance within which the given part of new states, 0 to 1, have an entry."""
        place = quantile * (len(self.nearest_distances) - 1)
        low = min(int(place), len(self.nearest_distances) - 2)
        near, far = self.nearest_distances[low : low + 2]
        return near + (far - near) * (place - low)

    def save(self, path: Path) -> None:
        """Save it with the store."""
        write_settings(path, **{SECTION if self.segments is None else BY_SEGMENT: asdict(self)})

    @classmethod
    def unknown(cls, segments: int | None = None) -> Calibration:
        """For a store that has nothing to compare with: trust it only if it has the very same state."""
        return cls(DEFAULT_K, 1.0, 0.5, 0.9, Fading(1.0, 0.1, 1.0, 0.1), (0.0,) * (_QUANTILES + 1), 0, segments)

    @classmethod
    def of(cls, path: Path, by_segment: bool = False) -> Calibration | None:
        """The calibration saved with a store, for search of the whole store or by segment; None if there is none."""
        section = read_settings(path).get(BY_SEGMENT if by_segment else SECTION)
        if section is None:
            return None
        try:
            known = as_record(cls, section)
            known.config(), known.config(fading=False), known.nearest_distance(0.5)  # otherwise they fail when used
            check((known.segments is not None) == by_segment, f"segments cannot be {known.segments} there")
        except (ValueError, SettingError) as error:
            raise DatastoreDamagedError(
                f"{path}: its estimated settings lack a field, have an unknown one or a wrong value ({error}); "
                f"`knnmt index {quoted(path)}` estimates them again."
            ) from error
        return known


def calibrate(
    held_out: HeldOutQueries, found: SearchResult, engine: Engine[State], segments: int | None = None
) -> Calibration | None:
    """Estimate the settings that fit a store from the results of its held-out queries; None if they found nothing.

    The queries must be the model's own states, not reduced ones.
    segments: the number of segments in which each was searched; None for the whole store
    """
    present = found[1][:, 0] >= 0
    if not bool(present.any()):
        return None
    distances_sq, ids, tokens = found[0][present], found[1][present], held_out.tokens[present]
    known = ids.clamp(min=0)
    counts = held_out.entries.counts_of(known, merged=True)
    positions = Positions(
        base=model_probabilities(engine, held_out.queries[present], tokens),
        distances_sq=distances_sq,
        matches=held_out.entries.values_of(known) == tokens[:, None],
        sentences=held_out.sentences[present],
        log_counts=(None if counts is None else counts.log(), None),
    )
    temperatures = [spread(distances_sq) * each for each in _TEMPERATURES]
    fixed_loss, temperature, weight = min(positions.best_fixed(temperatures, _FIXED_WEIGHTS))
    _, most, fading = FadingGrid(positions).cautious(positions.knn(temperature), fixed_loss)
    quantiles = torch.quantile(positions.nearest, torch.linspace(0, 1, _QUANTILES + 1))
    nearest = tuple(quantiles.tolist())
    return Calibration(found[1].shape[1], temperature, weight, most, fading, nearest, len(tokens), segments)


def calibrate_by_segment(
    store: Snapshot, engine: Engine[State], segments: int, sentences: int = SENTENCES
) -> Calibration | None:
    """Estimate the settings for search by segment. The cost of a sentence does not grow with the store."""
    held_out = sample(store.index.entries, sentences)
    return calibrate(held_out, held_out.search_by_segment(store, segments, DEFAULT_K), engine, segments)


def estimate_settings(store: Datastore, engine: Engine[State]) -> Calibration | None:
    """Estimate the settings for search by segment of a store that was built, and save them with it.

    A store that was made from another one keeps the settings of that one.
    """
    if store.manifest.transforms or not store.manifest.live_entries:
        return Calibration.of(store.path, by_segment=True)
    opened = OpenStore(store, exact=True)
    if (found := calibrate_by_segment(opened.snapshot, engine, DEFAULT_SEGMENTS)) is not None:
        found.save(store.path)
    return found


class Estimates:
    """The estimates for an open store: those saved with it, or new ones from a few sentences at the first use."""

    def __init__(self, opened: OpenStore, engine: Engine[State]) -> None:
        self._store, self._engine = opened.snapshot, engine
        self._saved, self._saved_by_segment = (Calibration.of(opened.datastore.path, each) for each in (False, True))
        self._entries = self._store.datastore.manifest.live_entries

    def following(self, opened: OpenStore) -> Estimates:
        """The estimates for the present store. Earlier estimates stay until the store has changed much: otherwise each
        correction would make the next text wait for new estimates.
        """
        later = copy(self)
        later._store = opened.snapshot
        now = later._store.datastore.manifest.live_entries
        if abs(now - self._entries) > _MAX_CHANGE * self._entries:
            later._entries = now
            for name in ("whole", "by_segment"):
                vars(later).pop(name, None)
        return later

    @cached_property
    def whole(self) -> Calibration:
        """For search of the whole store."""
        if self._saved is not None:
            return self._saved
        if self._store.projection is not None:
            return Calibration.unknown()  # an estimate needs the model's states, but the keys are reduced
        held_out = sample(self._store.index.entries, _MAX_SENTENCES_AT_OPENING)
        found = held_out.search(self._store.index, DEFAULT_K)
        return calibrate(held_out, found, self._engine) or Calibration.unknown()

    @cached_property
    def by_segment(self) -> Calibration:
        """For search by segment."""
        if self._saved_by_segment is not None:
            return self._saved_by_segment
        if self._store.projection is not None or not self._store.datastore.manifest.live_entries:
            return Calibration.unknown(DEFAULT_SEGMENTS)
        found = calibrate_by_segment(self._store, self._engine, DEFAULT_SEGMENTS, _MAX_SENTENCES_AT_OPENING)
        return found or Calibration.unknown(DEFAULT_SEGMENTS)
