"""What tests of several packages need: the shipped model, and small random checkpoints made on the spot."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.engine.loading import load_engine
from knnmt.engine.transformer import TransformerEngine

ROOT = Path(__file__).parent.parent
MakeCheckpoint = Callable[..., Path]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `cuda` are skipped by name where there is no GPU."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="needs CUDA"))


@pytest.fixture(scope="session")
def engine() -> TransformerEngine:
    """The shipped model."""
    return own_engine("de-en")


@pytest.fixture(scope="session")
def domain_data() -> Path:
    """Real domain text, where there is any: KNNMT_DATA, by default ../shared beside the checkout."""
    data = Path(os.environ.get("KNNMT_DATA", ROOT.parent / "shared")) / "data"
    if not data.is_dir():
        pytest.skip("no domain text: set KNNMT_DATA")
    return data


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> MakeCheckpoint:
    """make_checkpoint(**config) writes a small random Marian checkpoint and returns its directory."""

    def make(generation: dict[str, Any] | None = None, **overrides: Any) -> Path:
        directory = tmp_path_factory.mktemp("checkpoint")
        write_checkpoint(directory, generation, **overrides)
        return directory

    return make


def write_checkpoint(directory: Path, generation: dict[str, Any] | None = None, **overrides: Any) -> None:
    """A small random Marian checkpoint, always the same."""
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
    asked = {"num_beams": 4, "max_length": settings["max_position_embeddings"], **(generation or {})}
    edit_json(directory / "generation_config.json", **asked)
    write_letter_tokenizer(directory / "tokenizer.json")


def write_letter_tokenizer(path: Path) -> None:
    """A tokenizer of 231 ids in which every letter is a token: end 0, unknown 229, padding 230."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    letters = {chr(code): code - 31 for code in range(32, 127)} | {letter: 96 + i for i, letter in enumerate("äöüßÄÖÜ")}
    fillers = {f"<{number}>": number for number in range(103, 229)}
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


@pytest.fixture(scope="session")
def tiny_checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    """A random model of 32 dimensions whose tokens are letters."""
    return make_checkpoint()


@pytest.fixture(scope="session")
def overflowing_checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    """The same, but that numbers overflow in every sentence with an ß; no translation has one."""
    from safetensors.torch import load_file, save_file

    file = make_checkpoint() / "model.safetensors"
    weights = load_file(file)
    letter = 96 + "äöüßÄÖÜ".index("ß")
    weights["model.shared.weight"][letter] = 1e25
    weights["final_logits_bias"][0, letter] = -3e38
    save_file(weights, file, metadata={"format": "pt"})
    return file.parent


@pytest.fixture(scope="session")
def tiny(tiny_checkpoint: Path) -> TransformerEngine:
    return own_engine(tiny_checkpoint)


def own_engine(model: str | Path) -> TransformerEngine:
    """A checkpoint that our own transformer runs, on the CPU."""
    loaded = load_engine(model, device="cpu")
    assert isinstance(loaded, TransformerEngine)
    return loaded


def domain_lines(data: Path, domain: str, count: int) -> list[str]:
    """The first German lines of a domain's development set."""
    with lzma.open(data / domain / "dev.tsv.xz", "rt", encoding="utf-8") as lines:
        return [line.split("\t")[0] for line in islice(lines, count)]
