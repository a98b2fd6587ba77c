"""Development text after one forced pass: against the engine and the keys themselves, also of smaller stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt import SegmentPair
from knnmt.adapting.development import search_text
from knnmt.compression.pca import KeyProjection, reduce
from knnmt.compression.pruning import prune
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.forced import force, force_text
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from knnmt.index.entries import Entries
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.open_store import OpenStore
from support.datastore_pairs import some_pairs

PAIRS = [*some_pairs(7, start=60), SegmentPair("viel zu lang " * 20, "x", "long"), *some_pairs(2, start=90)]
FITTING = [pair for pair in PAIRS if pair.origin != "long"]


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(30), tiny)


def test_text_is_forced_in_its_order_and_what_does_not_fit_is_left_out(tiny: TransformerEngine) -> None:
    heard: list[tuple[int, int]] = []
    found = force_text(tiny, PAIRS, lambda pairs, entries: heard.append((pairs, entries)))
    begin = 0
    for number, pair in enumerate(FITTING):
        sources = tiny.tokenizer.encode_sources([pair.source])
        targets = tiny.tokenizer.encode_targets([pair.target])
        alone = force(tiny, sources, targets)
        mine = slice(begin, begin + len(alone.targets))
        assert torch.equal(found.targets[mine], alone.targets)
        assert torch.allclose(found.representations[mine], alone.representations, atol=1e-4)
        assert set(found.sentences[mine].tolist()) == {number}
        assert found.positions[mine].tolist() == list(range(len(alone.targets)))
        begin = mine.stop
    assert begin == len(found.targets)
    assert heard[-1] == (9, begin)


@pytest.mark.parametrize("kind", ["whole", "reduced", "pruned", "both"])
def test_what_is_found_is_what_the_store_holds(
    tiny: TransformerEngine, store: Datastore, tmp_path: Path, kind: str
) -> None:
    made = store
    if kind in ("reduced", "both"):
        made, _ = reduce(made, tmp_path / "short", 8)
    if kind in ("pruned", "both"):
        made = prune(made, tmp_path / "few", StoreIndex(made).search, 4, 0)
    opened = OpenStore(made)
    found = search_text(tiny, opened, PAIRS, k=5)
    forced = force_text(tiny, FITTING)
    projection = KeyProjection.of(made)
    states = forced.representations if projection is None else projection(forced.representations)
    assert (found.pairs, len(found)) == (9, len(forced.targets))
    assert torch.allclose(found.states, states, atol=1e-5)
    expected = tiny.log_probabilities(forced.representations).exp().gather(1, forced.targets[:, None])[:, 0]
    assert torch.allclose(found.base.float(), expected, rtol=1e-3)

    entries = Entries(made)
    keys = np.array(entries.keys_of(np.arange(entries.entries)), np.float32)
    positions = found.positions()
    for row in range(0, len(found), 7):
        distances_sq = ((keys - found.states[row].numpy()) ** 2).sum(1)
        nearest = np.sort(distances_sq)[:5]
        assert positions.distances_sq[row].tolist() == pytest.approx(nearest.tolist(), rel=1e-3, abs=1e-3)
        for place, entry in enumerate(found.neighbours.ids[row].tolist()):
            assert bool(positions.matches[row, place]) == (int(entries.values[entry]) == int(found.tokens[row]))
            if entries.counts is not None:
                assert positions.log_counts[0] is not None
                assert float(positions.log_counts[0][row, place].exp()) == pytest.approx(float(entries.counts[entry]))
    assert (positions.log_counts[0] is None) == (entries.counts is None)

    some = found.spread(len(found) // 2)
    assert 0 < len(some) <= len(found) // 2
    assert some.sentences.tolist() == sorted(some.sentences.tolist())
    assert set(some.sentences.tolist()) == set(range(some.pairs))
    assert len(found.spread(10_000)) == len(found)


def test_a_part_of_the_text_is_whole_sentences_from_all_over_it(tiny: TransformerEngine, store: Datastore) -> None:
    found = search_text(tiny, OpenStore(store), FITTING, k=5)
    lengths = torch.bincount(found.sentences).tolist()
    begins = [sum(lengths[:number]) for number in range(len(lengths))]
    for rows in (1, 40, len(found) - 1):
        some = found.spread(rows)
        taken = [number * found.pairs // some.pairs for number in range(some.pairs)]
        expected = [row for number in taken for row in range(begins[number], begins[number] + lengths[number])]
        assert len(some) <= rows or some.pairs == 1
        assert torch.equal(some.states, found.states[expected])
        assert torch.equal(some.tokens, found.tokens[expected])
        assert torch.equal(some.base, found.base[expected])
        assert torch.equal(some.neighbours.ids, found.neighbours.ids[expected])
    assert taken[-1] > found.pairs // 2


def test_progress_counts_pairs_twice(tiny: TransformerEngine, store: Datastore) -> None:
    heard: list[int] = []
    search_text(tiny, OpenStore(store), FITTING, progress=lambda pairs, _: heard.append(pairs))
    assert heard == sorted(heard)
    assert heard[-1] == 2 * len(FITTING)


def test_a_missing_neighbour_matches_no_token(tiny: TransformerEngine, tmp_path: Path) -> None:
    few = Datastore.build(tmp_path / "s", some_pairs(3), tiny)
    few.remove(matching(match="Satz [01]"))
    found = search_text(tiny, OpenStore(few), FITTING, k=40)
    missing = found.positions().distances_sq.isinf()
    assert bool(missing.any())
    assert not bool((found.positions().matches & missing).any())
    few.remove(matching(match="Satz"))
    with pytest.raises(InputError, match="no entries left"):
        search_text(tiny, OpenStore(few), FITTING)
