"""Settings that fit a store, estimated from the store alone, so that an untuned one already works well.

Entries of sampled sentences are queries that must not find their own sentence. A key is the input of the model's output
projection, so the model's own distribution comes from it too: the likelihood of the entries' tokens under equation 3
says which temperature and which λ fit, and how λ should fade with distance.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from knnmt.config import RetrievalConfig
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.engine.base import Engine, State
from knnmt.errors import DatastoreDamagedError
from knnmt.retrieval.distribution import log_weights
from knnmt.retrieval.held_out import sample
from knnmt.retrieval.retriever import OpenStore

SECTION = "calibration"
DEFAULT_K = 8
_TEMPERATURES = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.5, 4.0, 8.0)  # times the spread of the neighbours' distances
_FIXED_WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_MOST_WEIGHTS = (0.6, 0.7, 0.8, 0.9, 0.95)
_SCALES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8)  # times the median nearest distance
_WIDTHS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
_QUANTILES = 20
_SLOW = 65_536  # entries above which fewer queries are asked, because each looks at all keys


@dataclass(frozen=True, slots=True)
class Calibration:
    """What fits a store.

    interpolation_weight: the best fixed λ
    fading_weight, distance_scale, distance_width: λ that fades with distance, as cautious as it can be without losing
        likelihood against the fixed one
    nearest_distances: quantiles, in 20 equal steps from the least to the greatest, of the Euclidean distance to the
        nearest entry
    queries: how many entries were asked
    """

    k: int
    temperature: float
    interpolation_weight: float
    fading_weight: float
    distance_scale: float
    distance_width: float
    nearest_distances: tuple[float, ...]
    queries: int

    def config(self, fading: bool = True) -> RetrievalConfig:
        """Settings for a translation, with fading or fixed λ."""
        if not fading:
            return RetrievalConfig(self.k, self.interpolation_weight, self.temperature)
        return RetrievalConfig(self.k, self.fading_weight, self.temperature, self.distance_scale, self.distance_width)

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
    def of(cls, store: Path) -> Calibration | None:
        """What was remembered with a store, or None."""
        section = read_settings(store).get(SECTION)
        if section is None:
            return None
        try:
            return cls(**{**section, "nearest_distances": tuple(section["nearest_distances"])})
        except (TypeError, KeyError) as error:
            raise DatastoreDamagedError(
                f"{store}: its estimated settings lack a field or have an unknown one ({error}); "
                f"`knnmt index {store}` estimates them again."
            ) from error


def calibrate(opened: OpenStore, engine: Engine[State], seed: int = 0) -> Calibration:
    """Estimate the settings that fit a store. Its keys must be the model's own states, not yet reduced or merged."""
    entries = opened.index.entries
    held_out = sample(entries, seed=seed)
    distances_sq, ids = held_out.search(opened.index, DEFAULT_K)
    found = ids[:, 0] >= 0
    if not bool(found.any()):
        return Calibration(DEFAULT_K, 1.0, 0.0, 0.0, 1.0, 1.0, (0.0,) * (_QUANTILES + 1), 0)
    distances_sq, ids, tokens = distances_sq[found], ids[found], held_out.tokens[found]
    base = _model_probabilities(engine, held_out.queries[found], tokens)
    matches = (entries.values[ids.clamp(min=0)] == tokens[:, None]).double()
    nearest = distances_sq[:, 0].sqrt()

    spread = _spread(distances_sq)
    fixed: tuple[float, float, float] = min(
        (_loss(_knn(distances_sq, matches, temperature), base, torch.tensor(weight)), temperature, weight)
        for temperature, weight in product([spread * each for each in _TEMPERATURES], _FIXED_WEIGHTS)
    )
    loss, temperature, weight = fixed
    knn = _knn(distances_sq, matches, temperature)
    most, scale, width = _fading(knn, base, nearest, loss, weight)
    quantiles = torch.quantile(nearest, torch.linspace(0, 1, _QUANTILES + 1))
    return Calibration(DEFAULT_K, temperature, weight, most, scale, width, tuple(quantiles.tolist()), len(tokens))


def _spread(distances_sq: Tensor) -> float:
    """How far the k-th neighbour is beyond the nearest, at the median: the scale that a temperature lives on."""
    present = distances_sq.masked_fill(distances_sq.isinf(), float("nan"))
    spread = present.nan_to_num(0).amax(1) - distances_sq[:, 0]
    return max(float(spread.median()), 1e-3)


def _model_probabilities(engine: Engine[State], queries: Tensor, tokens: Tensor) -> Tensor:
    found = []
    with torch.no_grad():
        for some, wanted in zip(torch.split(queries, 512), torch.split(tokens, 512), strict=True):
            scores = engine.log_probabilities(some.to(engine.device, engine.dtype))
            found.append(scores.cpu().gather(1, wanted[:, None])[:, 0])
    return torch.cat(found).double().exp()


def _knn(distances_sq: Tensor, matches: Tensor, temperature: float) -> Tensor:
    """p_kNN of each query's own token, (rows,)."""
    return (log_weights(distances_sq, temperature).double().exp() * matches).sum(1)


def _loss(knn: Tensor, base: Tensor, weight: Tensor) -> float:
    return -float((weight * knn + (1 - weight) * base).clamp(min=1e-30).log().mean())


def _fading(knn: Tensor, base: Tensor, nearest: Tensor, fixed_loss: float, weight: float) -> tuple[float, float, float]:
    """Of the fading λ that fit at least as well as the fixed one, that which trusts text twice as far away least."""
    median = max(float(nearest.median()), 1e-6)
    best = (weight, weight, 100 * median, median)
    for most, scale, width in product(_MOST_WEIGHTS, _SCALES, _WIDTHS):
        near = most * functional.sigmoid((scale * median - nearest) / (width * median)).double()
        if _loss(knn, base, near) <= fixed_loss:
            far = most * functional.sigmoid((scale * median - 2 * nearest) / (width * median))
            best = min(best, (float(far.mean()), most, scale * median, width * median))
    return best[1:]
