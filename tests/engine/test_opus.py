"""OPUS-MT checkpoints as their conversion to the Hugging Face layout leaves them: texts translated as there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from knnmt.engine.blocks import sinusoidal_positions
from knnmt.engine.language_codes import Languages
from knnmt.engine.loading import load_engine
from knnmt.errors import SettingError
from knnmt.translator.translator import Translator
from support.checkpoints import MakeCheckpoint, edit_json
from support.family_checkpoints import load_reference, write_opus_tokenizer
from support.german import german_sentences

TEXTS = german_sentences(8)


def converted(make_checkpoint: MakeCheckpoint, scratch: Path, codes: tuple[str, ...] = ()) -> tuple[Path, Any]:
    """A random checkpoint in that layout, and the model as `transformers` has it."""
    size = write_opus_tokenizer(scratch, codes)
    tokens = {"vocab_size": size, "pad_token_id": size - 1, "decoder_start_token_id": size - 1}
    asked = {"bad_words_ids": [[size - 1]], "num_beams": 6, "max_length": 40, "length_penalty": 1.0}
    directory = make_checkpoint(generation=asked, **tokens, max_position_embeddings=128)
    (directory / "tokenizer.json").unlink()
    for file in scratch.iterdir():
        file.rename(directory / file.name)
    model = load_reference(directory)
    tensors = load_file(directory / "model.safetensors")
    copies = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    tensors |= dict.fromkeys(copies, tensors["model.shared.weight"])
    tensors |= {
        f"model.{side}.embed_positions.weight": sinusoidal_positions(128, 32) for side in ("encoder", "decoder")
    }
    torch.save(tensors, directory / "pytorch_model.bin")
    (directory / "model.safetensors").unlink()
    old = {"normalize_before": False, "static_position_embeddings": True, "add_final_layer_norm": False}
    edit_json(directory / "config.json", **old, num_hidden_layers=2, architectures=["MarianMTModel"])
    return directory, model


@pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
def test_text_is_translated_as_in_transformers(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    directory, model = converted(make_checkpoint, tmp_path)
    translator = Translator(directory, device="cpu", settings="raw")
    assert translator.engine.languages == Languages("de", "en")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    ids = model.generate(**tokenizer(TEXTS, return_tensors="pt", padding=True), num_beams=5)
    expected = tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert [each.text for each in translator.translate(TEXTS)] == expected
    with pytest.raises(SettingError, match="--source-lang 'fr': the model translates de to en"):
        load_engine(directory, device="cpu", source_lang="fr")


def test_a_target_code_is_put_before_the_source(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    directory, _ = converted(make_checkpoint, tmp_path, (">>fra<<", ">>por<<"))
    edit_json(directory / "tokenizer_config.json", target_lang="ROMANCE")
    engine = load_engine(directory, device="cpu", target_lang="pt-BR")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert engine.tokenizer.encode_sources(TEXTS) == tokenizer([f">>por<< {text}" for text in TEXTS])["input_ids"]
    upper = [text.upper() for text in TEXTS]
    assert engine.tokenizer.encode_targets(upper) == tokenizer(text_target=upper)["input_ids"]
    assert engine.tokenizer.decode(engine.tokenizer.encode_targets(upper)[0]) == upper[0]
