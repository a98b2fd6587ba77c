"""Every family of checkpoints gives the numbers and the translations of `transformers`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.decoding.search import search
from knnmt.engine.forced import force, score
from knnmt.engine.loading import load_engine
from support.checkpoints import edit_json
from support.family_checkpoints import (
    FAMILIES,
    PAD,
    load_reference,
    make_family,
    padded,
    reference_beams,
    reference_outputs,
    some_sources,
)

SOURCES = some_sources(5)
TARGETS = some_sources(9)[4:]


@pytest.fixture(scope="module", params=list(FAMILIES))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_family(tmp_path_factory.mktemp("family"), request.param)


@pytest.fixture(scope="module")
def ours(checkpoint: Path) -> Any:
    return load_engine(checkpoint, device="cpu")


@pytest.fixture(scope="module")
def theirs(checkpoint: Path) -> Any:
    return load_reference(checkpoint)


def test_a_forced_pass_gives_the_log_probabilities_of_transformers(ours: Any, theirs: Any) -> None:
    block = force(ours, SOURCES, TARGETS, encoder_states=True, cross_attention=True)
    expected = reference_outputs(theirs, SOURCES, TARGETS)
    real = padded(TARGETS) != PAD
    found = ours.log_probabilities(block.representations)
    torch.testing.assert_close(found, expected.logits[real].log_softmax(-1), atol=1e-4, rtol=0)
    own, first = score(ours, block.representations, block.targets)
    torch.testing.assert_close(own, found.gather(1, block.targets[:, None])[:, 0], atol=1e-5, rtol=0)
    assert torch.equal(first, found.argmax(1) == block.targets)
    assert block.encoder_states is not None
    assert block.cross_attention is not None
    for i, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        states = expected.encoder_last_hidden_state[i, : len(source)]
        torch.testing.assert_close(block.encoder_states[i, : len(source)], states, atol=1e-4, rtol=0)
        attention = expected.cross_attentions[-1][i].mean(0)
        real_attention = (slice(len(target)), slice(len(source)))
        torch.testing.assert_close(
            block.cross_attention[i][real_attention], attention[real_attention], atol=1e-4, rtol=0
        )


@pytest.mark.parametrize("sizes", [[1] * 8, [3, 1, 4]])
def test_steps_give_what_one_pass_of_transformers_gives(ours: Any, theirs: Any, sizes: list[int]) -> None:
    sources, targets = SOURCES[:3], [[*target, *[9] * 8][:8] for target in TARGETS[:3]]
    expected = reference_outputs(theirs, sources, targets).logits.log_softmax(-1)
    start = torch.full((3, 1), ours.special_tokens.decoder_start)
    tokens = torch.cat([start, torch.tensor(targets)[:, :-1]], dim=1)
    state = ours.start(ours.encode(sources))
    found = [ours.log_probabilities(ours.step(state, part[:, None])[:, 0]) for part in torch.split(tokens, sizes, 1)]
    torch.testing.assert_close(torch.cat(found, dim=1), expected, atol=1e-4, rtol=0)


def test_beam_search_finds_what_transformers_finds(ours: Any, theirs: Any) -> None:
    """At least 99 % are the same, and every other is a tie of scores."""
    sources = some_sources(24)
    found = [each[0] for each in search(ours, sources, replace(ours.generation, beam=5))]
    expected = reference_beams(theirs, sources)
    different = [
        abs(mine.score - score) for mine, (tokens, score) in zip(found, expected, strict=True) if mine.tokens != tokens
    ]
    assert len(different) <= 0.01 * len(sources)
    assert all(gap < 1e-4 for gap in different)
    assert [mine.score for mine in found] == pytest.approx([score for _, score in expected], abs=1e-4)
    tied_t5 = theirs.config.model_type == "t5" and theirs.config.tie_word_embeddings
    if not tied_t5 and theirs.config.d_model < 100:  # of others, the random output is too flat
        assert len({len(mine.tokens) for mine in found}) > 1  # they end by themselves


def test_a_sentence_does_not_depend_on_its_batch(ours: Any) -> None:
    together = search(ours, SOURCES, replace(ours.generation, beam=5))
    for source, expected in zip(SOURCES, together, strict=True):
        alone = search(ours, [source], replace(ours.generation, beam=5))
        assert alone[0][0].tokens == expected[0].tokens
        assert alone[0][0].score == pytest.approx(expected[0].score, abs=1e-4)


def test_rows_keep_their_own_histories_through_every_change(ours: Any) -> None:
    """Branching and leaving the batch: each row must know its own prefix."""
    generator = torch.Generator().manual_seed(3)
    start = ours.special_tokens.decoder_start
    sources, width = [list(source) for source in SOURCES[:3]], 3
    state = ours.start(ours.encode(sources))
    ours.step(state, torch.full((3, 1, 1), start))
    state.widen(width)
    prefixes = [[[start]] * width for _ in sources]
    for turn in range(9):
        m = 1 + turn % 2
        tokens = torch.randint(4, 105, (len(sources), width, m), generator=generator)
        found = ours.log_probabilities(ours.step(state, tokens))[:, :, -1]
        added = tokens.tolist()
        prefixes = [
            [prefix + new for prefix, new in zip(rows, news, strict=True)]
            for rows, news in zip(prefixes, added, strict=True)
        ]
        for s, source in enumerate(sources):
            for w in range(width):
                alone = ours.step(ours.start(ours.encode([source])), torch.tensor([[prefixes[s][w]]]))
                expected = ours.log_probabilities(alone)[0, 0, -1]
                torch.testing.assert_close(found[s, w], expected, atol=1e-4, rtol=0)
        parents = torch.randint(0, width, (len(sources), width), generator=generator)
        state.reorder(parents)
        prefixes = [[rows[p] for p in chosen] for rows, chosen in zip(prefixes, parents.tolist(), strict=True)]
        if turn == 6:
            state.keep([2, 1])
            sources, prefixes = [sources[2], sources[1]], [prefixes[2], prefixes[1]]
        state.compact()
        assert (state.sentences, state.width) == (len(sources), width)


@pytest.mark.parametrize("family", ["bart, untied", "m2m100, untied"])
def test_tables_that_the_file_keeps_apart_are_apart_whatever_the_config_says(family: str, tmp_path: Path) -> None:
    directory = make_family(tmp_path, family)
    edit_json(directory / "config.json", tie_word_embeddings=True)
    engine = load_engine(directory, device="cpu")
    found = engine.log_probabilities(force(engine, SOURCES, TARGETS).representations)
    expected = reference_outputs(load_reference(directory), SOURCES, TARGETS).logits[padded(TARGETS) != PAD]
    torch.testing.assert_close(found, expected.log_softmax(-1), atol=1e-4, rtol=0)
