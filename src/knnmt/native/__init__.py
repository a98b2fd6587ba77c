"""The compiled part of knnmt, if it could be built: `library()` loads the build that fits this CPU.

The sources beside this file are built when the package is installed (`hatch_build.py`), if there is a C++ compiler.
They are optional: without them, or with KNNMT_NATIVE=0 in the environment, FAISS and PyTorch do the same work more
slowly. KNNMT_NATIVE=avx512vnni, or another build that fits this CPU, loads that one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch

from knnmt.errors import IgnoredSettingWarning, OldBuildWarning

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
    missed = [path.name for build in builds if (path := _HERE / f"knnmt-{build}.so").is_file() or build in named]
    if found is None and missed:
        warnings.warn(
            f"the compiled code ({', '.join(missed)}) is missing, belongs to other sources or does not load, so "
            "PyTorch does its work, several times as slowly; install knnmt again to build it: pip install -e .",
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
    except (OSError, AttributeError):  # not built, for another system, or another problem
        return None
    found.knnmt_search.restype = found.knnmt_cache_keep.restype = found.knnmt_product.restype = None
    found.knnmt_cache_look.restype = ctypes.c_int32
    found.knnmt_own_entries.restype = found.knnmt_own_prepare.restype = found.knnmt_own_search.restype = None
    found.knnmt_mix.restype = found.knnmt_decode.restype = found.knnmt_choose.restype = ctypes.c_bool
    found.knnmt_own_mix.restype = found.knnmt_own_mix_in_turn.restype = ctypes.c_bool
    of_own: list[Any] = [*[ctypes.c_void_p] * 2, *[ctypes.c_int32] * 3, ctypes.c_int64]
    found.knnmt_own_mix.argtypes = [*of_own, *[ctypes.c_void_p] * 5]
    in_turn: list[Any] = [*[ctypes.c_void_p] * 2, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64]
    found.knnmt_own_mix_in_turn.argtypes = [*in_turn, *[ctypes.c_void_p] * 8]
    found.knnmt_own_draft.argtypes = [*[ctypes.c_void_p] * 2, ctypes.c_int32, *[ctypes.c_void_p] * 7]
    found.knnmt_own_draft.restype = None
    found.knnmt_log_probabilities.restype = found.knnmt_best.restype = None
    found.knnmt_decode.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_int32]
    found.knnmt_ahead.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_int32]
    found.knnmt_passes.argtypes = [*[ctypes.c_void_p] * 7, ctypes.c_int32]
    found.knnmt_ahead.restype = found.knnmt_passes.restype = ctypes.c_int32
    found.knnmt_encode.argtypes = [
        *[ctypes.c_void_p] * 3,
        ctypes.c_int32,
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_int32,
    ]
    found.knnmt_encode.restype = ctypes.c_bool
    found.knnmt_source_attention.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int32,
        *[ctypes.c_void_p] * 2,
        ctypes.c_int32,
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_int32,
    ]
    found.knnmt_source_attention.restype = None
    found.knnmt_product.argtypes = found.knnmt_log_probabilities.argtypes = [
        *[ctypes.c_void_p] * 4,
        *[ctypes.c_int32] * 2,
    ]
    found.knnmt_best.argtypes = [*[ctypes.c_void_p] * 4, *[ctypes.c_int32] * 2, ctypes.c_int64, *[ctypes.c_int32] * 2]
    return found


def source_digest() -> str:
    """A digest of the sources. A build contains the digest of its own sources."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_HERE.glob("*.[ch]*")))).hexdigest()
