"""How certain a translation is: the percentage that is likely to need no change, by the log-probability of its tokens.

Pairs that the store does not hold are translated. The similarity of each translation to the pair's own target
(`likeness`) is fitted to the mean log-probability of its tokens, by a line in log-odds with two parameters: it never
falls, and a hundred pairs determine it. The settings are kept with it, because others give other probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from knnmt.config import RetrievalConfig, check
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.errors import DatastoreDamagedError, SettingError, quoted
from knnmt.records import as_record

SECTION = "certainty"  # of a store's settings
MIN_PAIRS = 20  # the fewest pairs for a useful fit
_STEPS = 50  # of Newton's method, which needs about six
_TOWARDS_FLAT = 1e-3  # keeps the slope finite if few pairs are separated without an overlap


@dataclass(frozen=True, slots=True)
class Certainty:
    """The relation between the mean log-probability of a translation and its certainty.

    offset, slope: expected similarity = 100 / (1 + exp(-(offset + slope * mean log-probability)))
    pairs: number of pairs that it was fitted to
    config: the settings of their translation
    """

    offset: float
    slope: float
    pairs: int
    config: RetrievalConfig

    def __post_init__(self) -> None:
        check(math.isfinite(self.offset), f"offset must be finite, got {self.offset}")
        check(0 <= self.slope < math.inf, f"slope must be finite and not negative, got {self.slope}")
        check(self.pairs >= MIN_PAIRS, f"pairs must be at least {MIN_PAIRS}, got {self.pairs}")

    def of(self, mean_log_probability: float) -> int:
        """The expected likeness of a translation, 0 to 100."""
        odds = self.offset + self.slope * max(mean_log_probability, -1e6)
        return round(100 * (0.5 + 0.5 * math.tanh(odds / 2)))

    def holds_for(self, config: RetrievalConfig) -> bool:
        """Whether it was measured with these settings. A cache changes little and is ignored."""
        return replace(config, cache=None) == self.config

    def save(self, path: Path) -> None:
        """Keep it with a store."""
        write_settings(path, **self.section())

    def section(self) -> dict[str, Any]:
        """The section for a store's settings."""
        return {SECTION: asdict(self)}

    @classmethod
    def read(cls, path: Path) -> Certainty | None:
        """The certainty saved with a store; None if there is none."""
        section = read_settings(path).get(SECTION)
        if section is None:
            return None
        try:
            return as_record(cls, section)
        except (ValueError, SettingError) as error:
            raise DatastoreDamagedError(
                f"{path}: its estimate of certainty lacks a field, has an unknown one or a wrong "
                f"value ({error}); `knnmt tune {quoted(path)} --dev DEV` makes it again."
            ) from error


def forget_certainty(path: Path) -> None:
    """Remove the certainty saved with a store, even if it is damaged."""
    if read_settings(path).get(SECTION) is not None:
        write_settings(path, **{SECTION: None})


def fit_certainty(
    mean_log_probabilities: Sequence[float], likenesses: Sequence[float], config: RetrievalConfig
) -> Certainty | None:
    """The line that makes the observed likenesses, 0 to 100, most likely; None if there are too few.

    It is a logistic regression whose targets are fractions instead of yes and no.
    """
    scores, parts = np.asarray(mean_log_probabilities, np.float64), np.asarray(likenesses, np.float64) / 100
    usable = np.isfinite(scores)
    scores, parts = scores[usable], parts[usable]
    if len(scores) < MIN_PAIRS:
        return None
    middle, spread = scores.mean(), scores.std() or 1.0
    columns = np.stack([np.ones_like(scores), (scores - middle) / spread], 1)  # (pairs, 2)
    flat = _TOWARDS_FLAT * np.eye(2)
    weights = np.zeros(2)
    for _ in range(_STEPS):
        expected = 1 / (1 + np.exp(-columns @ weights))
        gradient = columns.T @ (expected - parts) / len(parts) + flat @ weights
        curvature = (columns * (expected * (1 - expected))[:, None]).T @ columns / len(parts) + flat
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    if weights[1] < 0:  # the model cannot judge these: expect the mean
        mean = min(max(parts.mean(), 1e-3), 1 - 1e-3)
        weights = np.array([math.log(mean / (1 - mean)), 0.0])
    slope = float(weights[1] / spread)
    return Certainty(float(weights[0]) - slope * float(middle), slope, len(scores), config)
