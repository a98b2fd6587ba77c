"""What stands for a pair in Python: tuples, rows of a dataset, objects; and what does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from knnmt import Datastore, SegmentPair
from knnmt.corpus.pairs import as_pairs
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError


@dataclass(slots=True)
class Row:
    source: str
    target: str


def test_all_forms_of_a_pair() -> None:
    whole = SegmentPair("a", "b", "m.tsv#7", "title")
    given: list[Any] = [
        whole,
        ("a", "b"),
        ["a", "b"],
        {"source": "a", "target": "b", "origin": "x", "context": "y"},
        {"translation": {"en": "b", "de": "a"}, "id": 3},
        Row("a", "b"),
    ]
    assert list(as_pairs(iter(given), ("de", "en"))) == [
        whole,
        SegmentPair("a", "b", "pairs#2"),
        SegmentPair("a", "b", "pairs#3"),
        SegmentPair("a", "b", "x", "y"),
        SegmentPair("a", "b", "pairs#5"),
        SegmentPair("a", "b", "pairs#6"),
    ]


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("ab", "pair 2: expected a source and its translation, such as .'Ja.', 'Yes.'., found 'ab'"),
        (("a",), "found .'a',."),
        (("a", None), "found .'a', None"),
        ({"source": "a"}, "found {'source': 'a'}"),
        (None, "found None"),
        (
            {"translation": {"de": "a", "en": "b"}},
            "expected texts in an unknown language and an unknown language, found de, en: give",
        ),
    ],
)
def test_what_is_no_pair_is_named(pair: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        list(as_pairs([("a", "b"), pair]))


def test_a_language_that_a_pair_lacks_is_named() -> None:
    with pytest.raises(InputError, match="expected texts in de and en, found de, fr"):
        list(as_pairs([{"translation": {"de": "a", "fr": "b"}}], ("de", "en")))


def test_stores_take_them_and_keep_nothing_of_wrong_ones(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "own", [("Satz 1 ja", "line 1 yes"), Row("Satz 2", "line 2")], tiny)
    assert [(pair.source, pair.target) for pair in store.pairs()] == [("Satz 1 ja", "line 1 yes"), ("Satz 2", "line 2")]
    before = store.manifest
    with pytest.raises(InputError, match="pair 2: expected a source and its translation"):
        store.add([("Satz 3", "line 3"), ("Satz 4",)], tiny)
    assert Datastore.open(store.path).manifest == before
    with pytest.raises(InputError, match="pair 1: expected a source and its translation"):
        Datastore.build(tmp_path / "wrong", ["ab"], tiny)
    assert not (tmp_path / "wrong").exists()
    Datastore.build(tmp_path / "wrong", [("Satz 1", "line 1")], tiny)
