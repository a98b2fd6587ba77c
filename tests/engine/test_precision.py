from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from knnmt.engine import precision
from knnmt.engine.precision import choose_device, choose_dtype, cpu_bfloat16_speedup, cpu_name
from knnmt.errors import SettingError

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "knnmt" / "precision.json"


def test_defaults_are_safe() -> None:
    assert choose_dtype(None, CPU) == torch.float32
    assert choose_dtype(None, CUDA) == choose_dtype("auto", CUDA) == torch.float16
    assert choose_dtype(torch.bfloat16, CPU) == choose_dtype("bfloat16", CPU) == torch.bfloat16
    assert choose_device("cpu") == choose_device(CPU) == CPU
    assert choose_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(("speedup", "expected"), [(3.0, torch.bfloat16), (1.1, torch.float32), (0.005, torch.float32)])
def test_auto_takes_bfloat16_only_where_it_pays(
    monkeypatch: pytest.MonkeyPatch, speedup: float, expected: torch.dtype
) -> None:
    monkeypatch.setattr(precision, "_product_seconds", lambda dtype: speedup if dtype == torch.float32 else 1.0)
    assert choose_dtype("auto", CPU) == expected


def test_the_probe_is_remembered_for_the_machine(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = cpu_bfloat16_speedup()
    assert measured > 0
    (key,) = json.loads(own_cache.read_text())
    assert cpu_name() in key
    monkeypatch.setattr(precision, "_product_seconds", lambda dtype: pytest.fail("measured again"))
    assert cpu_bfloat16_speedup() == measured


@pytest.mark.parametrize("content", ["{broken", "[]", '{"another machine": 2.0}'])
def test_a_memory_of_no_use_is_measured_over(own_cache: Path, content: str) -> None:
    own_cache.parent.mkdir()
    own_cache.write_text(content)
    measured = cpu_bfloat16_speedup()
    assert measured in json.loads(own_cache.read_text()).values()


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cpu_bfloat16_speedup() > 0


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(SettingError, match="'float8' is not known; use one of float32, float16, bfloat16, or 'auto'"):
        choose_dtype("float8", CPU)
    with pytest.raises(SettingError, match="'float16' is for CUDA"):
        choose_dtype("float16", CPU)
    with pytest.raises(SettingError, match="device 'toaster' is not known"):
        choose_device("toaster")
    with pytest.raises(SettingError, match="device 'meta' is not supported"):
        choose_device("meta")
    if not torch.cuda.is_available():
        with pytest.raises(SettingError, match="sees no CUDA device"):
            choose_device("cuda")
