"""Settings that fit a store, estimated from the store alone, so that an untuned one already works well.

Entries of sampled sentences are queries that must not find their own sentence. A key is the input of the model's output
projection, so the model's own distribution comes from it too: the likelihood of the entries' tokens under equation 3
says which temperature and which λ fit, and how λ should fade with distance.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from knnmt.config import Fading, RetrievalConfig
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.engine.base import Engine, State
from knnmt.errors import DatastoreDamagedError, SettingError, quoted
from knnmt.fitting.held_out import HeldOutQueries
from knnmt.fitting.likelihood import FadingGrid, Positions, best_fixed, model_probabilities, spread
from knnmt.index.base import Found
from knnmt.records import as_record

SECTION = "calibration"
DEFAULT_K = 8
_TEMPERATURES = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.5, 4.0, 8.0)  # times the spread of the neighbours' distances
_FIXED_WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_QUANTILES = 20


@dataclass(frozen=True, slots=True)
class Calibration:
    """What fits a store.

    interpolation_weight: the best fixed λ
    fading_weight, fading: the best λ that fades with distance
    nearest_distances: quantiles, in 20 equal steps from the least to the greatest, of the Euclidean distance to the
        nearest entry
    queries: how many entries were asked
    """

    k: int
    temperature: float
    interpolation_weight: float
    fading_weight: float
    fading: Fading
    nearest_distances: tuple[float, ...]
    queries: int

    def config(self, fading: bool = True) -> RetrievalConfig:
        """Settings for a translation, with fading or fixed λ."""
        if not fading:
            return RetrievalConfig(self.k, self.interpolation_weight, self.temperature)
        return RetrievalConfig(self.k, self.fading_weight, self.temperature, self.fading)

    def nearest_distance(self, quantile: float) -> float:
        """The Euclidean distance that the given part of new states, 0 to 1, have an entry within."""
        place = quantile * (len(self.nearest_distances) - 1)
        low = min(int(place), len(self.nearest_distances) - 2)
        near, far = self.nearest_distances[low : low + 2]
        return near + (far - near) * (place - low)

    def save(self, store: Path) -> None:
        """Remember it with the store."""
        write_settings(store, **{SECTION: asdict(self)})

    @classmethod
    def unknown(cls) -> Calibration:
        """Of a store that has nothing to compare with: trust it only where it has the very same state."""
        return cls(DEFAULT_K, 1.0, 0.5, 0.9, Fading(1.0, 0.1, 1.0, 0.1), (0.0,) * (_QUANTILES + 1), 0)

    @classmethod
    def of(cls, store: Path) -> Calibration | None:
        """What was remembered with a store, or None."""
        section = read_settings(store).get(SECTION)
        if section is None:
            return None
        try:
            known = as_record(cls, section)
            known.config(), known.config(fading=False), known.nearest_distance(0.5)  # or they fail where they are used
        except (ValueError, SettingError) as error:
            raise DatastoreDamagedError(
                f"{store}: its estimated settings lack a field, have an unknown one or a wrong value ({error}); "
                f"`knnmt index {quoted(store)}` estimates them again."
            ) from error
        return known


def calibrate(held_out: HeldOutQueries, found: Found, engine: Engine[State]) -> Calibration | None:
    """Estimate the settings that fit a store from what its held-out queries found; None where they found nothing.

    The queries must be the model's own states, not reduced ones.
    """
    present = found[1][:, 0] >= 0
    if not bool(present.any()):
        return None
    distances_sq, ids, tokens = found[0][present], found[1][present], held_out.tokens[present]
    counts = held_out.entries.counts
    positions = Positions(
        base=model_probabilities(engine, held_out.queries[present], tokens),
        distances_sq=distances_sq,
        matches=held_out.entries.values[ids.clamp(min=0)] == tokens[:, None],
        sentences=held_out.sentences[present],
        log_counts=(None if counts is None else counts[ids.clamp(min=0)].log(), None),
    )
    temperatures = [spread(distances_sq) * each for each in _TEMPERATURES]
    fixed_loss, temperature, weight = min(best_fixed(positions, temperatures, _FIXED_WEIGHTS))
    _, most, fading = FadingGrid(positions).cautious(positions.knn(temperature), fixed_loss)
    quantiles = torch.quantile(positions.nearest, torch.linspace(0, 1, _QUANTILES + 1))
    return Calibration(found[1].shape[1], temperature, weight, most, fading, tuple(quantiles.tolist()), len(tokens))
