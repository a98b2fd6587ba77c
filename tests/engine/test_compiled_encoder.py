"""The compiled encoder beside the same layers in PyTorch, for every family and build."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from knnmt import native
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import CheckpointError, InputError
from support.compiled_engines import in_pytorch, load, use_build
from support.native_builds import builds_that_run, vector_builds_that_run

if native.library() is None:
    pytest.skip("nothing was compiled, or it is switched off", allow_module_level=True)
LENGTHS = (1, 17, 300, 5, 129)  # less than a vector, more queries than are multiplied at once


@pytest.fixture(params=vector_builds_that_run())
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_build(monkeypatch, request.param)


@pytest.fixture(params=builds_that_run())
def build_of_int8(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_build(monkeypatch, request.param)


def sources(lengths: Sequence[int] = LENGTHS) -> list[list[int]]:
    random = torch.Generator().manual_seed(5)
    return [torch.randint(4, 100, (length,), generator=random).tolist() for length in lengths]


def read(engine: TransformerEngine, texts: list[list[int]]) -> list[tuple[Tensor, Tensor]]:
    """Of each sentence the encoder's states, and all layers' keys and values."""
    encoded = engine.encode(texts)
    cross = engine.start(encoded).cross
    assert all(bool(each.isfinite().all()) for each in (encoded.states, *cross))  # padding, too: it is multiplied by 0
    of_sentences = enumerate(map(len, texts))
    return [
        (encoded.states[i, :length], torch.stack([each[i, :length] for each in cross])) for i, length in of_sentences
    ]


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(
    ("family", "heads", "half"),
    [
        ("fsmt", 4, False),
        ("fsmt, two vocabularies", 4, True),
        ("bart", 1, True),
        ("bart, untied", 4, False),
        ("mbart", 2, False),
        ("mbart, larger", 4, False),
        ("m2m100", 4, False),
        ("m2m100, odd width", 3, True),
        ("m2m100, odd width", 1, False),
        ("pegasus", 1, False),
    ],
)
def test_states_are_those_of_pytorch(family: str, heads: int, half: bool, tmp_path: Path) -> None:
    engine = load(tmp_path, family, "float32", half, encoder_attention_heads=heads, max_position_embeddings=310)
    plain = in_pytorch(tmp_path)
    assert engine._compiled_encoder is not None
    for mine, theirs in zip(read(engine, sources()), read(plain, sources()), strict=True):
        for tensor, like in zip(mine, theirs, strict=True):
            torch.testing.assert_close(tensor, like, atol=5e-5, rtol=5e-5)


@pytest.mark.usefixtures("build_of_int8")
@pytest.mark.parametrize("family", ["bart", "m2m100, odd width"])
def test_in_int8_as_well(family: str, tmp_path: Path) -> None:
    engine = load(tmp_path, family, "int8", max_position_embeddings=310)
    assert engine._compiled_encoder is not None
    for mine, theirs in zip(read(engine, sources()), read(in_pytorch(tmp_path, "int8"), sources()), strict=True):
        for tensor, like in zip(mine, theirs, strict=True):
            # A last digit that differs may take a number to another step of int8.
            assert ((tensor - like).norm(dim=-1) / like.norm(dim=-1)).max() < 0.05


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_sentence_depends_neither_on_the_others_nor_on_the_threads(dtype: str, tmp_path: Path) -> None:
    engine = load(tmp_path, "mbart", dtype, max_position_embeddings=310)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = [read(engine, [text])[0] for text in sources()]
        torch.set_num_threads(3)
        together = read(engine, sources())
    finally:
        torch.set_num_threads(before)
    for mine, theirs in zip(together, alone, strict=True):
        assert all(torch.equal(*pair) for pair in zip(mine, theirs, strict=True))


@pytest.mark.usefixtures("build")
def test_what_would_be_read_from_beyond_the_tables_is_refused(tmp_path: Path) -> None:
    engine = load(tmp_path, "bart", "float32")
    with pytest.raises(InputError, match="not one of the model's 128"):
        engine.encode([[4, -1]])
    with pytest.raises(CheckpointError, match="its tokenizer gives token 128"):
        engine.encode([[4], [128]])
    with pytest.raises(InputError, match="with 41 tokens, of which the model has 40 positions"):
        engine.encode(sources([3, 41]))
    assert engine._compiled_encoder is not None
    with pytest.raises(ValueError, match="expected states of 32 numbers"):
        engine._compiled_encoder.source_attention(torch.zeros(2, 3, 32), (3, 4), 4)
