"""Corrections take the place of what a store holds for the same source."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt import Datastore, SegmentPair
from knnmt.datastore.correcting import correct
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from support.datastore_pairs import some_pairs


@pytest.fixture
def store(tiny: TransformerEngine, tmp_path: Path) -> Datastore:
    pairs = [*some_pairs(4), SegmentPair("Satz 1 ja ", "line one", "other.tsv#1"), SegmentPair("Ja", "Yes", "a#1")]
    return Datastore.build(tmp_path / "own.store", pairs, tiny)


def held(store: Datastore) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in store.pairs():
        found.setdefault(" ".join(pair.source.split()), []).append(pair.target)
    return found


def test_a_correction_replaces_every_other_target_in_one_publication(store: Datastore, tiny: TransformerEngine) -> None:
    before, generation = held(store), store.manifest.generation
    assert before["Satz 1 ja"] == ["line 1 yes", "line one"]
    corrections = [SegmentPair("Satz  1 ja", "line the first", "new#1"), SegmentPair("Neu", "New", "new#2")]
    done = correct(store, corrections, tiny)
    assert held(store) == {**before, "Satz 1 ja": ["line the first"], "Neu": ["New"]}
    assert (done.change.removed_sentences, done.change.added_sentences, done.unchanged) == (2, 2, 0)
    assert done.new == corrections[1:]
    assert store.manifest.generation == generation + 1
    assert not list(store.verify())


def test_what_is_right_already_stays_and_what_is_new_can_be_left_out(store: Datastore, tiny: TransformerEngine) -> None:
    before = held(store)
    corrections = [SegmentPair("Satz 1 ja ", "line one", "new#1"), SegmentPair("Neu", "New", "new#2")]
    done = correct(store, [*corrections, *corrections], tiny, add_new=False)
    assert held(store) == {**before, "Satz 1 ja": ["line one"]}
    assert (done.change.removed_sentences, done.change.added_sentences, done.unchanged) == (1, 0, 1)
    assert [pair.origin for pair in store.pairs() if pair.target == "line one"] == ["other.tsv#1"]
    generation = store.manifest.generation
    assert correct(store, corrections[:1], tiny).unchanged == 1
    assert store.manifest.generation == generation


def test_a_source_may_have_several_targets(store: Datastore, tiny: TransformerEngine) -> None:
    correct(store, [SegmentPair("Ja", "Yes", "new#1"), SegmentPair("Ja", "Indeed", "new#2")], tiny)
    assert held(store)["Ja"] == ["Yes", "Indeed"]


def test_without_pairs_nothing_is_corrected(store: Datastore, tiny: TransformerEngine) -> None:
    with pytest.raises(InputError, match="expected pairs that replace others, found none"):
        correct(store, [], tiny)
