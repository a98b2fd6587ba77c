"""What every entry keeps of its forced pass, and every unit of its context: written by all that writes, and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.preparing import prepare
from knnmt.datastore.segment import NOT_ALIGNED, SCORES
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.forced import force, force_text, score
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.store_index import StoreIndex
from support.crafted import alter_arrays
from support.datastore_pairs import some_pairs

CONTEXT = "menu|Öffnen"


def expected(engine: TransformerEngine, pair: SegmentPair) -> tuple[list[float], list[bool], list[int]]:
    """Log-probabilities, first choices and alignment of a pair's tokens, by a pass of its own and plain loops."""
    source = engine.tokenizer.encode_sources([pair.source])[0]
    target = engine.tokenizer.encode_targets([pair.target])[0]
    block = force(engine, [source], [target], cross_attention=True)
    scores = engine.log_probabilities(block.representations)
    assert block.cross_attention is not None
    rows = range(len(target))
    aligned = [int(block.cross_attention[0, row, : len(source) - 1].argmax()) for row in rows]
    own = [float(scores[row, target[row]]) for row in rows]
    return own, [int(scores[row].argmax()) == target[row] for row in rows], [*aligned[:-1], len(source) - 1]


def require_all(store: Datastore, engine: TransformerEngine) -> None:
    """That every live entry has what a pass over its pair alone gives."""
    for segment in store.segments:
        arrays = segment.arrays
        assert [str(arrays[name].dtype) for name in (*SCORES, "alignment")] == ["float16", "uint8", "uint16"]
        for entry in np.flatnonzero(segment.live_entries()):
            pair = segment.pair(int(arrays["sentences"][entry]))
            own, first, aligned = (each[arrays["positions"][entry]] for each in expected(engine, pair))
            assert arrays["log_probabilities"][entry] == pytest.approx(own, abs=2e-3 * max(1, abs(own)))
            assert arrays["first_choices"][entry] == first
            assert arrays["alignment"][entry] == aligned
    assert list(store.verify()) == []


@pytest.fixture
def pairs(tiny: TransformerEngine) -> list[SegmentPair]:
    """Some with a context; the target of the last is what the model itself says, so that it is its first choice."""
    made = [replace(pair, context=CONTEXT if number % 3 == 0 else "") for number, pair in enumerate(some_pairs(8))]
    letters = tiny.tokenizer.encode_targets(["abc"])[0]
    best = force(tiny, [tiny.tokenizer.encode_sources([made[0].source])[0]], [letters])
    first = tiny.log_probabilities(best.representations)[0].argmax()
    return [*made, SegmentPair(made[0].source, tiny.tokenizer.decode([int(first)]) or "a", "own.tsv#best")]


def test_every_entry_has_the_models_scores_and_its_source_token(
    tmp_path: Path, tiny: TransformerEngine, pairs: list[SegmentPair]
) -> None:
    store = Datastore.build(tmp_path / "s", pairs, tiny)
    require_all(store, tiny)
    store.add(some_pairs(1, "live", 30), tiny)
    store.replace(matching(origin="own.tsv#2"), [SegmentPair("neu", "new", "live#1", "key.new")], tiny)
    require_all(store, tiny)
    store.remove(matching(origin="own.tsv#3"))
    store.compact()
    assert len(store.segments) == 1
    require_all(store, tiny)
    held = {pair.origin: pair.context for pair in store.pairs()}
    assert held["own.tsv#0"] == held["own.tsv#6"] == CONTEXT
    assert held["live#1"] == "key.new"
    assert (held["own.tsv#1"], held["live#30"]) == ("", "")
    pruned = prune(store, tmp_path / "pruned", StoreIndex(store).search, k=2)
    require_all(pruned, tiny)
    assert {pair.origin: pair.context for pair in pruned.pairs()} == held
    reduced, _ = reduce(pruned, tmp_path / "reduced", 4)
    require_all(reduced, tiny)
    assert {pair.origin: pair.context for pair in reduced.pairs()} == held


def test_an_entry_may_be_aligned_with_nothing(tmp_path: Path, tiny: TransformerEngine) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(2), tiny).path
    alter_arrays(store, alignment=lambda array: array * 0 + np.uint16(NOT_ALIGNED))
    assert list(Datastore.open(store).verify()) == []


def test_contexts_name_slices(tiny: TransformerEngine) -> None:
    """Whatever stands in a context."""
    plain, other = some_pairs(2)
    digests = [
        prepare(pairs, tiny.tokenizer, "drop").digest()
        for pairs in (
            [plain, other],
            [replace(plain, context="a"), other],
            [plain, replace(other, context="a")],
            [replace(plain, context="b"), other],
        )
    ]
    assert len(set(digests)) == 4
    assert digests[0] == prepare(some_pairs(2), tiny.tokenizer, "drop").digest()


def test_scores_are_the_same_whatever_is_computed_together(tiny: TransformerEngine) -> None:
    forced = force_text(tiny, some_pairs(9))
    whole, parts = (score(tiny, forced.representations, forced.targets, rows) for rows in (None, 3))
    torch.testing.assert_close(whole[0], parts[0])
    assert torch.equal(whole[1], parts[1])
