"""Checkpoints are found and read in every layout they come in, and refused with a word that helps."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from knnmt.engine.checkpoint import find_checkpoint, fingerprint
from knnmt.engine.forced import force
from knnmt.engine.loading import load_engine
from knnmt.engine.shipped import MODELS_DIRECTORY
from knnmt.errors import CheckpointError, IgnoredSettingWarning, ModelNotFoundError, UnsupportedModelError
from support.checkpoints import MakeCheckpoint, edit_json
from support.family_checkpoints import load_reference, make_family, reference_outputs


@pytest.fixture
def checkpoint(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(make_checkpoint(), tmp_path / "model"))


def representations(directory: Path) -> torch.Tensor:
    return force(load_engine(directory, device="cpu"), [[5, 6, 0]], [[7, 8, 0]]).representations


def test_names_and_directories_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "de-en").mkdir()
    assert find_checkpoint("de-en") == MODELS_DIRECTORY / "de-en"
    assert find_checkpoint("./de-en") == Path("./de-en")
    assert find_checkpoint(tmp_path) == tmp_path
    (tmp_path / "file").touch()
    with pytest.raises(ModelNotFoundError, match="found a file"):
        find_checkpoint("file")
    with pytest.raises(ModelNotFoundError, match=r"no such directory.*de-en.*opus-mt-de-en"):
        find_checkpoint("./nowhere")


def test_a_hub_name_is_taken_from_the_hub_s_own_cache(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache as huggingface_hub lays it out, used offline: the real path from a name to an engine."""
    from huggingface_hub import constants

    repository = tmp_path / "hub" / "models--someone--small-de-en"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    shutil.copytree(checkpoint, repository / "snapshots" / ("0" * 40))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    assert load_engine("someone/small-de-en", device="cpu").name == "someone/small-de-en"
    with pytest.raises(ModelNotFoundError, match=r"hub cannot be reached.*copy the checkpoint"):
        load_engine("someone/other-model", device="cpu")


