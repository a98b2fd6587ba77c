"""The shipped models: card and weights belong together, and the files hold what they should and nothing else."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from pathlib import Path

import pytest

from knnmt.engine.shipped import MODELS_DIRECTORY, shipped_models
from support import ROOT

MODELS = [MODELS_DIRECTORY / name for name in shipped_models()]
by_name = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)


def table_sums(card: str, heading: str) -> list[int]:
    """The sums of the columns of numbers in the first table after a heading."""
    [section] = re.findall(rf"^### {heading}.*?(?=^##|\Z)", card, re.MULTILINE | re.DOTALL)
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    columns = [[cell.strip().replace(",", "") for cell in column] for column in zip(*rows, strict=True)]
    numbers = [[cell for cell in column if cell != "–"] for column in columns]
    return [sum(map(int, column)) for column in numbers if all(cell.isdecimal() for cell in column)]


def test_there_is_one_for_each_direction() -> None:
    assert [*shipped_models()] == ["de-en", "en-de"]


@by_name
def test_the_card_belongs_to_the_weights(model: Path) -> None:
    card = (model / "README.md").read_text(encoding="utf-8")
    for name in ("model.safetensors", "tokenizer.json"):
        digest = hashlib.sha256((model / name).read_bytes()).hexdigest()
        assert f"| SHA-256 of `{name}` | `{digest}` |" in card


@by_name
def test_the_sources_in_the_card_add_up_to_the_pairs_of_the_training(model: Path) -> None:
    card = (model / "README.md").read_text(encoding="utf-8")
    [general] = table_sums(card, "General text")
    [strings] = table_sums(card, "Strings of programs")
    by_people, *by_machine = table_sums(card, "Handbooks")
    training = card.partition("## Training")[2].partition("## Sources")[0]
    stated = [int(number.replace(",", "")) for number in re.findall(r"[\d,]+(?= pairs)", training)]
    assert stated == [general, by_people + strings, *by_machine]
    assert f"### General text, {general:,} pairs" in card
    assert f"### Strings of programs, {strings:,} pairs" in card


@by_name
def test_the_weights_are_nothing_but_tensors(model: Path) -> None:
    """The tensors lie one after the other, from the header to the end of the file, without anything between them."""
    assert {path.name for path in model.iterdir()} == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    content = (model / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    assert {tensor["dtype"] for tensor in header.values()} == {"F16"}
    end = 0
    for begin, stop in sorted(tensor["data_offsets"] for tensor in header.values()):
        assert begin == end
        end = stop
    assert 8 + length + end == len(content)


@by_name
def test_settings_and_tokenizer_agree(model: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    config, generation = AutoConfig.from_pretrained(model), GenerationConfig.from_pretrained(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    assert len(tokenizer) == config.vocab_size
    assert tokenizer.eos_token_id == config.eos_token_id == generation.eos_token_id == generation.forced_eos_token_id
    assert tokenizer.pad_token_id == config.pad_token_id == generation.pad_token_id
    assert generation.decoder_start_token_id == config.decoder_start_token_id == tokenizer.pad_token_id
    assert tokenizer.model_max_length == config.max_position_embeddings == generation.max_length == 512
    assert generation.num_beams == 5
    stated = json.loads((model / "config.json").read_text()) | json.loads((model / "tokenizer_config.json").read_text())
    assert not {"auto_map", "custom_generate", "custom_pipelines"} & stated.keys()


def test_the_package_is_distributed_with_the_cards() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [patterns] = re.findall(r"^license-files = \[(.+)\]", project, re.MULTILINE)
    files = {path for pattern in re.findall(r'"([^"]+)"', patterns) for path in ROOT.glob(pattern)}
    assert files == {ROOT / "LICENSE", *(model / "README.md" for model in MODELS)}
