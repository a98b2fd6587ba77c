"""Our transformer gives the numbers of `transformers`, however a target is fed to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from knnmt.engine.blocks import sinusoidal_positions
from knnmt.engine.forced import force
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from support.checkpoints import MakeCheckpoint, own_engine

PAD = 230
SOURCES = [[5, 17, 99, 120, 3, 0], [44, 8, 0], [201, 7, 7, 63, 0]]
TARGETS = [[9, 33, 150, 2, 0], [71, 0], [4, 12, 180, 222, 6, 90, 0]]

VARIANTS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "unscaled relu": {"activation_function": "relu", "scale_embedding": False},
    "gelu, own embeddings": {
        "activation_function": "gelu",
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": 231,
    },
    "odd width": {"d_model": 33, "encoder_attention_heads": 3, "decoder_attention_heads": 3},
    "untied output": {"tie_word_embeddings": False},
}


@pytest.fixture(scope="module", params=list(VARIANTS))
def checkpoint(request: pytest.FixtureRequest, make_checkpoint: MakeCheckpoint) -> Path:
    return make_checkpoint(**VARIANTS[request.param])


@pytest.fixture(scope="module")
def ours(checkpoint: Path) -> TransformerEngine:
    return own_engine(checkpoint)


@pytest.fixture(scope="module")
def theirs(checkpoint: Path) -> Any:
    from transformers import MarianMTModel

    return MarianMTModel.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()


def padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def reference(theirs: Any) -> Any:
    """The outputs of `transformers` for SOURCES and TARGETS in one pass."""
    source, target = padded(SOURCES), padded(TARGETS)
    shifted = torch.cat([torch.full((len(TARGETS), 1), PAD), target[:, :-1]], dim=1)
    with torch.no_grad():
        return theirs(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            decoder_input_ids=shifted,
            output_hidden_states=True,
            output_attentions=True,
        )


def test_forced_pass_gives_the_representations_and_log_probabilities_of_transformers(
    ours: TransformerEngine, theirs: Any
) -> None:
    block = force(ours, SOURCES, TARGETS)
    expected = reference(theirs)
    real = padded(TARGETS) != PAD
    torch.testing.assert_close(block.representations, expected.decoder_hidden_states[-1][real], atol=1e-4, rtol=0)
    torch.testing.assert_close(
        ours.log_probabilities(block.representations), expected.logits[real].log_softmax(-1), atol=1e-4, rtol=0
    )
    assert block.targets.tolist() == [token for target in TARGETS for token in target]
    assert block.sentences.tolist() == [0] * 5 + [1] * 2 + [2] * 7
    assert block.positions.tolist() == [*range(5), *range(2), *range(7)]


def test_encoder_states_and_cross_attention_on_request(ours: TransformerEngine, theirs: Any) -> None:
    plain = force(ours, SOURCES, TARGETS)
    assert plain.encoder_states is None
    assert plain.cross_attention is None
    block = force(ours, SOURCES, TARGETS, encoder_states=True, cross_attention=True)
    assert block.encoder_states is not None
    assert block.cross_attention is not None
    torch.testing.assert_close(block.representations, plain.representations)
    expected = reference(theirs)
    attention = expected.cross_attentions[-1].mean(1)
    for i, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        states = expected.encoder_last_hidden_state[i, : len(source)]
        torch.testing.assert_close(block.encoder_states[i, : len(source)], states, atol=1e-4, rtol=0)
        torch.testing.assert_close(
            block.cross_attention[i, : len(target), : len(source)],
            attention[i, : len(target), : len(source)],
            atol=1e-4,
            rtol=0,
        )
        assert not block.cross_attention[i, :, len(source) :].any()


@pytest.mark.parametrize("sizes", [[1] * 7, [3, 1, 3], [2, 5], [7]])
def test_steps_of_any_size_give_what_one_pass_gives(ours: TransformerEngine, theirs: Any, sizes: list[int]) -> None:
    expected = reference(theirs).logits.log_softmax(-1)
    tokens = torch.cat([torch.full((3, 1), PAD), padded(TARGETS)[:, :-1]], dim=1)
    state = ours.start(ours.encode(SOURCES))
    chunks = torch.split(tokens, sizes, dim=1)
    found = [ours.log_probabilities(ours.step(state, chunk[:, None])[:, 0]) for chunk in chunks]
    torch.testing.assert_close(torch.cat(found, dim=1), expected, atol=1e-4, rtol=0)
    assert state.length == 7


def prefix_log_probabilities(ours: TransformerEngine, source: list[int], prefix: list[int]) -> Tensor:
    """Log-probabilities after a prefix, alone and from the beginning: the slow way."""
    state = ours.start(ours.encode([source]))
    return ours.log_probabilities(ours.step(state, torch.tensor([[prefix]])))[0, 0, -1]


def test_beams_that_branch_and_leave_keep_their_own_histories(ours: TransformerEngine) -> None:
    """A long random walk through every operation on the state; each row must know its own prefix and no other."""
    generator = torch.Generator().manual_seed(3)
    sources = [list(source) for source in SOURCES]
    state = ours.start(ours.encode(sources))
    width = 4
    prefixes = [[[PAD]] for _ in sources]
    ours.step(state, torch.tensor(prefixes))
    state.widen(width)
    prefixes = [rows * width for rows in prefixes]
    for turn in range(20):
        m = 1 + turn % 3
        tokens = torch.randint(1, 229, (len(sources), width, m), generator=generator)
        log_probabilities = ours.log_probabilities(ours.step(state, tokens))[:, :, -1]
        prefixes = [
            [prefix + new for prefix, new in zip(rows, added, strict=True)]
            for rows, added in zip(prefixes, tokens.tolist(), strict=True)
        ]
        for s, source in enumerate(sources):
            for w in range(width):
                expected = prefix_log_probabilities(ours, source, prefixes[s][w])
                torch.testing.assert_close(log_probabilities[s, w], expected, atol=1e-4, rtol=0)
        parents = torch.randint(0, width, (len(sources), width), generator=generator)
        state.reorder(parents)
        prefixes = [[rows[p] for p in chosen] for rows, chosen in zip(prefixes, parents.tolist(), strict=True)]
        if turn % 5 == 3:
            before = state.used
            state.compact()
            assert state.used <= before
            assert state.used <= sum(max(len(row) for row in rows) * width for rows in prefixes)
        if turn == 16:
            state.keep([2, 1])
            sources, prefixes = [sources[2], sources[1]], [prefixes[2], prefixes[1]]
        assert {state.length} == {len(row) for rows in prefixes for row in rows}


def test_compacting_really_gives_room_back(ours: TransformerEngine) -> None:
    state = ours.start(ours.encode(SOURCES))
    ours.step(state, torch.full((3, 1, 1), PAD))
    state.widen(5)
    for _ in range(10):
        ours.step(state, torch.ones((3, 5, 1), dtype=torch.long))
        state.reorder(torch.zeros((3, 5), dtype=torch.long))  # one survivor: the other slots are dead
    assert state.used == 51
    state.compact()
    assert state.used == 11


class NoSynchronisation(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses every operation for which the host would have to wait for a device."""

    refused = ("_local_scalar_dense", "nonzero", "item", "equal", "is_nonzero", "masked_select")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket.__name__ not in self.refused, f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


