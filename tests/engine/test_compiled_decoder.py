"""Compiled steps of the decoder beside the same steps in PyTorch, for every family, build and change of the state."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from knnmt import native
from knnmt.engine.compiled_decoder import CompiledDecoder
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from support.compiled_engines import in_pytorch, load, loaded, use_build
from support.family_checkpoints import some_sources
from support.native_builds import builds_that_run, vector_builds_that_run

if native.library() is None:
    pytest.skip("nothing was compiled, or it is switched off", allow_module_level=True)
WIDTH = 3


@pytest.fixture(params=vector_builds_that_run())
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_build(monkeypatch, request.param)


@pytest.fixture(params=builds_that_run())
def build_of_int8(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_build(monkeypatch, request.param)


def walk(engine: TransformerEngine, compiled: CompiledDecoder | None) -> list[Tensor]:
    """The representations of steps between which every operation changes the state."""
    engine._compiled = compiled
    random = torch.Generator().manual_seed(2)
    sources = some_sources(4)
    state = engine.start(engine.encode(sources))
    found = [engine.step(state, torch.full((4, 1, 1), 2))]
    state.widen(WIDTH)
    for turn in range(34):  # more slots than a state begins with
        tokens = torch.randint(4, 100, (state.sentences, WIDTH, {5: 2, 11: 5}.get(turn, 1)), generator=random)
        found.append(engine.step(state, tokens))
        state.reorder(torch.randint(0, WIDTH, (state.sentences, WIDTH), generator=random))
        if turn == 9:
            state.keep([0, 3, 2])
        if turn == 17:
            state.compact()
    return found


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(
    ("family", "heads", "half"),
    [
        ("fsmt", 4, False),
        ("fsmt, two vocabularies", 4, True),
        ("bart", 1, True),
        ("bart, untied", 4, False),
        ("mbart", 2, False),
        ("mbart, larger", 6, False),
        ("m2m100", 4, False),
        ("m2m100, odd width", 3, True),
        ("m2m100, odd width", 3, False),
        ("pegasus", 1, False),
    ],
)
def test_steps_are_those_of_pytorch(family: str, heads: int, half: bool, tmp_path: Path) -> None:
    engine, plain = load(tmp_path, family, "float32", half, decoder_attention_heads=heads), in_pytorch(tmp_path)
    compiled = engine._compiled
    assert compiled is not None
    for mine, theirs in zip(walk(engine, compiled), walk(plain, None), strict=True):
        torch.testing.assert_close(mine, theirs, atol=3e-5, rtol=3e-5)
        found, expected = engine.log_probabilities(mine), plain.log_probabilities(theirs)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.usefixtures("build_of_int8")
@pytest.mark.parametrize("family", ["bart", "m2m100, odd width"])
def test_in_int8_as_well(family: str, tmp_path: Path) -> None:
    engine = load(tmp_path, family, "int8")
    compiled = engine._compiled
    assert compiled is not None
    for mine, theirs in zip(walk(engine, compiled), walk(engine, None), strict=True):
        # A last digit that differs may take a number to another step of int8.
        assert ((mine - theirs).norm(dim=-1) / theirs.norm(dim=-1)).max() < 0.05


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_row_depends_neither_on_the_others_nor_on_the_threads(dtype: str, tmp_path: Path) -> None:
    engine = load(tmp_path, "bart", dtype, max_position_embeddings=160)
    before = torch.get_num_threads()
    found = []
    try:
        for threads, sources in ((1, some_sources(7)), (2, some_sources(7)), (3, some_sources(1))):
            torch.set_num_threads(threads)
            encoded = engine.encode([some_sources(7)[0]] * len(sources))
            state = engine.start(encoded)
            rows = [engine.step(state, torch.full((len(sources), 1, 1), token))[:1] for token in (2, 30, 40)]
            found.append(torch.cat(rows))
    finally:
        torch.set_num_threads(before)
    for each in found[1:]:
        assert torch.equal(each, found[0])


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("half", [False, True])
def test_infinite_weights_make_no_step_that_crashes(half: bool, tmp_path: Path) -> None:
    def spoil(weights: dict[str, Tensor]) -> None:
        weights["model.decoder.layers.1.encoder_attn.q_proj.weight"][0] = float("inf")

    load(tmp_path, "bart", "float32", half)
    engine = loaded(changed(tmp_path, spoil))
    found = walk(engine, engine._compiled)
    assert found[0].isnan().any()
    assert engine.log_probabilities(found[0]).shape[-1] == engine.vocabulary_size


@pytest.mark.usefixtures("build")
def test_what_would_be_read_from_beyond_the_tables_is_refused(tmp_path: Path) -> None:
    engine = load(tmp_path, "bart", "float32")
    for token in (-1, engine.vocabulary_size):
        with pytest.raises(InputError, match="a token that is not one of the model's 128"):
            engine.step(engine.start(engine.encode(some_sources(1))), torch.full((1, 1, 1), token))
    state = engine.start(engine.encode(some_sources(1)))
    for _ in range(engine.max_positions):
        engine.step(state, torch.full((1, 1, 1), 4))
    with pytest.raises(InputError, match="after more than its 40 positions"):
        engine.step(state, torch.full((1, 1, 1), 4))


def test_what_each_step_reads_is_in_24_bits(tmp_path: Path) -> None:
    """Where float16 does not hold it. Keys and values of the source are computed once, of many rows."""
    engine = load(tmp_path, "bart, untied", "float32", half=False)
    for layer in engine._decoder:
        inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
        of_steps = [layer.self_in, layer.self_out, layer.cross_query, layer.cross_out, inner, outer, engine._output]
        sizes = [int(each.compiled.matrix["bytes"][0]) for each in [*of_steps, layer.cross_key_value] if each.compiled]
        assert sizes == [*[3] * 7, 4]


def changed(directory: Path, change: Callable[[dict[str, Tensor]], None]) -> Path:
    """The checkpoint with its weights changed, in a file that may hold tensors of any strides."""
    weights = {name: tensor.clone() for name, tensor in load_file(directory / "model.safetensors").items()}
    change(weights)
    torch.save(weights, directory / "pytorch_model.bin")
    (directory / "model.safetensors").unlink()
    return directory


def test_layers_that_are_not_alike_are_left_to_pytorch(tmp_path: Path) -> None:
    def widen(weights: dict[str, Tensor]) -> None:
        layer = "model.decoder.layers.1"
        weights[f"{layer}.fc1.weight"] = weights[f"{layer}.fc1.weight"].repeat(2, 1)
        weights[f"{layer}.fc1.bias"] = weights[f"{layer}.fc1.bias"].repeat(2)
        weights[f"{layer}.fc2.weight"] = weights[f"{layer}.fc2.weight"].repeat(1, 2)

    assert load(tmp_path, "bart", "float32")._compiled is not None
    engine = load_engine(changed(tmp_path, widen), device="cpu")
    assert isinstance(engine, TransformerEngine)
    assert engine._compiled is None
    assert walk(engine, None)[-1].isfinite().all()


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_weights_may_lie_in_any_order(dtype: str, tmp_path: Path) -> None:
    def turn(weights: dict[str, Tensor]) -> None:
        for name, tensor in weights.items():
            weights[name] = tensor.T.contiguous().T if tensor.ndim == 2 else tensor.repeat_interleave(2)[::2]

    before = load(tmp_path, "bart", dtype)
    after = load_engine(changed(tmp_path, turn), device="cpu", dtype=dtype)
    assert isinstance(after, TransformerEngine)
    expected, found = (walk(each, each._compiled)[-1] for each in (before, after))
    assert torch.equal(expected, found)
    assert torch.equal(before.log_probabilities(expected), after.log_probabilities(found))


def test_tokens_of_other_shapes_and_types(tmp_path: Path) -> None:
    engine = load(tmp_path, "bart", "float32")
    encoded = engine.encode(some_sources(2))
    tokens = torch.tensor([[[5]], [[9]]])
    expected = engine.step(engine.start(encoded), tokens)
    assert torch.equal(engine.step(engine.start(encoded), tokens.int()), expected)
    with pytest.raises(ValueError, match=r"expected tokens \(2, 1\), as the state has rows, got \(1, 1\)"):
        engine.step(engine.start(encoded), tokens[:1])
    with pytest.raises(ValueError, match=r"rows of 32 numbers in float32, got \(2, 32\) in torch\.float16"):
        engine.log_probabilities(expected.half())


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_threads_share_an_engine(dtype: str, tmp_path: Path) -> None:
    engine = load(tmp_path, "bart", dtype, max_position_embeddings=160)
    alone = walk(engine, engine._compiled)
    with ThreadPoolExecutor(3) as threads:
        for together in threads.map(lambda _: walk(engine, engine._compiled), range(6)):
            assert all(torch.equal(mine, theirs) for mine, theirs in zip(together, alone, strict=True))
