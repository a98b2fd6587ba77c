"""Code that a checkpoint brings is never run, whatever it calls itself and whatever comes on standard input."""

from __future__ import annotations

import ast
import shutil
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knnmt.cli import app
from knnmt.errors import KnnmtError
from support import ROOT
from support.checkpoints import edit_json
from support.family_checkpoints import make_family

_TRAP = """from pathlib import Path
Path({marker!r}).touch()
from transformers import {base}
class Own({base}): {body}
"""


@pytest.fixture
def t5(tmp_path: Path) -> Path:
    return make_family(tmp_path / "model", "t5", {"max_length": 40})


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "code-was-run"


@pytest.fixture(autouse=True)
def without_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of another name is asked for."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def _translate(checkpoint: Path) -> str:
    """What is printed, with somebody at the keyboard who agrees to everything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CliRunner().invoke(app, ["translate", "-m", str(checkpoint)], "y\ny\ny\n", catch_exceptions=False).stdout


def _refused(checkpoint: Path, marker: Path, named: str) -> None:
    with pytest.raises(KnnmtError) as error:
        _translate(checkpoint)
    assert not marker.exists()
    assert str(error.value).startswith(f"{checkpoint}: the checkpoint contains code")
    assert named in str(error.value)
    assert "never run" in str(error.value)


def test_the_code_of_a_model_does_not_run(t5: Path, marker: Path) -> None:
    classes = {"AutoConfig": "own.Own", "AutoModelForSeq2SeqLM": "own.Own"}
    edit_json(t5 / "config.json", model_type="own", auto_map=classes)
    (t5 / "own.py").write_text(_TRAP.format(marker=str(marker), base="T5Config", body='model_type = "own"'))
    _refused(t5, marker, "own.Own")


def test_the_code_of_a_tokenizer_does_not_run(t5: Path, marker: Path) -> None:
    (t5 / "tokenizer.json").unlink()
    (t5 / "own.py").write_text(_TRAP.format(marker=str(marker), base="PreTrainedTokenizer", body="pass"))
    (t5 / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", null]}}'
    )
    _refused(t5, marker, "own.Own")


def test_a_search_of_its_own_does_not_run(t5: Path, marker: Path) -> None:
    (t5 / "custom_generate").mkdir()
    (t5 / "custom_generate" / "generate.py").write_text(_TRAP.format(marker=str(marker), base="T5Config", body="pass"))
    _refused(t5, marker, "generate.py")


def test_a_model_that_is_known_loads_without_the_code_it_brings(t5: Path, marker: Path) -> None:
    edit_json(t5 / "config.json", auto_map={"AutoModelForSeq2SeqLM": "own.Own"})
    (t5 / "own.py").write_text(_TRAP.format(marker=str(marker), base="T5ForConditionalGeneration", body="pass"))
    assert _translate(t5).count("\n") == 3
    assert not marker.exists()


@pytest.mark.parametrize("part", ["src", "benchmarks", "examples"])
def test_every_call_that_could_run_code_says_no(part: str) -> None:
    for path in (ROOT / part).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = node.func.value
                if node.func.attr.startswith("from_") and isinstance(of, ast.Name) and of.id.startswith("Auto"):
                    said = {each.arg: ast.unparse(each.value) for each in node.keywords}
                    assert said.get("trust_remote_code") == "False", f"{path}, line {node.lineno}"


def test_weights_outside_the_checkpoint_are_refused(t5: Path, tmp_path: Path) -> None:
    from knnmt.engine.checkpoint import fingerprint
    from knnmt.errors import CheckpointError

    shutil.copy(t5 / "model.safetensors", tmp_path / "other.safetensors")
    (t5 / "model.safetensors").unlink()
    (t5 / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../other.safetensors"}}')
    with pytest.raises(CheckpointError, match=r"files beside it, found '\.\./other\.safetensors'"):
        fingerprint(t5)


def test_a_pickle_is_not_read_by_a_pytorch_that_would_run_it(t5: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.torch_version import TorchVersion

    from knnmt.engine.checkpoint import load_tensors
    from knnmt.errors import CheckpointError

    (t5 / "model.safetensors").unlink()
    torch.save({"model.a": torch.zeros(1)}, t5 / "pytorch_model.bin")
    assert list(load_tensors(t5)) == ["model.a"]
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.5.1"))
    with pytest.raises(CheckpointError, match=r"PyTorch 2\.6 or newer; this is 2\.5\.1"):
        load_tensors(t5)
