"""Checkpoints of well-known shapes with random float32 weights, for `decoding.py --made-up`: no download is needed.

float16 cannot represent these weights exactly, as with most published float32 checkpoints.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

END, PAD, UNKNOWN = "</s>", "<pad>", "<unk>"
# The shapes of OPUS-MT and of facebook/wmt19-de-en, the paper's model, which has one table for source, target, output.
SHAPES: dict[str, dict[str, Any]] = {
    "marian-78m": {
        "d_model": 512,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048,
        "max_position_embeddings": 512,
        "activation_function": "swish",
        "scale_embedding": True,
        "vocab_size": 58101,
        "eos_token_id": 0,
        "pad_token_id": 58100,
        "decoder_start_token_id": 58100,
        "forced_eos_token_id": 0,
    },
    "fsmt-270m": {
        "d_model": 1024,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "encoder_ffn_dim": 8192,
        "decoder_ffn_dim": 4096,
        "max_position_embeddings": 1024,
        "src_vocab_size": 42024,
        "tgt_vocab_size": 42024,
        "tie_word_embeddings": True,
        "langs": ["de", "en"],
    },
}


def tokens_of(shape: dict[str, Any]) -> list[str]:
    count = shape.get("vocab_size") or shape["tgt_vocab_size"]
    tokens = [f"t{number}" for number in range(count)]
    if "vocab_size" in shape:
        tokens[0], tokens[1], tokens[-1] = END, UNKNOWN, PAD
    else:
        tokens[1:4] = PAD, END, UNKNOWN
    return tokens


def write_checkpoint(name: str, directory: Path) -> None:
    """Write a checkpoint in the format of `transformers`, for it and for knnmt."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    shape = SHAPES[name]
    torch.manual_seed(1)
    if "vocab_size" in shape:
        model: Any = transformers.MarianMTModel(transformers.MarianConfig(**shape))
    else:
        model = transformers.FSMTForConditionalGeneration(transformers.FSMTConfig(**shape))
        share_table(model)
    model.save_pretrained(directory)
    (directory / "generation_config.json").write_text("{}")
    vocabulary = {token: number for number, token in enumerate(tokens_of(shape))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([END, PAD, UNKNOWN])
    tokenizer.save(str(directory / "tokenizer.json"))


def share_table(model: Any) -> None:
    """One table for source, target and output, as in the published checkpoint; files hold it once."""
    table = model.model.decoder.embed_tokens.weight
    model.model.encoder.embed_tokens.weight = model.model.decoder.output_projection.weight = table


def convert(name: str, checkpoint: Path, directory: Path) -> None:
    """Convert the checkpoint for CTranslate2. Its converter knows Marian; FSMT is handled like BART, with switches."""
    import torch
    from ctranslate2.converters import transformers as converters
    from transformers import FSMTForConditionalGeneration, MarianMTModel

    tokens = tokens_of(SHAPES[name])
    with torch.no_grad():
        if "vocab_size" in SHAPES[name]:
            spec = converters.MarianMTLoader().get_model_spec(MarianMTModel.from_pretrained(checkpoint))
            tokens.remove(PAD)
        else:
            model = FSMTForConditionalGeneration.from_pretrained(checkpoint)
            share_table(model)
            model.config.normalize_before = model.config.normalize_embedding = False
            model.lm_head = model.model.decoder.output_projection
            for side in (model.model.encoder, model.model.decoder):
                side.embed_positions.offset = model.config.pad_token_id + 1
            spec = converters.BartLoader().get_model_spec(model)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.unk_token = UNKNOWN
    spec.config.bos_token = spec.config.eos_token = spec.config.decoder_start_token = END
    spec.validate()
    spec.optimize(quantization=None)
    directory.mkdir()
    spec.save(str(directory))


def write(name: str, place: Path) -> None:
    """Write the directories `checkpoint`, and `ct2` for CTranslate2."""
    write_checkpoint(name, place / "checkpoint")
    convert(name, place / "checkpoint", place / "ct2")


def sources(name: str, count: int) -> list[list[int]]:
    """Random token ids, 8 to 40 tokens each, and the end token."""
    chosen = random.Random(7)
    shape = SHAPES[name]
    end = tokens_of(shape).index(END)
    most = len(tokens_of(shape)) - 2
    return [[*(chosen.randint(4, most) for _ in range(chosen.randint(8, 40))), end] for _ in range(count)]
