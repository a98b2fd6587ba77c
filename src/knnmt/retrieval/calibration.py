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

from knnmt.config import Fading, RetrievalConfig
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.engine.base import Engine, State
from knnmt.errors import DatastoreDamagedError, SettingError
from knnmt.index.base import Found
from knnmt.retrieval.combiner import SentenceSoFar, log_fading
from knnmt.retrieval.distribution import log_weights
from knnmt.retrieval.held_out import HeldOutQueries

SECTION = "calibration"
DEFAULT_K = 8
_TEMPERATURES = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.5, 4.0, 8.0)  # times the spread of the neighbours' distances
_FIXED_WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_MOST_WEIGHTS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_SCALES = (0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8)  # times the median nearest distance
_WIDTHS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
_USUAL_SENTENCES = 0.95  # the part of the sentences of its own kind that a store trusts itself with
_SENTENCE_WIDTH = 0.05  # times the median nearest distance
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
            distances = tuple(float(each) for each in section["nearest_distances"])
            known = cls(**{**section, "nearest_distances": distances, "fading": Fading(**section["fading"])})
            known.config(), known.config(fading=False), known.nearest_distance(0.5)  # or they fail where they are used
        except (TypeError, KeyError, ValueError, SettingError) as error:
            raise DatastoreDamagedError(
                f"{store}: its estimated settings lack a field, have an unknown one or a wrong value ({error}); "
                f"`knnmt index {store}` estimates them again."
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
    base = _model_probabilities(engine, held_out.queries[present], tokens)
    matches = (held_out.entries.values[ids.clamp(min=0)] == tokens[:, None]).double()
    nearest = distances_sq[:, 0].sqrt()

    temperatures = [_spread(distances_sq) * each for each in _TEMPERATURES]
    fixed_loss, temperature, weight = min(
        (_loss(_knn(distances_sq, matches, each), base, torch.tensor(weight)), each, weight)
        for each, weight in product(temperatures, _FIXED_WEIGHTS)
    )
    knn = _knn(distances_sq, matches, temperature)
    most, fading = _fit_fading(knn, base, nearest, _so_far(nearest, held_out.sentences[present]), fixed_loss)
    quantiles = torch.quantile(nearest, torch.linspace(0, 1, _QUANTILES + 1))
    return Calibration(found[1].shape[1], temperature, weight, most, fading, tuple(quantiles.tolist()), len(tokens))


def _fit_fading(
    knn: Tensor, base: Tensor, nearest: Tensor, sentence: SentenceSoFar, fixed_loss: float
) -> tuple[float, Fading]:
    """Of the fading λ that keep at least half of what the best of them gains on a fixed λ, the most cautious:
    the one with the least λ where everything is half as far again.
    """
    median = max(float(nearest.median()), 1e-6)
    sentence_scale = float(torch.quantile(sentence.distance, _USUAL_SENTENCES))
    tried = []
    for most, scale, width in product(_MOST_WEIGHTS, _SCALES, _WIDTHS):
        fading = Fading(scale * median, width * median, sentence_scale, _SENTENCE_WIDTH * median)
        loss = _loss(knn, base, most * log_fading(fading, nearest, sentence).exp())
        trust = most * float(functional.sigmoid((fading.scale - 1.5 * nearest) / fading.width).mean())
        tried.append((loss, trust, most, fading))
    best_loss = min(loss for loss, *_ in tried)
    enough = max(best_loss, (best_loss + fixed_loss) / 2)
    _, _, most, fading = min((each for each in tried if each[0] <= enough), key=lambda each: each[1])
    return most, fading


def _so_far(nearest: Tensor, sentences: Tensor) -> SentenceSoFar:
    """The means over the steps of each sentence so far. The steps of a sentence stand together, in order."""
    first = torch.ones_like(sentences, dtype=torch.bool)
    first[1:] = sentences[1:] != sentences[:-1]
    begin = first.nonzero()[:, 0][first.cumsum(0) - 1]
    steps = torch.arange(len(nearest)) - begin + 1
    sums = nearest.double().cumsum(0)
    before = (sums - nearest)[begin]
    return SentenceSoFar(((sums - before) / steps).float(), steps.float())


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
