"""The same engine on a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from knnmt.decoding.search import search
from knnmt.engine.forced import force
from knnmt.engine.loading import load_engine
from knnmt.native.gpu import kernel
from support.german import german_sentences

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_gpu_gives_what_the_cpu_gives(dtype: str) -> None:
    cpu, gpu = load_engine(device="cpu"), load_engine(device="cuda", dtype=dtype)
    sources = cpu.tokenizer.encode_sources(german_sentences(48))
    targets = [best[0].tokens for best in search(cpu, sources, cpu.generation)]
    expected, found = force(cpu, sources, targets), force(gpu, sources, targets)
    gap = (gpu.log_probabilities(found.representations).cpu() - cpu.log_probabilities(expected.representations)).abs()
    assert gap.gather(1, expected.targets[:, None]).max() < {"float32": 1e-2, "float16": 0.1, "bfloat16": 0.6}[dtype]
    config = replace(cpu.generation, beam=5)
    same = [
        mine[0].tokens == other[0].tokens
        for mine, other in zip(search(gpu, sources, config), search(cpu, sources, config), strict=True)
    ]
    assert sum(same) >= {"float32": 0.97, "float16": 0.9, "bfloat16": 0.6}[dtype] * len(same)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_step_on_a_gpu_never_waits_for_it() -> None:
    gpu = load_engine(device="cuda")
    state = gpu.start(gpu.encode(gpu.tokenizer.encode_sources(german_sentences(4))))
    tokens = torch.full((4, 1, 1), gpu.special_tokens.decoder_start, device="cuda")
    gpu.step(state, tokens)
    state.widen(5)
    wide = tokens.expand(4, 5, 1).contiguous()
    parents = torch.zeros((4, 5), dtype=torch.long, device="cuda")
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(3):
            gpu.log_probabilities(gpu.step(state, wide))
            state.reorder(parents)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("attend", {"HALF": 1, "HEAD_DIM": 64, "ROWS": 8}),
        ("attend", {"HALF": 0, "HEAD_DIM": 16, "ROWS": 16}),
        ("add_norm", {"HALF": 1, "DIM": 320}),
        ("embed", {"HALF": 1}),
        ("candidates", {"HALF": 1}),
        ("follow", {"HALF": 0}),
        ("follow", {"HALF": 1}),
        ("mix", {}),
    ],
)
def test_kernels_can_be_compiled(name: str, constants: dict[str, int]) -> None:
    """Otherwise PyTorch would silently compute the same in more time."""
    assert kernel(name, torch.device("cuda"), **constants) is not None
