"""Small random checkpoints, made on the spot, and engines of them.

PyTorch is imported where it is used: the process that hands out tests to others runs none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knnmt.engine.transformer import TransformerEngine

MakeCheckpoint = Callable[..., Path]


def write_checkpoint(directory: Path, **overrides: Any) -> None:
    """A small random Marian checkpoint, always the same."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    settings = {
        "vocab_size": 231,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 40,
        "activation_function": "swish",
        "scale_embedding": True,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "pad_token_id": 230,
        "decoder_start_token_id": 230,
        "init_std": 0.35,  # large enough that the next token is rarely a toss-up
    }
    torch.manual_seed(11)
    model = MarianMTModel(MarianConfig(**{**settings, **overrides})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases and norms start as zeros and ones, which would hide mistakes
                parameter.add_(torch.randn_like(parameter) * 0.2)
        model.final_logits_bias.normal_(std=0.3)
        model.final_logits_bias[0, 0] += 7  # or hardly any hypothesis would end by itself
    model.save_pretrained(directory)
    edit_json(directory / "generation_config.json", num_beams=4, max_length=settings["max_position_embeddings"])
    write_letter_tokenizer(directory / "tokenizer.json")


def write_letter_tokenizer(path: Path) -> None:
    """A tokenizer of 231 ids in which every letter is a token: end 0, unknown 229, padding 230."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    letters = {chr(code): code - 31 for code in range(32, 127)} | {letter: 96 + i for i, letter in enumerate("äöüßÄÖÜ")}
    fillers = {chr(0x4E00 + number): number for number in range(103, 229)}
    vocabulary = {"</s>": 0, **letters, **fillers, "<unk>": 229, "<pad>": 230}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    tokenizer.add_special_tokens(["</s>", "<unk>", "<pad>"])
    tokenizer.save(str(path))


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file; None removes one."""
    content = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}), encoding="utf-8")


def own_engine(model: str | Path) -> TransformerEngine:
    """A checkpoint that our own transformer runs, on the CPU."""
    from knnmt.engine.loading import load_engine
    from knnmt.engine.transformer import TransformerEngine

    loaded = load_engine(model, device="cpu")
    assert isinstance(loaded, TransformerEngine)
    return loaded
