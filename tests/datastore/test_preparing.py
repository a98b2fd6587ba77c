"""Text that other processes prepare is prepared as here, in order, and none of it is lost when one of them ends."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from datastore_pairs import some_pairs

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore import building, preparing, slices
from knnmt.datastore.building import build
from knnmt.datastore.preparing import prepared_chunks
from knnmt.engine.transformer import TransformerEngine

UNITS = [
    SegmentPair("&Datei öffnen", "&Open file", "own#0"),
    SegmentPair("Erste Zeile.\nZweite Zeile.", "First line.\nSecond line.", "own#1", "menu"),
    *(
        SegmentPair(f"Das ist Satz {number}.", f"This is sentence {number}.", f"own#{number}")
        for number in range(2, 40)
    ),
]
CHUNKS = [UNITS[start : start + 4] for start in range(0, len(UNITS), 4)]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[preparing._Preparer]:
    """The processes that are started, after the first chunk."""
    every: list[preparing._Preparer] = []
    begin = preparing._Preparer.__init__

    def known(self: preparing._Preparer, *settings: object) -> None:
        every.append(self)
        begin(self, *settings)  # type: ignore[arg-type]

    monkeypatch.setattr(preparing._Preparer, "__init__", known)
    monkeypatch.setattr(preparing, "_ALONE_FIRST", 1)
    return every


def test_processes_prepare_what_this_one_would_and_end_with_it(
    engine: TransformerEngine, started: list[preparing._Preparer]
) -> None:
    alone = list(prepared_chunks(CHUNKS, engine.tokenizer, "drop"))
    assert not started
    assert alone[0][1].lines == {1: [("Erste Zeile.", "First line."), ("Zweite Zeile.", "Second line.")]}
    assert list(prepared_chunks(CHUNKS, engine.tokenizer, "drop", 2)) == alone
    assert [other._process.poll() is not None for other in started] == [True, True]


def test_what_a_process_leaves_undone_is_done_here(
    engine: TransformerEngine, started: list[preparing._Preparer]
) -> None:
    found = []
    for each in prepared_chunks(CHUNKS, engine.tokenizer, "drop", 2):
        found.append(each)
        if len(found) == 3:
            started[0]._process.kill()
    assert found == list(prepared_chunks(CHUNKS, engine.tokenizer, "drop"))


def test_what_is_wrong_with_a_text_is_said_here(engine: TransformerEngine, started: list[preparing._Preparer]) -> None:
    # No tokenizer takes it; a build refuses it before.
    chunks = [*CHUNKS[:2], [SegmentPair("\ud800", "half a character", "own#1")]]
    with pytest.raises((TypeError, UnicodeEncodeError)):
        list(prepared_chunks(chunks, engine.tokenizer, "drop", 1))


def test_a_tokenizer_that_cannot_travel_stays(tiny: TransformerEngine, started: list[preparing._Preparer]) -> None:
    class Own:
        encode_sources = encode_targets = staticmethod(tiny.tokenizer.encode_sources)

    chunks = [some_pairs(4), some_pairs(3)]
    expected = list(prepared_chunks(chunks, tiny.tokenizer, "drop"))
    assert list(prepared_chunks(chunks, Own(), "drop", 2)) == expected  # type: ignore[arg-type]
    assert not started


def test_the_bytes_of_a_store_do_not_depend_on_who_prepares(
    tmp_path: Path, engine: TransformerEngine, started: list[preparing._Preparer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_ENTRIES", 60)
    monkeypatch.setattr(slices, "_TOKENIZED_TOGETHER", 4)
    made = [build(tmp_path / "alone", UNITS, engine)]
    monkeypatch.setattr(building, "_preparers", lambda _: 2)
    made.append(build(tmp_path / "beside", UNITS, engine))
    assert len(started) == 2
    assert made[0].manifest == made[1].manifest
    assert len(made[0].manifest.segments) > 4
    assert made[0].dropped == made[1].dropped == Counter()
