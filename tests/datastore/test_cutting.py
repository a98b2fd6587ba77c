"""Slices are cut where going through the text unit by unit would cut them."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore import slices
from knnmt.datastore.prepared import Slice
from knnmt.datastore.preparing import prepare
from knnmt.datastore.slices import cut_slices
from knnmt.engine.rows import Rows
from knnmt.engine.transformer import TransformerEngine

ENTRIES, SENTENCES, POSITIONS = 30, 3, 20
TEXTS = ["Ja.", "Nein, danke.", "Eins.\nZwei.", "A.\nB.\nC.\nD.", "ein Satz, der viel zu lang ist", "Ende"]


def plain(part: Slice) -> list[Any]:
    """All that is in a slice, in lists."""
    found = [getattr(part, each.name) for each in fields(part)]
    return [list(each) if isinstance(each, Rows) else each.tolist() for each in found]


def one_by_one(units: list[SegmentPair], engine: TransformerEngine, dropped: Counter[str]) -> list[list[Any]]:
    cut: list[list[Slice]] = [[]]
    for unit in units:
        ready = prepare([unit], engine.tokenizer, "drop")
        if max(len(ready.sources[0]), len(ready.targets[0])) > POSITIONS:
            dropped[f"longer than the model's {POSITIONS} positions"] += 1
            continue
        if sum(part.entries for part in cut[-1]) >= ENTRIES or sum(map(len, cut[-1])) >= SENTENCES:
            cut.append([])
        cut[-1].append(ready)
    return [plain(Slice.joined(parts)) for parts in cut if parts]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)), max_size=40), st.integers(1, 9))
def test_slices_are_those_of_going_unit_by_unit(
    tiny: TransformerEngine, monkeypatch: pytest.MonkeyPatch, texts: list[tuple[str, str]], together: int
) -> None:
    monkeypatch.setattr(slices, "SLICE_ENTRIES", ENTRIES)
    units = [SegmentPair(*sides, f"own#{number}", "menu" * (number % 3)) for number, sides in enumerate(texts)]
    dropped: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    cut = cut_slices(
        iter(units), tiny.tokenizer, POSITIONS, dropped, pairs_per_slice=SENTENCES, pairs_per_chunk=together
    )
    found = [plain(part) for part in cut]
    assert found == one_by_one(units, tiny, expected)
    assert dropped == expected


def test_a_slice_names_its_sentences(tiny: TransformerEngine) -> None:
    part = prepare(
        [SegmentPair("Eins.\nZwei.", "One.\nTwo.", "a#1"), SegmentPair("Ja", "Yes", "b#2")], tiny.tokenizer, "drop"
    )
    assert [part.origin(number) for number in (0, 1, 2, -1)] == ["a#1", "a#1", "a#1", "b#2"]
    assert plain(part.taken(np.array([3]))) == plain(part.between(3, 4))
    assert part.lines.tolist() == [0, 1, 1, 0]
