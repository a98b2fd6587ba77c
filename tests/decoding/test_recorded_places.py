"""Translations that the host puts together from the results of steps, against lists that grow step by step."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from knnmt.config import DecodingConfig
from knnmt.decoding.arena import MAX_TURNS
from knnmt.decoding.recorded_places import CHANCE, ENDS, GAINS, NUMBERS, TAKEN, TOKENS, Places
from knnmt.decoding.recorded_sentences import Sentence
from knnmt.retrieval.statistics import Statistics

END = 7
CONFIG = DecodingConfig(beam=1, n_best=1, max_tokens=400, length_penalty=0.5)


class Device:
    """Sentences of random lengths that advance by random numbers of tokens, and what should become of them."""

    def __init__(self, places: Places, random: np.random.Generator) -> None:
        self.places, self.random = places, random
        self.expected: dict[int, dict[str, Any]] = {}
        self.at: list[int | None] = [None] * len(places)

    def admit(self, place: int, number: int, length: int, told: int | None, under_way: int) -> None:
        statistics = Statistics()
        batch: Any = SimpleNamespace(retrieval=SimpleNamespace(statistics=statistics))
        draft = [1] * int(self.random.integers(0, 3))
        self.places.take(place, Sentence(batch, number, draft), 32, under_way)
        begun: dict[str, Any] = {
            "tokens": [],
            "in_one_go": [],
            "score": 0.0,
            "chance": float(bool(draft)),
            "drafts": {},
            "accepted": 0,
        }
        if told is not None:
            assert not self.places.tell(place, told)
            begun["tokens"], begun["in_one_go"] = [told], [False]
        self.expected[number] = {**begun, "length": length, "counted": statistics}
        self.at[place] = number

    def step(self, turns: int) -> np.ndarray[Any, Any]:
        result = self.random.integers(-5, 5, (len(self.at), NUMBERS)).astype(np.int32)
        for place, number in enumerate(self.at):
            if number is None:  # it was done before
                result[place, [TAKEN, CHANCE, ENDS]] = 0
                continue
            mine = self.expected[number]
            taken = min(int(self.random.integers(1, turns + 1)), mine["length"] - len(mine["tokens"]))
            chance = float(self.random.choice([0.0, 0.25, 0.9]))
            gains = -self.random.random(turns).astype(np.float32)
            tokens = self.random.integers(8, 99, turns)
            result[place, TAKEN], result[place, ENDS] = taken, int(self.random.integers(0, 8))
            result[place, CHANCE] = np.float32(chance).view(np.int32)
            if len(mine["tokens"]) + taken == mine["length"]:
                tokens[taken - 1], result[place, ENDS], self.at[place] = END, -1, None
            result[place, TOKENS : TOKENS + turns], result[place, GAINS : GAINS + turns] = tokens, gains.view(np.int32)
            mine["tokens"] = [*mine["tokens"], *tokens[:taken].tolist()]
            mine["in_one_go"] = [*mine["in_one_go"], *[turn > 0 for turn in range(taken)]]
            mine["score"] += float(gains[:taken].astype(np.float64).sum())
            if turns > 1 and mine["chance"] > 0:
                mine["drafts"][turns - 1] = mine["drafts"].get(turns - 1, 0) + 1
                mine["accepted"] += taken - 1
            mine["chance"] = chance
        return result


@pytest.mark.parametrize("told", [None, 3])
@pytest.mark.parametrize("longest", [12, 300])
def test_sentences_come_and_go_while_a_step_is_under_way(longest: int, told: int | None) -> None:
    random = np.random.default_rng(longest)
    places = Places(6, CONFIG, END)
    device = Device(places, random)
    under_way: list[tuple[int, np.ndarray[Any, Any]]] = []
    begun = 0
    done: dict[int, tuple[int, list[Any]]] = {}
    while len(done) < 40:
        for place in places.free[: int(random.integers(0, 3))] if begun < 40 else []:
            device.admit(place, begun, int(random.integers(2, longest)), told, len(under_way))
            begun += 1
        if begun == 40 and places.running <= 2 < len(places):
            for turns, result in under_way:
                done |= finished(places, result, turns)
            under_way.clear()
            rows = [place for place, each in enumerate(places.sentences) if each is not None]
            device.at = [*(device.at[row] for row in rows), *[None] * (2 - len(rows))]
            places.keep(rows, 2)
        turns = int(random.choice([1, 4, MAX_TURNS]))
        longest_now = max((len(device.expected[n]["tokens"]) for n in device.at if n is not None), default=0)
        under_way.append((turns, device.step(turns)))
        if len(under_way) > 1:
            turns, result = under_way.pop(0)
            done |= finished(places, result, turns)
            assert places.longest <= longest_now
    for number, (length, hypotheses) in done.items():
        expected, [found] = device.expected[number], hypotheses
        assert length == len(expected["tokens"])
        assert found.tokens == tuple(expected["tokens"])
        assert found.drafted == tuple(expected["in_one_go"])
        assert found.score == pytest.approx(expected["score"] / len(found.tokens) ** 0.5)
        counted = expected["counted"]
        assert counted.rows == counted.searches == length - (told is not None)
        assert counted.first_rows == 1
        assert (dict(counted.drafts), counted.accepted) == (expected["drafts"], expected["accepted"])


def finished(places: Places, result: np.ndarray[Any, Any], turns: int) -> dict[int, tuple[int, list[Any]]]:
    found = {}
    for place in places.read(result, turns):
        sentence, hypotheses = places.leave(place)
        found[sentence.number] = (len(hypotheses[0].tokens), hypotheses)
    return found


def test_a_sentence_that_nothing_can_follow_has_no_translation() -> None:
    places = Places(2, replace(CONFIG, forced_last_token=END), END)
    device = Device(places, np.random.default_rng(0))
    device.admit(1, 0, 9, None, 0)
    result = np.zeros((2, NUMBERS), np.int32)
    result[1, TAKEN], result[1, ENDS] = 2, -1
    result[1, GAINS + 1] = np.float32("-inf").view(np.int32)
    assert places.read(result, 4) == [1]
    sentence, hypotheses = places.leave(1)
    assert (sentence.number, hypotheses, places.free) == (0, [], [0, 1])
