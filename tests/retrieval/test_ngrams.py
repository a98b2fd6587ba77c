"""Frequency and fertility of n-grams against plain dictionaries."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import torch
from datastore_pairs import some_pairs

from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.ngrams import NgramCounts


def test_counts_are_those_of_plain_dictionaries(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(30), tiny)
    store.add(some_pairs(5, start=100), tiny)
    store.remove(matching(match="Satz [37] "))
    targets = tiny.tokenizer.encode_targets([pair.target for pair in store.pairs()])
    followers: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for target in targets:
        padded = [-1] * 4 + list(target)
        for place in range(4, len(padded)):
            for order in range(1, 5):
                followers[tuple(padded[place - order : place])].append(padded[place])

    counts = NgramCounts(store)
    unheard = [1, 2, 3, 4, 5]
    for history in [[], *[target[:length] for target in targets[:4] for length in (1, 3, 7)], targets[0], unheard]:
        found = counts(torch.tensor([history], dtype=torch.long))[0].tolist()
        padded = [-1] * 4 + list(history)
        for order in range(1, 5):
            after = followers[tuple(padded[-order:])]
            expected = [math.log1p(len(after)), math.log1p(len(set(after)))]
            assert torch.allclose(torch.tensor(found[2 * order - 2 : 2 * order]), torch.tensor(expected))


def test_a_store_of_nothing_counts_nothing(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(3), tiny)
    store.remove(matching(match="."))
    assert not NgramCounts(store)(torch.tensor([[5, 6], [7, 8]])).any()
