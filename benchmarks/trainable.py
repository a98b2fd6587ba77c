"""The shipped model with gradients, and its training until development text no longer improves, for `finetune.py`."""

from __future__ import annotations

import copy
import json
import math
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from knnmt.config import BatchingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.engine.batching import batches_by_length
from knnmt.engine.blocks import sinusoidal_positions
from knnmt.engine.forced import fitting_tokens, force_text, score
from knnmt.engine.shipped import DEFAULT_MODEL, MODELS_DIRECTORY

CHECKPOINT = MODELS_DIRECTORY / DEFAULT_MODEL
SMOOTHING, DROPOUT, BATCH_TOKENS = 0.1, 0.1, 6000
PATIENCE = 3  # looks at the development text without a better loss, after which training ends
_LEFT_OUT = -100
Tokens = Sequence[tuple[list[int], list[int]]]


@dataclass(frozen=True, slots=True)
class Batch:
    """(sentences, tokens) each. wanted: the targets, with padding left out; tokens: the number of the others"""

    sources: Tensor
    targets: Tensor
    wanted: Tensor
    tokens: int


class Marian(nn.Module):
    """The shipped model with gradients: post-norm, sinusoidal positions, swish, one table for all embeddings.

    lora: the rank of the matrices added to the projections of attention, with all else frozen; 0 to train everything
    """

    def __init__(self, directory: Path, lora: int = 0) -> None:
        super().__init__()
        shape = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        self.heads, self.dim = shape["encoder_attention_heads"], shape["d_model"]
        self.layers = {side: shape[f"{side}_layers"] for side in ("encoder", "decoder")}
        self.padding, self.beginning = shape["pad_token_id"], shape["decoder_start_token_id"]
        tensors = {name: each.float() for name, each in load_file(directory / "model.safetensors").items()}
        self.weights = nn.ParameterDict({_key(name): nn.Parameter(each, not lora) for name, each in tensors.items()})
        self.weights[_key("final_logits_bias")].requires_grad_(False)
        self.lora = nn.ParameterDict()
        for name in tensors if lora else ():
            if re.search(r"attn\.[qkv]_proj\.weight$|attn\.out_proj\.weight$", name):
                self.lora[_key(name) + "_a"] = nn.Parameter(torch.randn(lora, self.dim) / math.sqrt(self.dim))
                self.lora[_key(name) + "_b"] = nn.Parameter(torch.zeros(self.dim, lora))
        self.register_buffer("positions", sinusoidal_positions(shape["max_position_embeddings"], self.dim))

    def weight(self, name: str) -> Tensor:
        found: Tensor = self.weights[_key(name)]
        key = _key(name)
        return found + self.lora[key + "_b"] @ self.lora[key + "_a"] if key + "_a" in self.lora else found

    def linear(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

    def added(self, x: Tensor, more: Tensor, norm: str) -> Tensor:
        x = x + functional.dropout(more, DROPOUT, self.training)
        return functional.layer_norm(x, (self.dim,), self.weight(f"{norm}.weight"), self.weight(f"{norm}.bias"))

    def attention(self, x: Tensor, to: Tensor, name: str, mask: Tensor | None, causal: bool = False) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)

        query, key, value = (
            split(self.linear(y, f"{name}.{part}_proj")) for y, part in ((x, "q"), (to, "k"), (to, "v"))
        )
        found = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
        return self.linear(found.transpose(1, 2).flatten(2), f"{name}.out_proj")

    def embedded(self, tokens: Tensor) -> Tensor:
        table: Tensor = self.weights[_key("model.shared.weight")]
        positions: Tensor = self.positions  # type: ignore[assignment]
        x = functional.embedding(tokens, table) * math.sqrt(self.dim) + positions[: tokens.shape[1]]
        return functional.dropout(x, DROPOUT, self.training)

    def feed_forward(self, x: Tensor, name: str) -> Tensor:
        return self.linear(functional.silu(self.linear(x, f"{name}.fc1")), f"{name}.fc2")

    def forward(self, sources: Tensor, targets: Tensor) -> Tensor:
        """(sentences, source) and (sentences, target) -> logits (sentences, target, vocabulary)."""
        mask = (sources != self.padding)[:, None, None]
        x = self.embedded(sources)
        for number in range(self.layers["encoder"]):
            name = f"model.encoder.layers.{number}"
            x = self.added(x, self.attention(x, x, f"{name}.self_attn", mask), f"{name}.self_attn_layer_norm")
            x = self.added(x, self.feed_forward(x, name), f"{name}.final_layer_norm")
        begin = torch.full_like(targets[:, :1], self.beginning)
        y = self.embedded(torch.cat([begin, targets[:, :-1]], dim=1))
        for number in range(self.layers["decoder"]):
            name = f"model.decoder.layers.{number}"
            y = self.added(y, self.attention(y, y, f"{name}.self_attn", None, True), f"{name}.self_attn_layer_norm")
            y = self.added(y, self.attention(y, x, f"{name}.encoder_attn", mask), f"{name}.encoder_attn_layer_norm")
            y = self.added(y, self.feed_forward(y, name), f"{name}.final_layer_norm")
        table: Tensor = self.weights[_key("model.shared.weight")]
        bias: Tensor = self.weights[_key("final_logits_bias")]
        return functional.linear(y, table, bias[0])

    def ready(self, batch: Tokens) -> Batch:
        """A batch on the model's device; made once, so that no step waits for the host."""
        device = next(self.parameters()).device
        sources, targets = (
            pad_sequence([torch.tensor(pair[side]) for pair in batch], True, self.padding) for side in (0, 1)
        )
        real = torch.arange(targets.shape[1]) < torch.tensor([len(pair[1]) for pair in batch])[:, None]
        wanted = targets.masked_fill(~real, _LEFT_OUT)
        return Batch(sources.to(device), targets.to(device), wanted.to(device), int(real.sum()))

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Tensor:
        """The sum over all target tokens, in nats."""
        logits = self(batch.sources, batch.targets).flatten(0, 1)
        return functional.cross_entropy(
            logits, batch.wanted.flatten(), ignore_index=_LEFT_OUT, label_smoothing=smoothing, reduction="sum"
        )

    def save(self, directory: Path) -> None:
        """Save a checkpoint that every command reads, with the added matrices merged into the weights."""
        shutil.copytree(CHECKPOINT, directory)
        names = load_file(CHECKPOINT / "model.safetensors").keys()
        with torch.no_grad():
            tensors = {name: self.weight(name).half().cpu().contiguous() for name in names}
        save_file(tensors, directory / "model.safetensors", {"format": "pt"})

    def client_bytes(self) -> int:
        """Bytes that a client needs in addition to the shipped model, in float16."""
        return 2 * sum(each.numel() for each in self.parameters() if each.requires_grad)