def test_a_step_never_waits_for_the_device(ours: TransformerEngine) -> None:
    state = ours.start(ours.encode(SOURCES))
    ours.step(state, torch.full((3, 1, 1), PAD))
    state.widen(4)
    with NoSynchronisation():  # type: ignore[no-untyped-call]
        for m in (1, 1, 3):
            ours.log_probabilities(ours.step(state, torch.ones((3, 4, m), dtype=torch.long)))
            state.reorder(torch.zeros((3, 4), dtype=torch.long))
        with pytest.raises(AssertionError, match="waits for the device"):
            state.compact()


def test_an_overlong_pair_is_refused(ours: TransformerEngine) -> None:
    with pytest.raises(InputError, match="a target of 41 tokens does not fit the model's 40 positions"):
        force(ours, [[5, 0]], [[1] * 41])


def test_positions_follow_their_formula() -> None:
    table = sinusoidal_positions(7, 6)
    for position in range(7):
        angles = [position / 10000 ** (2 * i / 6) for i in range(3)]
        torch.testing.assert_close(table[position, :3], torch.tensor(angles).sin())
        torch.testing.assert_close(table[position, 3:], torch.tensor(angles).cos())


def test_bfloat16_stays_close_to_float32(engine: TransformerEngine) -> None:
    half = load_engine("de-en", device="cpu", dtype="bfloat16")
    source, target = engine.tokenizer.encode_sources(["Das ist gut.", "That is good."])
    exact = engine.log_probabilities(force(engine, [source], [target]).representations).exp()
    rounded = half.log_probabilities(force(half, [source], [target]).representations)
    assert rounded.dtype == torch.float32
    assert (rounded.exp() - exact).abs().max() < 0.05
