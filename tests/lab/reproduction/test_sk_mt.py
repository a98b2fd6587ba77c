"""SK-MT's choice and λ, beside slow and obvious ones."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from knnmt import SegmentPair
from knnmt.adapting.development import search_text
from knnmt.calibration.likelihood import losses
from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import OpenStore
from knnmt_lab.reproduction.sk_mt import NearestDistance, PlainBM25, sk_mt_settings
from support.datastore_pairs import some_pairs


def test_the_sentences_with_the_highest_bm25_are_chosen(tiny: TransformerEngine, tmp_path: Path) -> None:
    pairs = [*some_pairs(12), SegmentPair("ja ja ja nein ja", "yes", "own#1"), SegmentPair("ganz neu", "new", "own#2")]
    store = Datastore.build(tmp_path / "s", pairs, tiny)
    store.remove(lambda pair: pair.source == pairs[3].source)
    store.add([SegmentPair("nein ja", "no", "own#3")], tiny)
    index = PlainBM25(store.segments)
    kept = [*pairs, SegmentPair("nein ja", "no", "own#3")]
    held = [Counter(source) for source in tiny.tokenizer.encode_sources([pair.source for pair in kept])]
    mean = sum(map(len, tiny.tokenizer.encode_sources([pair.source for pair in kept]))) / len(kept)
    texts = ["ja nein", "Satz 5", "ganz"]
    sources = [source[:-1] for source in tiny.tokenizer.encode_sources(texts)]
    found = index.choose(sources, 5)
    for source, chosen in zip(sources, found.sentences.tolist(), strict=True):
        scores = []
        for number, tokens in enumerate(held):
            score = 0.0
            for token in set(source):
                times, of_all = tokens[token], sum(each[token] for each in held)
                idf = math.log(1 + (max(len(held) - of_all, 0) + 0.5) / (of_all + 0.5))
                score += idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * sum(tokens.values()) / mean))
            if number != 3 and score > 0:
                scores.append((-score, number))
        expected = [number for _, number in sorted(scores)][:5]
        assert chosen == [*expected, *[-1] * (5 - len(expected))]


def test_lambda_falls_with_the_distance_of_the_nearest_and_settings_are_of_the_least_loss(
    tiny: TransformerEngine, tmp_path: Path
) -> None:
    distances_sq = torch.tensor([[4.0, 9.0], [0.0, 1.0], [400.0, 500.0], [float("inf")] * 2])
    neighbours = Neighbours(distances_sq, torch.zeros(4, 2).long(), torch.tensor([[1, 2]] * 3 + [[-1, -1]]))
    weights, log_lambda = NearestDistance(10.0)(None, neighbours)  # type: ignore[arg-type]
    assert log_lambda.exp().tolist() == pytest.approx([0.8, 0.99, 0.0, 0.0])
    assert weights[0].exp().tolist() == pytest.approx(torch.tensor([-0.4, -0.9]).softmax(0).tolist())

    opened = OpenStore(Datastore.build(tmp_path / "s", some_pairs(40), tiny), chooser=PlainBM25)
    assert isinstance(opened.snapshot.source_index, PlainBM25)
    positions = search_text(tiny, opened, some_pairs(8, start=60), scope=16).positions()
    loss, config = sk_mt_settings(positions)
    assert config == RetrievalConfig(config.k, 0.99, config.temperature, segments=16)
    assert loss < positions.loss(None)
    for temperature in (config.temperature, config.temperature / 1.3, config.temperature * 1.3):
        near = positions.first(config.k)
        weight = (1 - near.nearest / temperature).clamp(0, 0.99)
        other = float(losses(near.knn(temperature), near.base, weight[None]))
        assert other == pytest.approx(loss) if temperature == config.temperature else other > loss - 1e-3