def test_every_weight_format_gives_the_same_model(checkpoint: Path) -> None:
    expected = representations(checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    names = sorted(tensors)

    torch.save(tensors, checkpoint / "pytorch_model.bin")
    torch.testing.assert_close(representations(checkpoint), expected)
    (checkpoint / "pytorch_model.bin").unlink()

    parts = {"model-1-of-2.safetensors": names[:20], "model-2-of-2.safetensors": names[20:]}
    for part, held in parts.items():
        save_file({name: tensors[name] for name in held}, checkpoint / part)
    index = {"weight_map": {name: part for part, held in parts.items() for name in held}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    torch.testing.assert_close(representations(checkpoint), expected)
    (checkpoint / "model-2-of-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-2-of-2\.safetensors are missing"):
        representations(checkpoint)


def test_a_fingerprint_is_of_the_weights_that_are_loaded(checkpoint: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    torch.save(tensors, checkpoint / "pytorch_model.bin")
    before = fingerprint(checkpoint)
    save_file({"left by training": torch.zeros(1)}, checkpoint / "adapter_model.safetensors")
    assert fingerprint(checkpoint) == before
    torch.save({name: tensor + 1 for name, tensor in tensors.items()}, checkpoint / "pytorch_model.bin")
    assert fingerprint(checkpoint).model != before.model


def test_half_precision_and_sharded_pytorch_files_load(checkpoint: Path) -> None:
    expected = representations(checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    parts = {"pytorch_model-1.bin": sorted(tensors)[:9], "pytorch_model-2.bin": sorted(tensors)[9:]}
    for part, held in parts.items():
        torch.save({name: tensors[name].half() for name in held}, checkpoint / part)
    index = {"weight_map": {name: part for part, held in parts.items() for name in held}}
    (checkpoint / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    found = representations(checkpoint)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0)


def test_files_saved_without_the_output_projection_lack_a_prefix(checkpoint: Path) -> None:
    expected = representations(checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    save_file(
        {name.removeprefix("model."): tensor for name, tensor in tensors.items()}, checkpoint / "model.safetensors"
    )
    torch.testing.assert_close(representations(checkpoint), expected)


@pytest.mark.parametrize("kept", ["lm_head.weight", "model.encoder.embed_tokens.weight"])
def test_a_tied_table_may_have_any_of_its_names(checkpoint: Path, kept: str) -> None:
    expected = representations(checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    tensors[kept] = tensors.pop("model.shared.weight")
    save_file(tensors, checkpoint / "model.safetensors")
    torch.testing.assert_close(representations(checkpoint), expected)


def test_old_names_in_config_are_understood(checkpoint: Path) -> None:
    expected = representations(checkpoint)
    old = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "static_position_embeddings": True}
    gone = {"d_model": None, "encoder_layers": None, "encoder_attention_heads": None}
    edit_json(checkpoint / "config.json", **old, **gone, normalize_before=False, add_bias_logits=False)
    torch.testing.assert_close(representations(checkpoint), expected)


def test_an_fsmt_of_the_published_layout_loads(tmp_path: Path) -> None:
    """As facebook/wmt19-de-en: pytorch_model.bin, no output projection, no generation_config.json, odd config keys."""
    make_family(tmp_path, "fsmt")
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.decoder.output_projection.weight"] = tensors["model.decoder.embed_tokens.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    source, target = [5, 6, 2], [7, 8, 2]
    expected = reference_outputs(load_reference(tmp_path), [source], [target])
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "generation_config.json").unlink()
    left_out = ("model.decoder.output_projection.weight", "model.encoder.embed_positions.weight")
    torch.save(
        {name: tensor for name, tensor in tensors.items() if name not in left_out}, tmp_path / "pytorch_model.bin"
    )
    decoder = {"bos_token_id": 2, "vocab_size": 128}
    unsaid = dict.fromkeys(("decoder_start_token_id", "forced_eos_token_id", "activation_function", "num_beams"))
    edit_json(tmp_path / "config.json", decoder=decoder, langs=["de", "en"], max_length=30, **unsaid)
    engine = load_engine(tmp_path, device="cpu")
    found = engine.log_probabilities(force(engine, [source], [target]).representations)
    torch.testing.assert_close(found, expected.logits[0].log_softmax(-1), atol=1e-4, rtol=0)
    asked = engine.generation
    assert (asked.beam, asked.max_tokens, asked.forced_last_token) == (5, 29, 2)
    assert engine.special_tokens.decoder_start == 2
    assert (engine.languages.source, engine.languages.target) == ("de", "en")


def test_old_files_with_copies_of_tied_and_computed_tensors_load(checkpoint: Path) -> None:
    expected = representations(checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    shared = tensors["model.shared.weight"]
    from knnmt.engine.blocks import sinusoidal_positions

    copies = {f"model.{side}.embed_tokens.weight": shared.clone() for side in ("encoder", "decoder")}
    tables = {f"model.{side}.embed_positions.weight": sinusoidal_positions(40, 32) for side in ("encoder", "decoder")}
    save_file({**tensors, **copies, **tables, "lm_head.weight": shared.clone()}, checkpoint / "model.safetensors")
    torch.testing.assert_close(representations(checkpoint), expected)


class Trap:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("trap-was-sprung"),)


def test_weights_that_would_run_code_are_refused(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (checkpoint / "model.safetensors").unlink()
    for save in (torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))):
        save({"weight": Trap()}, checkpoint / "pytorch_model.bin")
        with pytest.raises(CheckpointError, match="plain weights"):
            load_engine(checkpoint, device="cpu")
    assert not Path("trap-was-sprung").exists()


def spoil_config_missing(directory: Path) -> None:
    (directory / "config.json").unlink()


def spoil_config_json(directory: Path) -> None:
    (directory / "config.json").write_text("{broken")


def spoil_config_list(directory: Path) -> None:
    (directory / "config.json").write_text("[]")


def spoil_config_field(directory: Path) -> None:
    edit_json(directory / "config.json", d_model=None)


def spoil_special_token(directory: Path) -> None:
    edit_json(directory / "config.json", eos_token_id=None)
    edit_json(directory / "generation_config.json", eos_token_id=None)


def spoil_two_ends(directory: Path) -> None:
    edit_json(directory / "generation_config.json", eos_token_id=[0, 5])


def spoil_weights_missing(directory: Path) -> None:
    (directory / "model.safetensors").unlink()


def spoil_weights_cut(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def spoil_fewer_layers(directory: Path) -> None:
    edit_json(directory / "config.json", decoder_layers=1)


def spoil_more_layers(directory: Path) -> None:
    edit_json(directory / "config.json", decoder_layers=3)


def spoil_index(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "other.safetensors")
    (directory / "model.safetensors.index.json").write_text("{}")


def spoil_width(directory: Path) -> None:
    edit_json(directory / "config.json", d_model=64)


def spoil_heads(directory: Path) -> None:
    edit_json(directory / "config.json", decoder_attention_heads=5)


def spoil_start(directory: Path) -> None:
    edit_json(directory / "generation_config.json", decoder_start_token_id=99_999)


def spoil_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.json").write_text("{}")


SPOILT = [
    (spoil_config_missing, r"expected a checkpoint with config\.json, found none"),
    (spoil_config_json, "not valid JSON"),
    (spoil_config_list, "expected a JSON object, found list"),
    (spoil_config_field, "config.json lacks 'd_model'"),
    (spoil_special_token, "eos_token_id is missing"),
    (spoil_two_ends, r"eos_token_id is \[0, 5\]; decoding here needs a single token"),
    (spoil_weights_missing, r"expected model\.safetensors or pytorch_model\.bin, found neither"),
    (spoil_weights_cut, "not a readable safetensors file"),
    (spoil_fewer_layers, r"tensors do not belong to the model.*'model\.decoder\.layers\.1"),
    (spoil_more_layers, r"expected a tensor named model\.decoder\.layers\.2"),
    (spoil_index, r"index\.json: expected weight_map"),
    (spoil_width, r"as d_model .* of config.json say, found torch.float32 \(231, 32\)"),
    (spoil_heads, "decoder_attention_heads of config.json does not fit"),
    (spoil_start, "decoder_start_token_id of config.json does not fit"),
    (spoil_tokenizer, "not a readable tokenizer.json"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILT, ids=[spoil.__name__ for spoil, _ in SPOILT])
def test_a_spoilt_checkpoint_says_what_is_wrong(checkpoint: Path, spoil: Any, message: str) -> None:
    spoil(checkpoint)
    with pytest.raises(CheckpointError, match=message):
        load_engine(checkpoint, device="cpu")


def test_models_of_another_kind_are_named(checkpoint: Path) -> None:
    edit_json(checkpoint / "config.json", model_type="bert")
    with pytest.raises(
        UnsupportedModelError, match="model_type 'bert', which the installed transformers does not know"
    ):
        load_engine(checkpoint, device="cpu")
    edit_json(checkpoint / "config.json", model_type="marian", activation_function="tanh")
    with pytest.raises(UnsupportedModelError, match="activation_function is 'tanh'"):
        load_engine(checkpoint, device="cpu")


def test_generation_settings_come_from_the_old_place_too(checkpoint: Path) -> None:
    (checkpoint / "generation_config.json").unlink()
    edit_json(checkpoint / "config.json", num_beams=6, max_length=20, bad_words_ids=[[230]], length_penalty=0.8)
    asked = load_engine(checkpoint, device="cpu").generation
    assert (asked.beam, asked.max_tokens, asked.suppressed_tokens, asked.length_penalty) == (6, 19, (230,), 0.8)


def test_a_setting_that_is_not_followed_is_said(checkpoint: Path) -> None:
    edit_json(checkpoint / "generation_config.json", no_repeat_ngram_size=3)
    with pytest.warns(IgnoredSettingWarning, match="no_repeat_ngram_size=3"):
        load_engine(checkpoint, device="cpu")
