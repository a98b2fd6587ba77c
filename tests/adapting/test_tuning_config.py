"""What a tuning is asked for, and the names of what it saves."""

from __future__ import annotations

from typing import Any

import pytest

from knnmt import TuningConfig
from knnmt.config import FastConfig
from knnmt.errors import SettingError


@pytest.mark.parametrize(
    ("given", "names", "default"),
    [
        ({}, ("segments", "segments-fixed", "segments-cache"), True),
        ({"segments": 64}, ("segments", "segments-fixed", "segments-cache"), True),
        ({"whole": True}, ("knn", "knn-fixed", "cache"), True),
        ({"whole": True, "confirm": True}, ("knn", "knn-fixed", "cache"), True),
        ({"method": "bleu"}, ("bleu", "bleu-fixed", "bleu-cache"), False),
        ({"fast": FastConfig()}, ("fast", "fast-fixed", "fast-cache"), False),
        ({"method": "bleu", "profile": "own"}, ("own", "own-fixed", "own-cache"), True),
    ],
)
def test_names_and_who_may_become_the_default(given: dict[str, Any], names: tuple[str, ...], default: bool) -> None:
    config = TuningConfig(**given)
    assert (config.names, config.may_become_default) == (names, default)


def test_limits_of_bleu_are_there_where_it_has_a_say() -> None:
    assert (TuningConfig().scores, TuningConfig().most_bleu_lost) == (False, None)
    confirmed = TuningConfig(confirm=True, sample=7)
    assert (confirmed.scores, confirmed.most_bleu_lost, confirmed.scored_pairs) == (True, 0.1, 7)
    assert TuningConfig(whole=True, confirm=True, bleu_loss=0.0).most_bleu_lost == 0.0
    assert (TuningConfig(method="bleu").scores, TuningConfig(method="bleu").scored_pairs) == (True, 200)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "luck"}, "must be likelihood or bleu, got 'luck'"),
        ({"temperature": 1.0}, "no effect"),
        ({"ks": (4, 65)}, "each must lie between 1 and 64"),
        ({"weights": ()}, "weights: each must be at least 0 and below 1"),
        ({"sample": 3}, "no effect"),
        ({"sample": 0, "confirm": True}, "at least 1"),
        ({"bleu_loss": 0.1}, "no effect"),
        ({"fast": FastConfig(), "method": "bleu"}, "no effect"),
        ({"profile": "estimated"}, "cannot be called 'estimated'"),
    ],
)
def test_what_cannot_be_asked_for(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        TuningConfig(**given)
