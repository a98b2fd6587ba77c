"""Text that a store holds already is found."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.overlap import known, overlap, unseen
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from support.datastore_pairs import some_pairs

_TEXT = st.text("ab \t", min_size=1, max_size=3)
_PAIRS = st.lists(st.builds(SegmentPair, _TEXT, _TEXT, st.just("own")), max_size=8)


@given(_PAIRS, _PAIRS)
def test_it_finds_what_comparing_all_with_all_finds(asked: list[SegmentPair], held: list[SegmentPair]) -> None:
    found = known(asked, held)
    sources: set[int] = set()
    pairs: set[int] = set()
    for number, one in enumerate(asked):
        for other in held:
            if one.source.split() == other.source.split():
                sources.add(number)
                if one.target.split() == other.target.split():
                    pairs.add(number)
    assert (set(found.sources), set(found.pairs)) == (sources, pairs)


def test_sources_that_a_store_holds_are_known_whatever_their_white_space(
    tiny: TransformerEngine, tmp_path: Path
) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(12), tiny)
    held, other = some_pairs(12), some_pairs(2, start=50)
    spaced = SegmentPair(f"  {held[3].source.replace(' ', '  ')}\t", held[3].target, "dev#1")
    changed = SegmentPair(held[5].source, "something else", "dev#2")
    found = overlap(store, [other[0], spaced, changed, held[7], other[1]])
    assert found.new == (other[0], other[1])
    assert found.known == (spaced, changed, held[7])
    assert found.whole == 2

    store.remove(matching(source_text=held[7].source))
    assert overlap(store, [held[7]]).new == (held[7],)
    assert overlap(store, []).known == ()


def test_what_a_store_holds_neither_side_of(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(12), tiny)
    held, other = some_pairs(12), some_pairs(2, start=50)
    source_known = SegmentPair(f" {held[3].source}", "something else", "dev#1")
    target_known = SegmentPair("etwas anderes", held[5].target.replace(" ", "  "), "dev#2")
    assert unseen(store, [other[0], source_known, target_known, held[7], other[1], other[0]]) == [*other, other[0]]
    assert unseen(store, []) == []


def test_a_letter_is_the_same_however_it_is_written() -> None:
    one, other = (SegmentPair(text, "nice", "own") for text in ("scho\u0308n", "sch\u00f6n"))
    assert known([one], [other]).pairs == {0}
