"""Arrays that states of a store share, beside plain ones."""

from __future__ import annotations

from random import Random

import numpy as np

from knnmt.index.growing import Growing


def test_whoever_follows_whom_each_has_its_own() -> None:
    """States follow one another in any order, and some change: none sees what another was given."""
    chance = Random(3)
    states = [(Growing(np.arange(4)), [0, 1, 2, 3])]
    for number in range(200):
        state, expected = chance.choice(states)
        if chance.random() < 0.3:
            places = sorted(chance.sample(range(len(expected)), 2))
            values = [chance.choice([expected[place], 1000 + number]) for place in places]
            changed = [*expected]
            for place, value in zip(places, values, strict=True):
                changed[place] = value
            states.append((state.with_changed(np.array(places), np.array(values)), changed))
        else:
            new = [10 * number] * chance.randrange(3)
            states.append((state.followed_by(np.array(new, np.int64)), [*expected, *new]))
    assert all(state.array.tolist() == expected for state, expected in states)


def test_what_follows_shares_memory_as_long_as_there_is_room() -> None:
    first = Growing(np.arange(10))
    second = first.followed_by(np.arange(5))
    assert np.shares_memory(first.array, second.array)
    assert not np.shares_memory(first.array, first.followed_by(np.arange(5)).array)  # its place is taken
    assert first.with_changed(np.array([3]), np.array([3])) is first
    assert not np.shares_memory(first.array, second.followed_by(np.arange(1 << 17)).array)
