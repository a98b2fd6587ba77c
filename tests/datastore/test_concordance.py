"""Concordance: which pairs of a store contain some words."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.concordance import concordance
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")
PAIRS = [
    SegmentPair("Datei öffnen", "Open the file", "a.tsv#1"),
    SegmentPair("Dateien löschen", "Delete files", "a.tsv#2"),
    SegmentPair("Ablage", "Open storage", "a.tsv#3"),
    SegmentPair("Das ist\nÄrger mit der Datei", "Trouble", "dateien.tsv#4"),
    SegmentPair("Файл открыт", "The file is open", "a.tsv#5"),
]


@pytest.fixture
def store(tmp_path: Path, tiny: TransformerEngine) -> Datastore:
    return Datastore.build(tmp_path / "store", PAIRS, tiny)


def targets(store: Datastore, *words: str, most: int = 10) -> list[str]:
    return [pair.target for pair in concordance(store.segments, words, most)]


def test_words_are_found_on_both_sides_the_newest_first(store: Datastore) -> None:
    """Trap: the texts of a store lie one after the other, so that words end where others begin, and in origins."""
    assert targets(store, "datei") == ["Trouble", "Delete files", "Open the file"]
    assert targets(store, "FILE") == ["The file is open", "Delete files", "Open the file"]
    assert targets(store, "datei", "FILE") == ["Delete files", "Open the file"]
    assert targets(store, "ärger") == ["Trouble"]
    assert targets(store, "файл", "Open") == targets(store, "аЙ") == ["The file is open"]
    assert targets(store, "file", most=2) == ["The file is open", "Delete files"]
    assert targets(store, "tsv") == targets(store, "nöffn") == targets(store, "ablageopen") == []


def test_changes_of_the_store_count_at_once(store: Datastore, tiny: TransformerEngine) -> None:
    store.remove(matching(source_text="Dateien löschen"))
    again = [SegmentPair("Datei öffnen", "Open the file", f"b.tsv#{number}") for number in range(3)]
    store.add([*again, SegmentPair("Datei schließen", "Close the file", "b.tsv#4")], tiny)
    assert targets(store, "datei") == ["Close the file", "Open the file", "Trouble"]


def test_texts_of_many_blocks_are_read_until_told_to_stop(store: Datastore) -> None:
    calls: list[None] = []

    def twice() -> bool:
        calls.append(None)
        return len(calls) <= 2

    everything = concordance(store.segments, ["e"], 9)
    assert len(everything) == len(PAIRS)
    for size in (1, 40, 80):
        assert concordance(store.segments, ["e"], 9, block_bytes=size) == everything
    assert concordance(store.segments, ["e"], 9, twice, block_bytes=1) == everything[:2]
