"""Checkpoints whose files say what cannot be: refused in our words, without a crash, a hang or a traceback."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from knnmt.engine.checkpoint import fingerprint
from knnmt.engine.forced import force
from knnmt.engine.loading import load_engine
from knnmt.errors import CheckpointError, ModelError, SettingError, UnsupportedModelError
from knnmt.translator.translator import Translator

DEEP = "[" * 100_000


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}))


CONFIGS: list[dict[str, Any]] = [
    {"d_model": "32"},
    {"d_model": None},
    {"d_model": 0},
    {"d_model": -32},
    {"d_model": 32.0},
    {"d_model": True},
    {"d_model": 10**9},
    {"d_model": 10**40},
    {"d_model": float("nan")},
    {"encoder_layers": -1},
    {"encoder_layers": 10**9},
    {"decoder_layers": [2]},
    {"encoder_attention_heads": 0},
    {"decoder_attention_heads": 0},
    {"decoder_attention_heads": {}},
    {"max_position_embeddings": 10**9},
    {"max_position_embeddings": 0},
    {"max_position_embeddings": "40"},
    {"scale_embedding": "yes"},
    {"tie_word_embeddings": 1},
    {"activation_function": ["swish"]},
    {"model_type": ["marian"]},
    {"model_type": 7},
    {"tokenizer_class": 3},
]


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
def test_sizes_that_cannot_be_are_refused(checkpoint: Path, changes: dict[str, Any]) -> None:
    edit(checkpoint / "config.json", **changes)
    with pytest.raises(CheckpointError, match=next(iter(changes))):
        load_engine(checkpoint, device="cpu")


@pytest.mark.parametrize("name", ["model.decoder.layers.0.fc1.weight", "model.shared.weight", "final_logits_bias"])
def test_weights_that_are_not_numbers_are_refused(checkpoint: Path, name: str) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    weights[name] = weights[name].clone()
    weights[name][0, 3] = float("nan")
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=rf"{name} has entries that are not numbers"):
        load_engine(checkpoint, device="cpu")


def test_a_size_of_none_is_refused(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    layer = "model.decoder.layers.0"
    weights[f"{layer}.fc1.weight"] = torch.zeros(0, weights[f"{layer}.fc1.weight"].shape[1])
    weights[f"{layer}.fc1.bias"] = torch.zeros(0)
    weights[f"{layer}.fc2.weight"] = torch.zeros(weights[f"{layer}.fc2.weight"].shape[0], 0)
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"fc1\.weight of floating-point numbers"):
        load_engine(checkpoint, device="cpu")


GENERATION: list[tuple[dict[str, Any], str]] = [
    ({"num_beams": "4"}, "num_beams: expected a whole number, found '4'"),
    ({"num_beams": -1}, "beam must be at least 1"),
    ({"length_penalty": "long"}, "length_penalty: expected a number"),
    ({"length_penalty": float("nan")}, "length_penalty: expected a finite number"),
    ({"length_penalty": 1e6}, "length_penalty must lie between"),
    ({"early_stopping": "sometimes"}, "early_stopping: expected 'never', found 'sometimes'"),
    ({"early_stopping": {}}, "early_stopping"),
    ({"max_length": "40"}, "max_length: expected a whole number"),
    ({"max_length": -3}, "max_tokens must be at least 1"),
    ({"max_new_tokens": 1.5}, "max_new_tokens: expected a whole number"),
    ({"min_length": []}, "min_length: expected a whole number"),
    ({"bad_words_ids": [5]}, r"bad_words_ids\[0\]: expected a list, found 5"),
    ({"bad_words_ids": [["x"]]}, r"bad_words_ids\[0\]\[0\]: expected a whole number"),
    ({"bad_words_ids": [[999]]}, "suppress_tokens of config.json does not fit"),
    ({"bad_words_ids": [[5, -7]]}, "bad_words_ids of config.json does not fit"),
    ({"suppress_tokens": [-1]}, "suppress_tokens of config.json does not fit"),
    ({"suppress_tokens": 3}, "suppress_tokens: expected a list"),
    ({"forced_bos_token_id": 231}, "forced_bos_token_id of config.json does not fit"),
    ({"forced_bos_token_id": [1, 2]}, r"forced_bos_token_id is \[1, 2\]"),
    ({"forced_eos_token_id": -1}, "forced_eos_token_id of config.json does not fit"),
    ({"eos_token_id": -1}, "eos_token_id of config.json does not fit"),
    ({"eos_token_id": "0"}, "eos_token_id: expected a list, found '0'"),
    ({"eos_token_id": 2**70}, "eos_token_id: expected"),
    ({"decoder_start_token_id": -1}, "decoder_start_token_id of config.json does not fit"),
    ({"decoder_start_token_id": []}, r"decoder_start_token_id is \[\]; decoding here needs a single token"),
    ({"pad_token_id": -1}, "pad_token_id of config.json does not fit"),
    ({"pad_token_id": 231}, "pad_token_id of config.json does not fit"),
]


@pytest.mark.parametrize(("changes", "message"), GENERATION, ids=str)
def test_generation_settings_that_cannot_be_are_refused(
    checkpoint: Path, changes: dict[str, Any], message: str
) -> None:
    edit(checkpoint / "generation_config.json", **changes)
    with pytest.raises(CheckpointError, match=message):
        load_engine(checkpoint, device="cpu")


def test_a_null_says_nothing(checkpoint: Path) -> None:
    edit(
        checkpoint / "generation_config.json", num_beams=None, length_penalty=None, early_stopping=None, max_length=None
    )
    edit(checkpoint / "config.json", scale_embedding=None, tie_word_embeddings=None)
    asked = load_engine(checkpoint, device="cpu").generation
    assert (asked.beam, asked.length_penalty, asked.early_stopping, asked.max_tokens) == (1, 1.0, False, 39)


def test_more_beams_than_there_can_be_are_refused_when_they_are_used(checkpoint: Path) -> None:
    edit(checkpoint / "generation_config.json", num_beams=10**9)
    with pytest.raises(SettingError, match="half the vocabulary of 231"):
        Translator(checkpoint, device="cpu", settings="raw").decoding()


@pytest.mark.parametrize("name", ["tokenizer_class", "source_lang", "tgt_lang"])
def test_names_of_the_tokenizer_must_be_text(checkpoint: Path, name: str) -> None:
    edit(checkpoint / "tokenizer_config.json", **{name: ["x"]})
    with pytest.raises(CheckpointError, match=rf"tokenizer_config\.json: {name}: expected text"):
        load_engine(checkpoint, device="cpu")


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize(
    "text", [DEEP, '{"a": ' * 300 + "1" + "}" * 300, "nan", "\xff", "[]"], ids=lambda text: text[:4]
)
def test_files_that_are_no_records_are_refused(checkpoint: Path, name: str, text: str) -> None:
    (checkpoint / name).write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=name):
        load_engine(checkpoint, device="cpu")


def test_pipes_and_large_files_are_not_read(checkpoint: Path) -> None:
    path = checkpoint / "config.json"
    with path.open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="bytes; at most"):
        load_engine(checkpoint, device="cpu")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="not a regular file"):
        load_engine(checkpoint, device="cpu")
    with pytest.raises(CheckpointError, match="not a regular file"):
        fingerprint(checkpoint)


def test_links_to_files_are_followed_as_the_hub_s_cache_has_them(checkpoint: Path, tmp_path: Path) -> None:
    for path in list(checkpoint.iterdir()):
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    assert load_engine(checkpoint, device="cpu").fingerprint == fingerprint(checkpoint)


# Weights --------------------------------------------------------------------------------------------------------------

LAYER = "model.decoder.layers.1"
WEIGHTS = [
    ("model.shared.weight", lambda tensor: tensor[:, :16]),
    ("model.shared.weight", lambda tensor: tensor[:100]),
    ("model.shared.weight", lambda tensor: tensor.to(torch.int64)),
    ("final_logits_bias", lambda tensor: tensor[:, :100]),
    ("final_logits_bias", lambda tensor: tensor[0]),
    (f"{LAYER}.self_attn.q_proj.weight", lambda tensor: tensor[:16]),
    (f"{LAYER}.self_attn.q_proj.weight", lambda tensor: tensor[:, :16]),
    (f"{LAYER}.self_attn.q_proj.weight", lambda tensor: tensor[0]),
    (f"{LAYER}.self_attn.q_proj.bias", lambda tensor: tensor[:8]),
    (f"{LAYER}.self_attn.q_proj.bias", lambda tensor: tensor[:, None]),
    (f"{LAYER}.self_attn_layer_norm.weight", lambda tensor: tensor[:8]),
    (f"{LAYER}.self_attn_layer_norm.bias", lambda tensor: tensor.bool()),
    (f"{LAYER}.encoder_attn.k_proj.weight", lambda tensor: tensor.repeat(2, 1)),
    (f"{LAYER}.encoder_attn.out_proj.weight", lambda tensor: tensor[:, :8]),
    (f"{LAYER}.fc1.weight", lambda tensor: tensor[:, :8]),
    (f"{LAYER}.fc1.weight", lambda tensor: tensor.sum()),
    (f"{LAYER}.fc1.bias", lambda tensor: tensor[:8]),
    (f"{LAYER}.fc2.weight", lambda tensor: tensor[:, :8]),
    (f"{LAYER}.fc2.weight", lambda tensor: tensor.to(torch.uint8)),
    ("model.encoder.layers.0.fc2.weight", lambda tensor: tensor[:8]),
]


@pytest.mark.parametrize(("name", "change"), WEIGHTS)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_weights_of_other_types_and_shapes_are_refused(checkpoint: Path, name: str, change: Any, dtype: str) -> None:
    path = checkpoint / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, name: change(tensors[name]).contiguous()}, path, {"format": "pt"})
    with pytest.raises(CheckpointError, match="from the same checkpoint"):
        load_engine(checkpoint, device="cpu", dtype=dtype)


def test_a_position_table_that_is_too_short_is_refused(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    tensors = load_file(path)
    for side in ("encoder", "decoder"):
        tensors[f"model.{side}.embed_positions.weight"] = torch.zeros(20, 32)
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"max_position_embeddings of config\.json does not fit"):
        load_engine(checkpoint, device="cpu")


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused_when_it_shows(checkpoint: Path) -> None:
    path = checkpoint / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["j"] = 5000
    path.write_text(json.dumps(content))
    translator = Translator(checkpoint, device="cpu", settings="raw")
    with pytest.raises(CheckpointError, match="its tokenizer gives token 5000, but its weights have only 231"):
        translator.translate(["ja"])
    engine = translator.engine
    with pytest.raises(CheckpointError, match="its tokenizer gives token 5000, but its weights have only 231"):
        force(engine, [[5, 0]], engine.tokenizer.encode_targets(["ja"]))


def test_a_tokenizer_whose_template_names_what_is_not_there_is_refused(checkpoint: Path) -> None:
    path = checkpoint / "tokenizer.json"
    content = json.loads(path.read_text())
    content["post_processor"]["special_tokens"] = {}
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="not a readable tokenizer"):
        load_engine(checkpoint, device="cpu")


def test_other_models_say_so(checkpoint: Path) -> None:
    edit(checkpoint / "config.json", model_type="t5", max_position_embeddings=None, n_positions="many")
    with pytest.raises(CheckpointError, match="n_positions: expected a whole number, found 'many'"):
        load_engine(checkpoint, device="cpu")
    edit(checkpoint / "config.json", model_type=None)
    with pytest.raises((ModelError, UnsupportedModelError)):
        load_engine(checkpoint, device="cpu")