def _key(name: str) -> str:
    return name.replace(".", "/")


def checked_against_engine(model: Marian, engine: Any, pairs: Sequence[SegmentPair]) -> float:
    """The largest difference of a sentence's mean log-probability from the engine's, to check that the models agree."""
    forced = force_text(engine, pairs)
    own, _ = score(engine, forced.representations.to(engine.device), forced.targets.to(engine.device))
    lengths = torch.bincount(forced.sentences)
    theirs = torch.stack([part.mean() for part in torch.split(own.cpu(), lengths.tolist())])
    model.eval()
    with torch.no_grad():
        alone = [model.ready([pair]) for pair in fitting_tokens(engine, pairs)]
        own_losses = torch.tensor([float(model.loss(each)) / each.tokens for each in alone])
    return float((theirs + own_losses).abs().max())


@dataclass(frozen=True, slots=True)
class Training:
    """How a training went.

    before, best: loss of the development text, in nats per token; ended: by that loss; seconds: of all updates
    """

    updates: int
    passes: float
    before: float
    best: float
    ended: bool
    seconds: float = 0.0


def fine_tuned(
    model: Marian,
    training: Tokens,
    judging: Tokens,
    rate: float,
    passes: int,
    checks: int,
    seed: int = 0,
    seconds: float = math.inf,
) -> Training:
    """Train until the loss of `judging` has not improved for some checks, `checks` per pass, and keep the best.

    seconds: the first check after this many ends the training as well
    """
    began = time.perf_counter()
    on_gpu = next(model.parameters()).device.type == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = True  # products of training alone, and a GPU has time for more of them
    learning = [each for each in model.parameters() if each.requires_grad]
    adam = torch.optim.AdamW(learning, rate, (0.9, 0.98), fused=on_gpu)
    batches, looked_at = prepared(model, training), prepared(model, judging)
    every = max(1, len(batches) // checks)
    generator = torch.Generator().manual_seed(seed)
    before = best = judged(model, looked_at)
    best_state, best_update, waited, update = copy.deepcopy(model.state_dict()), 0, 0, 0
    tell(f"  before: {best:.4f} nats a token; {len(batches)} batches a pass")
    for _ in range(passes):
        for number in torch.randperm(len(batches), generator=generator).tolist():
            model.train()
            update += 1
            for group in adam.param_groups:
                group["lr"] = rate * min(1.0, update / 100)
            loss = model.loss(batches[number], SMOOTHING) / batches[number].tokens
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(learning, 1.0)
            adam.step()
            if update % every:
                continue
            found = judged(model, looked_at)
            tell(f"  {update} updates: {found:.4f}")
            waited += 1
            if found < best:
                best, best_state, best_update, waited = found, copy.deepcopy(model.state_dict()), update, 0
            if waited == PATIENCE or time.perf_counter() - began >= seconds:
                break
        else:
            continue
        break
    model.load_state_dict(best_state)
    torch.backends.cuda.matmul.allow_tf32 = False
    return Training(
        best_update, best_update / len(batches), before, best, waited == PATIENCE, time.perf_counter() - began
    )


def prepared(model: Marian, pairs: Tokens) -> list[Batch]:
    """All batches, each of sentences of similar length."""
    batching = BatchingConfig(sentences=None, tokens=BATCH_TOKENS, window=1 << 30)
    places = batches_by_length([max(map(len, pair)) for pair in pairs], batching)
    return [model.ready([pairs[place] for place in some]) for some in places]


def judged(model: Marian, batches: Sequence[Batch]) -> float:
    model.eval()
    with torch.no_grad():
        losses = [model.loss(each) for each in batches]
    return float(torch.stack(losses).sum()) / sum(each.tokens for each in batches)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
