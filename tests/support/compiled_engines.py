"""Engines of random checkpoints: with one of the compiled builds, and with none."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from knnmt import native
from knnmt.engine import compiled_decoder, compiled_encoder, product
from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine
from support.family_checkpoints import make_family

_ASK_FOR_A_BUILD = (compiled_decoder, compiled_encoder, product)


def use_build(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Engines that are loaded after this have that build."""
    found = native.load(name)
    assert found is not None
    for module in _ASK_FOR_A_BUILD:
        monkeypatch.setattr(module, "library", lambda: found)


def load(directory: Path, family: str, dtype: str, half: bool = True, **overrides: object) -> TransformerEngine:
    """An engine of a random checkpoint, whose weights float16 holds, or not."""
    make_family(directory, family, **overrides)  # type: ignore[arg-type]
    path = directory / "model.safetensors"
    if half:
        save_file({name: tensor.half() for name, tensor in load_file(path).items()}, path, metadata={"format": "pt"})
    return loaded(directory, dtype)


def loaded(directory: Path, dtype: str = "float32") -> TransformerEngine:
    engine = load_engine(directory, device="cpu", dtype=dtype)
    assert isinstance(engine, TransformerEngine)
    return engine


def in_pytorch(directory: Path, dtype: str = "float32") -> TransformerEngine:
    """The checkpoint where nothing was compiled."""
    with pytest.MonkeyPatch.context() as patch:
        for module in _ASK_FOR_A_BUILD:
            patch.setattr(module, "library", lambda: None)
        engine = loaded(directory, dtype)
    assert engine._compiled is None
    assert engine._compiled_encoder is None
    return engine
