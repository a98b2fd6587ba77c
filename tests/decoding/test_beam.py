"""Beam and greedy search find what `transformers` finds, and what a search written plainly finds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.decoding.continuations import best_continuations, in_pytorch
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.search import search
from knnmt.engine.loading import load_engine
from knnmt.engine.shipped import MODELS_DIRECTORY
from knnmt.engine.transformer import TransformerEngine
from support.checkpoints import MakeCheckpoint
from support.domain_text import domain_lines
from support.german import german_memory, german_sentences
from support.plain_search import plain_beam_search
from support.transformers_search import SETTINGS, TIE, generate, load_transformers

SOURCES = [[5, 17, 99, 120, 3, 0], [44, 8, 0], [201, 7, 7, 63, 0], [9, 0], [88, 130, 12, 54, 66, 190, 2, 0]]


@settings(deadline=None)
@given(
    sentences=st.integers(1, 3),
    width=st.integers(1, 5),
    vocabulary=st.integers(12, 450),
    count=st.integers(1, 12),
    forbidden=st.integers(0, 11),
    seed=st.integers(0, 1000),
)
def test_best_continuations_are_the_largest_of_all(
    sentences: int, width: int, vocabulary: int, count: int, forbidden: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_probabilities = torch.randn((sentences, width, vocabulary), generator=generator)
    log_probabilities[..., :forbidden] = -math.inf
    scores = torch.randn((sentences, width), generator=generator)
    total = log_probabilities + scores[..., None]
    for find in (best_continuations, in_pytorch):
        best, parents, tokens = find(scores, log_probabilities, count)
        assert torch.equal(best, total.flatten(1).topk(count).values)
        assert torch.equal(best, total[torch.arange(sentences)[:, None], parents, tokens])
        sentence = torch.arange(sentences)[:, None].expand_as(best)
        chosen = torch.stack([sentence, parents, tokens], dim=-1)[best > -math.inf]
        assert len(set(map(tuple, chosen.tolist()))) == len(chosen)
    finite = [
        (p, t)
        for p, t, b in zip(parents[0].tolist(), tokens[0].tolist(), best[0].tolist(), strict=True)
        if b > -math.inf
    ]
    assert len(set(finite)) == len(finite)


def test_where_there_are_fewer_continuations_than_asked_for_none_are_possible() -> None:
    scores, log_probabilities = torch.zeros(2, 1), torch.tensor([[[-1.0, -3.0, -2.0]], [[-3.0, -2.0, -1.0]]])
    for find in (best_continuations, in_pytorch):
        best, parents, tokens = find(scores, log_probabilities, 5)
        assert best.tolist() == [[-1, -2, -3, -math.inf, -math.inf]] * 2
        assert tokens[:, :3].tolist() == [[0, 2, 1], [2, 1, 0]]
        assert parents.eq(0).all()
        assert ((tokens >= 0) & (tokens < 3)).all()


@pytest.mark.parametrize("beam", [2, 4])
@pytest.mark.parametrize("length_penalty", [0.6, 1.0, 2.0])
def test_beam_search_agrees_with_a_plain_one(make_checkpoint: MakeCheckpoint, beam: int, length_penalty: float) -> None:
    engine = load_engine(make_checkpoint(), device="cpu")
    config = replace(engine.generation, beam=beam, n_best=beam, length_penalty=length_penalty, max_tokens=14)
    for source, found in zip(SOURCES, search(engine, SOURCES, config), strict=True):
        expected = plain_beam_search(engine, source, config)
        assert [each.tokens for each in found] == [each.tokens for each in expected]
        assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-4)


@pytest.mark.parametrize("name", list(SETTINGS))
def test_every_generation_setting_means_what_it_means_in_transformers(
    make_checkpoint: MakeCheckpoint, name: str
) -> None:
    directory = make_checkpoint(generation=SETTINGS[name])
    engine, model = load_engine(directory, device="cpu"), load_transformers(directory)
    for beam in (1, 3, 5):
        n_best = min(beam, 3)
        config = replace(engine.generation, beam=beam, n_best=n_best)
        ours = search(engine, SOURCES, config)
        theirs = generate(model, SOURCES, beam, n_best)
        assert [[each.tokens for each in found] for found in ours] == [
            [each.tokens for each in found] for found in theirs
        ]
        if name == "plain" and beam > 1:  # hypotheses end at different lengths, so that stopping is really tested
            assert len({len(each.tokens) for found in ours for each in found} - {39}) > 1
        if beam > 1:
            flat = [(a.score, b.score) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)]
            assert [a for a, _ in flat] == pytest.approx([b for _, b in flat], abs=1e-4)


def compare(
    engine: TransformerEngine, sentences: list[str], beam: int, n_best: int, batch: int
) -> tuple[int, list[float]]:
    """How many best hypotheses are those of `transformers`, and how far apart the scores of the others are."""
    model = load_transformers(MODELS_DIRECTORY / engine.name)
    sources = sorted(engine.tokenizer.encode_sources(sentences), key=len)
    config = replace(engine.generation, beam=beam, n_best=n_best)
    same, gaps = 0, []
    for i in range(0, len(sources), batch):
        group = sources[i : i + batch]
        ours = search(engine, group, config)
        theirs = generate(model, group, beam, n_best)
        for source, mine, other in zip(group, ours, theirs, strict=True):
            if [each.tokens for each in mine] == [each.tokens for each in other]:
                same += 1
            else:
                gaps += [
                    score_gap(engine, source, a, b) for a, b in zip(mine, other, strict=True) if a.tokens != b.tokens
                ]
    return same, gaps


def score_gap(engine: TransformerEngine, source: list[int], a: Hypothesis, b: Hypothesis) -> float:
    """Both hypotheses scored by our engine. For greedy search, which sees one step, the gap where they part."""
    if not math.isnan(b.score):
        return abs(a.score - b.score)
    parting = next(i for i, (x, y) in enumerate(zip(a.tokens, b.tokens, strict=False)) if x != y)
    state = engine.start(engine.encode([source]))
    prefix = [engine.special_tokens.decoder_start, *a.tokens[:parting]]
    row = engine.log_probabilities(engine.step(state, torch.tensor([[prefix]])))[0, 0, -1]
    return float((row[a.tokens[parting]] - row[b.tokens[parting]]).abs())


def shipped(name: str) -> TransformerEngine:
    engine = load_engine(name, device="cpu")
    assert isinstance(engine, TransformerEngine)
    return engine


def sentences_for(engine: TransformerEngine, count: int) -> list[str]:
    german = engine.name.startswith("de-")
    return [pair.source if german else pair.target for pair in german_memory(count)]


@pytest.mark.parametrize("name", ["de-en", "en-de"])
@pytest.mark.parametrize(("beam", "n_best"), [(5, 5), (1, 1)])
def test_a_shipped_model_translates_as_in_transformers(name: str, beam: int, n_best: int) -> None:
    engine = shipped(name)
    same, gaps = compare(engine, sentences_for(engine, 8), beam, n_best, batch=4)
    assert same >= 7  # what is not the same is a tie
    assert all(gap < TIE for gap in gaps)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["de-en", "en-de"])
@pytest.mark.parametrize(("beam", "n_best"), [(5, 1), (1, 1), (5, 5)])
def test_many_sentences_translate_as_in_transformers(name: str, beam: int, n_best: int) -> None:
    engine = shipped(name)
    sentences = sentences_for(engine, 320 if n_best == 1 else 64)
    same, gaps = compare(engine, sentences, beam, n_best, batch=16)
    assert same >= 0.99 * len(sentences)
    assert all(gap < TIE for gap in gaps)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["de-en", "en-de"])
@pytest.mark.parametrize("beam", [5, 1])
def test_real_text_translates_as_in_transformers(domain_data: Path, name: str, beam: int) -> None:
    engine = shipped(name)
    side = ["de-en", "en-de"].index(name)
    domains = ("it", "koran", "law", "medical")
    sentences = [line for domain in domains for line in domain_lines(domain_data, domain, 250, side)]
    same, gaps = compare(engine, sentences, beam, n_best=1, batch=8)
    print(f"beam {beam}: {same} of {len(sentences)} the same; score gaps of the others: {gaps}")
    assert same >= 0.99 * len(sentences)
    assert all(gap < TIE for gap in gaps)


@pytest.mark.parametrize("beam", [1, 5])
def test_a_result_does_not_depend_on_its_batch(engine: TransformerEngine, beam: int) -> None:
    sources = engine.tokenizer.encode_sources(german_sentences(8))
    config = replace(engine.generation, beam=beam)
    together = search(engine, sources, config)
    for source, expected in zip(sources, together, strict=True):
        alone = search(engine, [source], config)[0]
        assert alone[0].tokens == expected[0].tokens
        assert alone[0].score == pytest.approx(expected[0].score, abs=1e-4)
