"""Text that other processes prepare is prepared as here, in order, and none of it is lost when one of them ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore import building, preparing, slices
from knnmt.datastore.building import write_store
from knnmt.datastore.prepared import Slice
from knnmt.datastore.preparing import prepared_chunks
from knnmt.datastore.slices import cut_slices
from knnmt.engine.rows import Rows
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from support.datastore_pairs import some_pairs

UNITS = [
    SegmentPair("&Datei öffnen", "&Open file", "own#0"),
    SegmentPair("Erste Zeile.\nZweite Zeile.", "First line.\nSecond line.", "own#1", "menu"),
    *(
        SegmentPair(f"Das ist Satz {number}.", f"This is sentence {number}.", f"own#{number}")
        for number in range(2, 40)
    ),
]
CHUNKS = [UNITS[start : start + 4] for start in range(0, len(UNITS), 4)]


@dataclass
class Beside:
    """The processes that were started, and how many chunks they have prepared. fatal: each ends after its first"""

    prepared: Callable[..., Iterator[Slice]]
    started: list[preparing.Preparer] = field(default_factory=list)
    answers: int = 0
    fatal: bool = False


@pytest.fixture
def beside() -> Beside:
    """Processes are started after the first chunk."""

    class Watched(preparing.Preparer):
        def __init__(self, settings: bytes, asked: Any) -> None:
            known.started.append(self)
            super().__init__(settings, asked)

        def ask(self, pickled: bytes) -> object:
            made = super().ask(pickled)
            if isinstance(made, Slice):
                known.answers += 1
                if known.fatal:
                    self.process.kill()
                    self.process.wait()
            return made

    known = Beside(partial(prepared_chunks, alone_first=1, preparer=Watched))
    return known


def plain(parts: Iterable[Slice]) -> list[list[Any]]:
    """All that was prepared, in lists."""
    found = [[getattr(part, each.name) for each in fields(part)] for part in parts]
    return [[list(each) if isinstance(each, Rows) else each.tolist() for each in part] for part in found]


def waiting_for(beside: Beside) -> Iterator[list[SegmentPair]]:
    """The chunks, the last of them when another process has prepared one."""
    yield from CHUNKS[:-1]
    while not beside.answers:
        time.sleep(0.01)
    yield CHUNKS[-1]


def test_processes_prepare_what_this_one_would_and_end_with_it(engine: TransformerEngine, beside: Beside) -> None:
    alone = list(beside.prepared(CHUNKS, engine.tokenizer, "drop"))
    assert not beside.started
    assert alone[0].lines.tolist() == [0, 0, 1, 1, 0, 0]
    texts = [bytes(row).decode() for row in alone[0].texts[8:16]]
    assert texts == ["Erste Zeile.", "First line.", "own#1", "menu", "Zweite Zeile.", "Second line.", "own#1", "menu"]
    assert plain(beside.prepared(waiting_for(beside), engine.tokenizer, "drop", 2)) == plain(alone)
    assert [other.process.poll() is not None for other in beside.started] == [True, True]
    assert not any(other.thread.is_alive() for other in beside.started)


def test_what_processes_leave_undone_is_done_here(engine: TransformerEngine, beside: Beside) -> None:
    beside.fatal = True
    found = plain(beside.prepared(waiting_for(beside), engine.tokenizer, "drop", 2))
    assert 1 <= beside.answers <= 2
    assert found == plain(beside.prepared(CHUNKS, engine.tokenizer, "drop"))


def test_processes_end_when_nobody_asks_any_more(engine: TransformerEngine, beside: Beside) -> None:
    parts = beside.prepared(waiting_for(beside), engine.tokenizer, "drop", 3)
    assert isinstance(parts, Generator)
    next(parts)
    next(parts)
    parts.close()
    assert [other.process.poll() is not None for other in beside.started] == [True] * 3
    assert not any(other.thread.is_alive() for other in beside.started)


@pytest.mark.parametrize("processes", [0, 1])
def test_what_is_wrong_with_a_text_is_said_here(engine: TransformerEngine, beside: Beside, processes: int) -> None:
    chunks = [*CHUNKS[:9], [SegmentPair("\ud800", "half a character", "own#1")]]
    with pytest.raises(InputError, match="own#1: expected text, found half of a surrogate pair"):
        list(beside.prepared(chunks, engine.tokenizer, "drop", processes))


def test_a_tokenizer_that_cannot_travel_stays(tiny: TransformerEngine, beside: Beside) -> None:
    class Own:
        encode_sources = encode_targets = staticmethod(tiny.tokenizer.encode_sources)

    chunks = [some_pairs(4), some_pairs(3)]
    expected = plain(beside.prepared(chunks, tiny.tokenizer, "drop"))
    assert plain(beside.prepared(chunks, Own(), "drop", 2)) == expected
    assert not beside.started


def test_the_bytes_of_a_store_do_not_depend_on_who_prepares(
    tmp_path: Path, engine: TransformerEngine, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_ENTRIES", 60)
    monkeypatch.setattr(building, "cut_slices", partial(cut_slices, pairs_per_chunk=4))
    made = [write_store(tmp_path / "alone", UNITS, engine)]
    monkeypatch.setattr(slices, "prepared_chunks", beside.prepared)
    monkeypatch.setattr(building, "preparers", lambda _: 2)
    made.append(write_store(tmp_path / "beside", (unit for chunk in waiting_for(beside) for unit in chunk), engine))
    assert len(beside.started) == 2
    assert made[0].manifest == made[1].manifest
    assert len(made[0].manifest.segments) > 4
    assert made[0].dropped == made[1].dropped == Counter()
