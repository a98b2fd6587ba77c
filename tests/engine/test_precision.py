from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from knnmt.engine import precision
from knnmt.engine.precision import choose_device, choose_dtype, cpu_name, cpu_speedups
from knnmt.engine.product import Int8Projection
from knnmt.errors import SettingError
from knnmt.native import library

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


@pytest.mark.parametrize(
    ("bfloat16", "int8", "expected", "without_int8"),
    [
        (3.0, 2.0, torch.bfloat16, torch.bfloat16),
        (1.1, 1.4, torch.int8, torch.float32),
        (1.4, 4.0, torch.int8, torch.bfloat16),
        (1.2, 1.2, torch.float32, torch.float32),
        (0.005, 0.3, torch.float32, torch.float32),
    ],
)
def test_auto_takes_what_is_fastest_where_it_pays(
    monkeypatch: pytest.MonkeyPatch,
    bfloat16: float,
    int8: float,
    expected: torch.dtype,
    without_int8: torch.dtype,
) -> None:
    seconds = {"float32": 1.0, "bfloat16": 1 / bfloat16, "int8": 1 / int8}
    monkeypatch.setattr(precision, "product_seconds", seconds.__getitem__)
    assert choose_dtype("auto", CPU) == expected
    assert choose_dtype("auto", CPU, with_int8=False) == without_int8


def test_the_probe_measures_products_as_the_decoder_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Watched(Int8Projection):
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, fine: bool = False) -> None:
            asked.append(fine)
            super().__init__(weight, bias, fine)

    monkeypatch.setattr(precision, "Int8Projection", Watched)
    cpu_speedups()
    assert asked == [True]


def test_the_probe_is_remembered_for_the_machine(own_cache: Path) -> None:
    measured = cpu_speedups()
    assert measured.keys() == {"int8", "bfloat16"}
    assert min(measured.values()) > 0
    (key,) = json.loads(own_cache.read_text())
    assert cpu_name() in key
    assert cpu_speedups(lambda dtype: pytest.fail("measured again")) == measured


@pytest.mark.parametrize("content", ["{broken", "[]", '{"another machine": 2.0}', '{"this": {}}'])
def test_a_memory_of_no_use_is_measured_over(own_cache: Path, content: str) -> None:
    own_cache.parent.mkdir()
    compiled = "plain" if library() is None else "compiled"
    key = f"{cpu_name()}|torch {torch.__version__}|{torch.get_num_threads()} threads|{compiled}"
    own_cache.write_text(content.replace("this", key))
    measured = cpu_speedups()
    assert measured in json.loads(own_cache.read_text()).values()


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert min(cpu_speedups().values()) > 0


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(SettingError, match=r"'float8' is not known; use one of float32, .*, int8, or 'auto'"):
        choose_dtype("float8", CPU)
    with pytest.raises(SettingError, match="'float16' is for CUDA"):
        choose_dtype("float16", CPU)
    with pytest.raises(SettingError, match="'int8' is for CPUs; on cuda use 'float16'"):
        choose_dtype("int8", CUDA)
    with pytest.raises(SettingError, match="not for those that transformers runs"):
        choose_dtype("int8", CPU, with_int8=False)
    with pytest.raises(SettingError, match="device 'toaster' is not known"):
        choose_device("toaster")
    with pytest.raises(SettingError, match="device 'meta' is not supported"):
        choose_device("meta")
    if not torch.cuda.is_available():
        with pytest.raises(SettingError, match="finds no CUDA device"):
            choose_device("cuda")
