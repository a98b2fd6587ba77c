"""The usual lengths of a store's translations."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt import Datastore, SegmentPair
from knnmt.datastore.lengths import TranslationLengths
from knnmt.engine.transformer import TransformerEngine


def pairs(count: int, words: int) -> list[SegmentPair]:
    long = " ".join(["Haus"] * 10)
    return [SegmentPair(f"{long} {number}", " ".join(["house"] * words), "made") for number in range(count)]


def test_the_shortest_usual_translation(engine: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", pairs(240, 5), engine)
    lengths = TranslationLengths(store)
    shortest = lengths.shortest
    assert shortest == pytest.approx(29 / 53, abs=0.03)
    assert lengths.shortest is shortest


def test_a_store_with_few_segments_says_nothing(engine: TransformerEngine, tmp_path: Path) -> None:
    assert TranslationLengths(Datastore.build(tmp_path / "s", pairs(9, 5), engine)).shortest is None


def test_the_length_follows_the_store(engine: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", pairs(150, 5), engine)
    lengths = TranslationLengths(store)
    assert lengths.shortest is None
    store.add([SegmentPair(f"{each.source} neu", each.target, "more") for each in pairs(150, 5)], engine)
    assert lengths.shortest == pytest.approx(0.5, abs=0.1)
