"""Device and number format of computation, and a probe that finds the fastest format of this machine's CPU.

Every CPU computes in float32 by default: products in bfloat16 or int8 are several times faster on some CPUs and
hundreds of times slower on others. `dtype="auto"` measures this once per machine and remembers the result.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

from knnmt.engine.layers import projection
from knnmt.engine.product import Int8Projection
from knnmt.errors import SettingError
from knnmt.native import library

_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
}
_FASTER = ("int8", "bfloat16")  # than float32, on some CPUs
_WORTH_IT = 1.3  # products have to be this much faster before their rounding is accepted


def choose_device(device: str | torch.device | None) -> torch.device:
    """The given device; by default CUDA if there is one, else the CPU."""
    if device is None or device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise SettingError(f"device {device!r} is not known; use 'cpu', 'cuda' or 'cuda:N'") from error
    if chosen.type not in ("cpu", "cuda"):
        raise SettingError(f"device {device!r} is not supported; use 'cpu', 'cuda' or 'cuda:N'")
    if chosen.type == "cuda" and torch.cuda.is_available() and (chosen.index or 0) >= torch.cuda.device_count():
        raise SettingError(f"device {device!r} was requested, but there are {torch.cuda.device_count()} CUDA devices")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise SettingError(f"device {device!r} was requested, but this PyTorch finds no CUDA device; use 'cpu'")
    return chosen


def choose_dtype(dtype: str | torch.dtype | None, device: torch.device, with_int8: bool = True) -> torch.dtype:
    """The given type; by default float32 on a CPU and float16 on CUDA; with "auto", the type fastest on this machine.

    with_int8: whether the model has products in int8; models that `transformers` runs have none
    """
    if isinstance(dtype, torch.dtype):
        dtype = str(dtype).removeprefix("torch.")
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.float16
    if dtype == "auto":
        if device.type != "cpu":
            return torch.float16
        speedups = {name: speedup for name, speedup in cpu_speedups().items() if with_int8 or name != "int8"}
        fastest = max(speedups, key=lambda name: speedups[name])
        return _DTYPES[fastest] if speedups[fastest] >= _WORTH_IT else torch.float32
    if dtype not in _DTYPES:
        raise SettingError(f"dtype {dtype!r} is not known; use one of {', '.join(_DTYPES)}, or 'auto'")
    if dtype == "float16" and device.type == "cpu":
        raise SettingError("dtype 'float16' is for CUDA; on a CPU use 'float32', 'bfloat16', 'int8' or 'auto'")
    if dtype == "int8" and device.type != "cpu":
        raise SettingError(f"dtype 'int8' is for CPUs; on {device} use 'float16', 'bfloat16' or 'float32'")
    if dtype == "int8" and not with_int8:
        raise SettingError("dtype 'int8' is for models that knnmt runs itself, not for those that transformers runs")
    return _DTYPES[dtype]


def cpu_speedups(measure: Callable[[str], float] | None = None) -> dict[str, float]:
    """How many times faster a decoder's product is in int8 and bfloat16 than in float32; measured once per machine.

    measure: the seconds of a product of a type, by default of products as the decoder has them
    """
    measure = measure or product_seconds
    place = _memory_file()
    compiled = "plain" if library() is None else "compiled"
    key = f"{cpu_name()}|torch {torch.__version__}|{torch.get_num_threads()} threads|{compiled}"
    known: dict[str, dict[str, float]] = {}
    try:
        known = json.loads(place.read_text(encoding="utf-8"))
        return {name: float(known[key][name]) for name in _FASTER}
    except (OSError, ValueError, KeyError, TypeError):
        known = known if isinstance(known, dict) else {}
    seconds = measure("float32")
    speedups = {name: round(seconds / measure(name), 2) for name in _FASTER}
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch = place.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps({**known, key: speedups}, indent=1), encoding="utf-8")
        scratch.replace(place)
    except OSError:
        pass  # a machine without a writable home measures again next time
    return speedups


def cpu_name() -> str:
    """The name of the processor, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "model name" in fields:
        return f"{fields['model name']} family {fields.get('cpu family')} model {fields.get('model')}"
    if "CPU part" in fields:
        return f"{platform.machine()} implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
    return platform.processor() or platform.machine()


def _memory_file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "knnmt" / "precision.json"


def product_seconds(dtype: str) -> float:
    """The shortest time of a few products of the decoder's usual shape: 40 rows, 512 to 2048 features."""
    type_of_rows = torch.float32 if dtype == "int8" else _DTYPES[dtype]
    x = torch.randn(40, 512).to(type_of_rows)
    weight = torch.randn(2048, 512).half().to(type_of_rows)  # float16 holds it exactly, as in published checkpoints
    product: Callable[[torch.Tensor], torch.Tensor]
    product = Int8Projection(weight, None, fine=True) if dtype == "int8" else projection(weight, None)
    best = float("inf")
    spent = 0.0
    for round_number in range(24):
        started = time.perf_counter()
        product(x)
        seconds = time.perf_counter() - started
        spent += seconds
        if round_number >= 2:
            best = min(best, seconds)
        if spent > 0.5 and round_number >= 3:
            break
    return best
