"""Compiled steps of the decoder beside the same steps in PyTorch, for every family, build and change of the state."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from family_checkpoints import make_family, some_sources
from knnmt import native
from knnmt.engine import compiled_decoder, half_product, int8_product
from knnmt.engine.compiled_decoder import CompiledDecoder
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from native_builds import builds_that_run

BUILDS = builds_that_run()
if native.library() is None:
    pytest.skip("nothing was compiled, or it is switched off", allow_module_level=True)
WIDTH = 3


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    found = native.load(request.param)
    assert found is not None
    for module in (compiled_decoder, half_product, int8_product):
        monkeypatch.setattr(module, "library", lambda: found)
    return found


def load(directory: Path, family: str, dtype: str, **overrides: object) -> TransformerEngine:
    """An engine of a random checkpoint whose weights float16 holds."""
    make_family(directory, family, **overrides)  # type: ignore[arg-type]
    path = directory / "model.safetensors"
    save_file({name: tensor.half() for name, tensor in load_file(path).items()}, path, metadata={"format": "pt"})
    engine = load_engine(directory, device="cpu", dtype=dtype)
    assert isinstance(engine, TransformerEngine)
    return engine


def walk(engine: TransformerEngine, compiled: CompiledDecoder | None) -> list[Tensor]:
    """The representations of steps between which every operation changes the state."""
    engine._compiled = compiled
    random = torch.Generator().manual_seed(2)
    sources = some_sources(4)
    state = engine.start(engine.encode(sources))
    found = [engine.step(state, torch.full((4, 1, 1), 2))]
    state.widen(WIDTH)
    for turn in range(34):  # more slots than a state begins with
        tokens = torch.randint(4, 100, (state.sentences, WIDTH, 2 if turn == 5 else 1), generator=random)
        found.append(engine.step(state, tokens))
        state.reorder(torch.randint(0, WIDTH, (state.sentences, WIDTH), generator=random))
        if turn == 9:
            state.keep([0, 3, 2])
        if turn == 13:
            state.cut_back(torch.randint(2, 8, (state.sentences, WIDTH), generator=random))
        if turn == 17:
            state.compact()
    return found


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(
    ("family", "heads"),
    [("fsmt", 4), ("bart", 1), ("bart, untied", 4), ("mbart", 2), ("m2m100", 4), ("pegasus", 1)],
)
def test_steps_are_those_of_pytorch(family: str, heads: int, tmp_path: Path) -> None:
    engine = load(tmp_path, family, "float32", decoder_attention_heads=heads)
    compiled = engine._compiled
    assert compiled is not None
    for mine, theirs in zip(walk(engine, compiled), walk(engine, None), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=2e-5)


@pytest.mark.usefixtures("build")
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
    engine = load(tmp_path, "bart", dtype)
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
        torch.testing.assert_close(each, found[0], atol=1e-5, rtol=1e-5)  # the encoder is PyTorch's


def test_what_is_not_compiled_for_all_products_is_left_to_pytorch(tmp_path: Path) -> None:
    make_family(tmp_path, "bart")  # weights that float16 does not hold
    engine = load_engine(tmp_path, device="cpu")
    assert isinstance(engine, TransformerEngine)
    assert engine._compiled is None


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
