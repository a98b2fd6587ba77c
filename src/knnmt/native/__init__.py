"""The compiled part of knnmt, if it could be built: `library()` loads the build that fits this CPU.

The sources beside this file are built for this CPU when the package is installed (`hatch_build.py`), if there is a C++
compiler; wheels have a build for each kind of CPU. Builds are optional: without them, or with KNNMT_NATIVE=0 in the
environment, FAISS and PyTorch do the same work more slowly. KNNMT_NATIVE=avx512vnni, or another build that fits this
CPU, loads that one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import warnings
from functools import cache
from pathlib import Path

import torch

from knnmt.errors import IgnoredSettingWarning, OldBuildWarning
from knnmt.native.structures import declare

_HERE = Path(__file__).parent


def fitting_builds() -> list[str]:
    """The names of the builds that run on this CPU, the fastest first."""
    amx = {"avx512amx": {"avx512_vnni", "amx_tile", "amx_int8"}}
    avx512, avx2 = {**amx, "avx512vnni": {"avx512_vnni"}, "avx512": set()}, {"avx2vnni": {"avx_vnni"}, "avx2": set()}
    builds = {"AVX512": {**avx512, **avx2}, "AVX2": avx2}
    fitting = builds.get(torch.backends.cpu.get_cpu_capability(), {"neondot": {"asimddp"}, "neon": set()})
    has = _cpu_flags()
    return [name for name, flags in fitting.items() if flags <= has]


@cache
def _cpu_flags() -> frozenset[str]:
    """The features of this CPU, as the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    named = (line.partition(":") for line in lines)
    fields = ("flags", "Features")  # x86, ARM
    return frozenset(flag for name, _, value in named if name.strip() in fields for flag in value.split())


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions, or None if no build runs here."""
    wanted, fitting = os.environ.get("KNNMT_NATIVE"), fitting_builds()
    if wanted == "0":
        return None
    if wanted and wanted not in fitting:
        warnings.warn(
            f"KNNMT_NATIVE={wanted} names no build that this CPU runs, and is ignored; leave it out for the fastest, "
            f"name one of {', '.join(fitting)}, or set 0 to go without compiled code",
            IgnoredSettingWarning,
            stacklevel=2,
        )
    named = [wanted] if wanted in fitting else []
    builds = named or fitting
    found = next((found for build in builds if (found := load(build)) is not None), None)
    missed = [f"knnmt-{build}.so" for build in named] or sorted(path.name for path in _HERE.glob("knnmt-*.so"))
    if found is None and missed:
        warnings.warn(
            f"the compiled code ({', '.join(missed)}) is missing, is for another CPU or other sources, or does not "
            "load, so PyTorch does its work, several times as slowly; to build it, install knnmt again: "
            "pip install -e .",
            OldBuildWarning,
            stacklevel=2,
        )
    return found


def load(build: str) -> ctypes.CDLL | None:
    """One of the builds; None if it is missing or was built from other sources."""
    try:
        found = ctypes.CDLL(str(_HERE / f"knnmt-{build}.so"))
        found.knnmt_source.restype = ctypes.c_char_p
        if found.knnmt_source().decode() != source_digest():  # an old build may lack functions that are used below
            return None
        declare(found)
    except (OSError, AttributeError):  # not built, for another system, or another problem
        return None
    return found


def source_digest() -> str:
    """A digest of the sources. A build contains the digest of its own sources."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_HERE.glob("*.[ch]*")))).hexdigest()
