from __future__ import annotations

from pathlib import Path

from datastore_pairs import some_pairs
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.evaluation.contamination import contamination

_TEXT = st.text("ab \t", min_size=1, max_size=3)
_PAIRS = st.lists(st.builds(SegmentPair, _TEXT, _TEXT, st.just("own")), max_size=8)


@given(_PAIRS, _PAIRS)
def test_it_finds_what_comparing_all_with_all_finds(store: list[SegmentPair], segments: list[SegmentPair]) -> None:
    found = contamination("own", store, segments)
    sources: set[int] = set()
    pairs: set[int] = set()
    for number, segment in enumerate(segments):
        for entry in store:
            if segment.source.split() == entry.source.split():
                sources.add(number)
                if segment.target.split() == entry.target.split():
                    pairs.add(number)
    assert (set(found.sources), set(found.pairs)) == (sources, pairs)


def test_what_was_removed_from_a_store_is_not_known_any_more(tiny: TransformerEngine, tmp_path: Path) -> None:
    pairs = some_pairs(6)
    store = Datastore.build(tmp_path / "own.store", pairs, tiny)
    spaced = SegmentPair(f" {pairs[1].source.replace(' ', '  ')}", "another target", "test#1")
    segments = [pairs[0], spaced, SegmentPair("neu", "new", "test#2")]
    found = contamination("own.store", store.pairs(), segments)
    assert (set(found.sources), set(found.pairs)) == ({0, 1}, {0})
    store.remove(matching(source_text=pairs[0].source))
    assert contamination("own.store", store.pairs(), segments).sources == {1}
