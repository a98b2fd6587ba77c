"""Forced passes over a slice. All results go from the device to the host together.

Nothing here waits for a GPU until the results are requested, so the host can prepare and start the next slice
meanwhile. A CPU computes everything at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import BatchingConfig
from knnmt.datastore.arrays import Array
from knnmt.datastore.segment import NOT_ALIGNED
from knnmt.engine.alignment import align
from knnmt.engine.base import Engine, State
from knnmt.engine.batching import batches_by_length
from knnmt.engine.forced import force, pass_batching, score
from knnmt.engine.rows import Rows
from knnmt.engine.sending import sent

_MIN_LOG_PROBABILITY = torch.finfo(torch.float16).min


def begin_passes(
    engine: Engine[State],
    sources: Rows,
    targets: Rows,
    key_dtype: str,
    batch_tokens: int | None,
    for_fast: bool,
) -> Callable[[], dict[str, Array] | None]:
    """Begin the passes. The returned function waits for keys, alignment and scores; None if a key is not finite.

    batch_tokens: at most this many tokens per side of a pass, including padding; None chooses by the device
    for_fast: also the encoder's states
    """
    entries, device, dtype = len(targets.numbers), engine.device, getattr(torch, key_dtype)
    made = {
        "keys": torch.empty((entries, engine.dim), dtype=dtype, device=device),
        "alignment": torch.full((entries,), NOT_ALIGNED, dtype=torch.int32, device=device),
        "log_probabilities": torch.empty(entries, dtype=torch.float16, device=device),
        "first_choices": torch.empty(entries, dtype=torch.uint8, device=device),
    }
    if for_fast:
        made["source_states"] = torch.empty((len(sources.numbers), engine.dim), dtype=dtype, device=device)
    frame = set(engine.tokenizer.encode_sources([""])[0])
    batching = BatchingConfig(sentences=None, tokens=batch_tokens) if batch_tokens else pass_batching(engine)
    for batch in batches_by_length(np.maximum(sources.lengths, targets.lengths), batching):
        own_sources, own_targets = sources.taken(batch), targets.taken(batch)
        block = force(engine, own_sources, own_targets, encoder_states=for_fast, cross_attention=True)
        own, first_choice = score(engine, block.representations, block.targets)
        with timing.stage("keys"), torch.inference_mode():
            within, positions = block.sentences.numpy(), block.positions.numpy()
            places = sent(torch.from_numpy(targets.offsets[batch][within] + positions), device)
            made["keys"][places] = block.representations.to(dtype)
            made["log_probabilities"][places] = own.clamp(min=_MIN_LOG_PROBABILITY).half()
            made["first_choices"][places] = first_choice.to(torch.uint8)
            if block.cross_attention is not None:
                aligned = align(block.cross_attention, own_sources, own_targets.lengths, frame)
                taken = sent(torch.from_numpy(within * aligned.shape[1] + positions), device)
                made["alignment"][places] = aligned.flatten()[taken].clamp(max=NOT_ALIGNED).int()
            if block.encoder_states is not None:
                rows, columns = own_sources.places()
                into = sent(torch.from_numpy(sources.offsets[batch][rows] + columns), device)
                taken = sent(torch.from_numpy(rows * block.encoder_states.shape[1] + columns), device)
                made["source_states"][into] = block.encoder_states.flatten(0, 1)[taken].to(dtype)
    finite = torch.stack([made[name].isfinite().all() for name in ("keys", "source_states") if name in made]).all()
    return _fetched(made, finite)


def _fetched(made: dict[str, Tensor], finite: Tensor) -> Callable[[], dict[str, Array] | None]:
    """Start copying results to the host. Returns a function that waits for them."""
    arrived: torch.cuda.Event | None = None
    if finite.device.type == "cuda":
        made, finite = {name: _on_its_way(each) for name, each in made.items()}, _on_its_way(finite)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()

    def fetch() -> dict[str, Array] | None:
        if arrived is not None:
            arrived.synchronize()
        if not bool(finite):
            return None
        arrays = {name: each.numpy() for name, each in made.items()}
        return {**arrays, "alignment": arrays["alignment"].astype(np.uint16)}

    return fetch


def _on_its_way(found: Tensor) -> Tensor:
    """A copy on the host that is complete once the GPU has reached this point."""
    return torch.empty(found.shape, dtype=found.dtype, pin_memory=True).copy_(found, non_blocking=True)
