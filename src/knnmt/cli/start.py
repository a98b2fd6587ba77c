"""Getting from a command to a loaded model without wasting time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from knnmt import timing

if TYPE_CHECKING:
    from knnmt.engine.transformer import TransformerEngine


@contextmanager
def heavy_imports() -> Iterator[None]:
    """Import PyTorch without the garbage collector, which would look through its many lasting objects in vain."""
    gc.disable()
    with timing.stage("import"):
        yield
    gc.freeze()
    gc.enable()


def load_quickly(model: str, device: str | None, threads: int | None) -> TransformerEngine:
    """Load a model for a command that encodes."""
    with heavy_imports():
        import torch

        from knnmt.engine.loading import load_engine
    if threads is not None:
        torch.set_num_threads(threads)
    return load_engine(model, device)
