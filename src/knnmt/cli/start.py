"""Load a model or a translator for a command quickly."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knnmt import timing
from knnmt.cli.interrupt import Interrupts
from knnmt.threads import TORCH_SPINS, loading
from knnmt.translator.settings import TranslationSettings

if TYPE_CHECKING:
    from knnmt.engine.base import Engine
    from knnmt.translator.translator import Translator


@contextmanager
def heavy_imports() -> Iterator[None]:
    """Import PyTorch with the garbage collector off, because it would scan many permanent objects in vain."""
    gc.disable()
    try:
        # An import that Ctrl-C interrupts half-way fails in odd ways.
        with timing.stage("import"), Interrupts() as interrupts, interrupts.shielded(), loading("torch", TORCH_SPINS):
            yield
        gc.freeze()
    finally:
        gc.enable()


def load_quickly(
    model: str,
    device: str | None,
    threads: int | None,
    dtype: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Engine[Any]:
    """Load a model for a command that encodes."""
    with heavy_imports():
        import torch

        from knnmt.engine.loading import load_engine
    if threads is not None:
        torch.set_num_threads(threads)
    return load_engine(model, device, dtype, source_language, target_language)


def load_translator(
    model: str | None,
    languages: tuple[str | None, str | None],
    device: str | None,
    dtype: str | None,
    threads: int | None,
    datastore: Path | None,
    exact: bool,
    settings: TranslationSettings,
) -> Translator:
    """Load a translator for a command that translates."""
    with heavy_imports():
        from knnmt.translator.translator import Translator
    return Translator(
        model,
        device=device,
        dtype=dtype,
        threads=threads,
        datastore=datastore,
        exact=exact,
        source_lang=languages[0],
        target_lang=languages[1],
        settings=settings,
    )
