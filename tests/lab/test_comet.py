"""The bridge to COMET: with a stand-in for its package, and (soak) with the real one and a tiny random model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt.errors import COMET_RECIPE, CometError
from knnmt_lab.comet import Comet
from support import ROOT

STAND_IN = """
import os, sys, types
print("libraries print what they like")
def download_model(name):
    if name != "known/name":
        raise KeyError(f"Model {name!r} not supported by COMET.")
    return "downloaded"
def load_from_checkpoint(path):
    print("loading", path)
    return Model()
class Model:
    def predict(self, segments, gpus, num_workers, progress_bar):
        print("predicting")
        if segments[0]["mt"] == "die":
            print("no memory left", file=sys.stderr, flush=True)
            os._exit(9)
        if segments[0]["mt"] == "fail":
            raise ValueError("cannot score that")
        scores = [len(each["src"]) + len(each["mt"]) / 10 + len(each["ref"]) / 100 for each in segments]
        return types.SimpleNamespace(scores=scores[:1] if segments[0]["mt"] == "short" else scores)
"""
TORCH = "class cuda:\n    is_available = staticmethod(lambda: False)\n"
MakeInterpreter = Callable[..., Path]


@pytest.fixture
def interpreter(tmp_path: Path) -> MakeInterpreter:
    """An interpreter that finds a package `comet` like COMET's, or none."""

    def make(comet: str | None = STAND_IN) -> Path:
        packages = tmp_path / "pack äges"
        packages.mkdir()
        (packages / "torch.py").write_text(TORCH, encoding="utf-8")
        if comet is not None:
            (packages / "comet.py").write_text(comet, encoding="utf-8")
            (packages / "unbabel_comet-9.8.dist-info").mkdir()
            about = "Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 9.8\n"
            (packages / "unbabel_comet-9.8.dist-info" / "METADATA").write_text(about, encoding="utf-8")
        script = tmp_path / "python"
        script.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        return script

    return make


def test_scores_come_back_in_order_whatever_is_printed(
    interpreter: MakeInterpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/of/our/own")  # an interpreter that gets that cannot start
    with Comet(interpreter(), "known/name") as comet:
        assert comet.signature == "model:known/name|version:9.8"
        assert comet.segment_scores(["ä", "bb"], ["c", "d"], ["e\u2028\n", ""]) == pytest.approx([1.13, 2.1])
        found = comet.score(["a", "bb"], ["c", "d"], ["e", ""])
        assert found.value == pytest.approx((1.11 + 2.1) / 2)
        assert found.signature == comet.signature


def test_failing_is_told_and_does_not_end_it(interpreter: MakeInterpreter) -> None:
    with Comet(interpreter(), "known/name") as comet:
        with pytest.raises(CometError, match="while scoring: ValueError: cannot score that"):
            comet.score(["a"], ["fail"], ["b"])
        with pytest.raises(CometError, match="1 scores for 2 segments"):
            comet.score(["a", "a"], ["short", "a"], ["b", "b"])
        with pytest.raises(CometError, match=r"(?s)ended with status 9 .*no memory left"):
            comet.score(["a"], ["die"], ["b"])
        with pytest.raises(CometError, match="ended with status 9"):
            comet.score(["a"], ["b"], ["b"])


def test_a_process_that_was_killed_is_reported(interpreter: MakeInterpreter) -> None:
    with Comet(interpreter(), "known/name") as comet:
        os.kill(comet._process.pid, signal.SIGKILL)
        comet._process.wait()
        with pytest.raises(CometError, match="ended with status -9"):
            comet.score(["a"] * 100_000, ["b"] * 100_000, ["c"] * 100_000)


def test_messages_say_what_to_do(interpreter: MakeInterpreter, tmp_path: Path) -> None:
    with pytest.raises(CometError) as raised:
        Comet(tmp_path / "none" / "python", "known/name")
    assert "cannot be run: No such file" in str(raised.value)
    assert COMET_RECIPE in str(raised.value)
    python = interpreter()
    with pytest.raises(
        CometError, match=r"--comet-model no/such: cannot be loaded \(KeyError.*checkpoints/model\.ckpt"
    ):
        Comet(python, "no/such")


def test_an_environment_without_the_package_is_told_how_to_get_it(interpreter: MakeInterpreter) -> None:
    with pytest.raises(CometError) as raised:
        Comet(interpreter(comet=None), "known/name")
    assert "unbabel-comet cannot be imported there (ModuleNotFoundError: No module named 'comet')" in str(raised.value)
    assert COMET_RECIPE in str(raised.value)


def test_an_interpreter_that_is_none_is_reported() -> None:
    with pytest.raises(CometError, match="ended with status 1 before it answered"):
        Comet("/bin/false")


MAKE_CHECKPOINT = """
import sys
from pathlib import Path

import pytorch_lightning
import torch
import yaml
from comet import load_from_checkpoint
from comet.models import RegressionMetric
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizerFast

place, segments = Path(sys.argv[1]), yaml.safe_load(sys.argv[2])
pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *map(chr, range(32, 127))]
vocabulary = {piece: number for number, piece in enumerate(pieces)}
letters = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
letters.post_processor = processors.TemplateProcessing(
    single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
)
XLMRobertaTokenizerFast(tokenizer_object=letters).save_pretrained(place / "encoder")
torch.manual_seed(3)
config = XLMRobertaConfig(
    vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=130, pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1,
)
XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(place / "encoder")
metric = RegressionMetric(pretrained_model=str(place / "encoder"), hidden_sizes=[8], local_files_only=True)
trainer = pytorch_lightning.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
trainer.strategy.connect(metric)
trainer.save_checkpoint(place / "checkpoints" / "model.ckpt", weights_only=True)
(place / "hparams.yaml").write_text(yaml.dump({**metric.hparams, "class_identifier": "regression_metric"}))
loaded = load_from_checkpoint(place / "checkpoints" / "model.ckpt")
Path(sys.argv[3]).write_text(yaml.dump(loaded.predict(segments, gpus=0, progress_bar=False).scores))
"""


@pytest.mark.soak
def test_the_published_package_scores_with_a_tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of the documentation, with the PyTorch of our constraints so that no CUDA packages are fetched."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "pins.txt").write_text("\n".join(pin for pin in pins if pin.startswith("torch==")), encoding="utf-8")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "pins.txt"))
    subprocess.run(COMET_RECIPE.replace("python3", sys.executable, 1), shell=True, check=True, cwd=tmp_path)
    python = tmp_path / "comet-env" / "bin" / "python"

    sources, hypotheses = ["Guten Tag", "Die Datei wurde gespeichert.", "a"], ["good day", "The file", "b"]
    references = ["Good day!", "The file has been saved.", "c"]
    segments = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
    ]
    scores = tmp_path / "scores.yaml"
    command = [str(python), "-c", MAKE_CHECKPOINT, str(tmp_path / "model"), json.dumps(segments), str(scores)]
    subprocess.run(command, check=True, timeout=300)
    expected = [float(line.removeprefix("- ")) for line in scores.read_text(encoding="utf-8").splitlines()]
    assert len(set(expected)) == 3

    with Comet(python, str(tmp_path / "model" / "checkpoints" / "model.ckpt")) as comet:
        assert comet.segment_scores(sources, hypotheses, references) == pytest.approx(expected, abs=1e-6)
        assert comet.segment_scores(sources[:1], hypotheses[:1], references[:1]) == pytest.approx(
            expected[:1], abs=1e-5
        )
        assert comet.signature.endswith("|version:2.2.7")
    with pytest.raises(CometError, match="cannot be loaded"):
        Comet(python, "no/such-model")
