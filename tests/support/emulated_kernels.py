"""The kernels for GPUs, compiled for a CPU, where their threads run by turns."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt import native
from support import TESTS
from support.made_once import made_once

HERE = TESTS / "native"
KERNELS = Path(native.__file__).parent / "gpu"


def kernels_on_a_cpu(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Callable[..., None]]:
    """The same as `knnmt.native.gpu.kernel`."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("nothing can be compiled: no C++ compiler")
    options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread", f"-I{KERNELS}", f"-I{HERE}"]
    command = [compiler, *options, str(HERE / "kernels_on_a_cpu.cpp"), "-o"]
    built = made_once(
        tmp_path_factory, "kernels", lambda place: subprocess.run([*command, str(place / "kernels.so")], check=True)
    )
    loaded = ctypes.CDLL(str(built / "kernels.so"))

    def passed(argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            return ctypes.c_void_p(argument.data_ptr())
        return ctypes.c_double(argument) if isinstance(argument, float) else argument

    def of_name(name: str, _device: torch.device, **constants: int) -> Callable[..., None]:
        suffix = "_in_halves" if constants.get("HALF") else ""

        def run(grid: tuple[int, int, int], block: tuple[int, int, int], args: list[Any]) -> None:
            getattr(loaded, f"run_{name}{suffix}")(grid[0], grid[1], block[0], *map(passed, args))

        return run

    return of_name
