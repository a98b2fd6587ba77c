"""The compiled part of knnmt, where it could be built: `library()` loads what fits this CPU.

The sources beside this file are built when the package is installed (`hatch_build.py`), if there is a C++ compiler.
Nothing depends on them: without them, or with KNNMT_NATIVE=0 in the environment, FAISS and PyTorch do the same work in
more time.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from functools import cache
from pathlib import Path

import torch

_HERE = Path(__file__).parent


def fitting_build() -> str:
    """The name of the build for this CPU."""
    return {"AVX512": "avx512", "AVX2": "avx2"}.get(torch.backends.cpu.get_cpu_capability(), "neon")


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions, or None where there is no build of them that runs here."""
    return None if os.environ.get("KNNMT_NATIVE") == "0" else load(fitting_build())


def load(build: str) -> ctypes.CDLL | None:
    """One of the builds, or None where there is none, or only one of other sources."""
    try:
        # Its OpenMP is the one that PyTorch, imported above, brought.
        found = ctypes.CDLL(str(_HERE / f"knnmt-{build}.so"))
        found.knnmt_source.restype = ctypes.c_char_p
        if found.knnmt_source().decode() != source_digest():  # which may lack what is asked for below
            return None
    except (OSError, AttributeError):  # not built, for another system, without that OpenMP, or something else
        return None
    found.knnmt_search.restype = found.knnmt_cache_keep.restype = found.knnmt_product.restype = None
    found.knnmt_cache_look.restype = ctypes.c_int32
    found.knnmt_mix.restype = ctypes.c_bool
    found.knnmt_product.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_int32, *[ctypes.c_int64] * 2, ctypes.c_int32]
    return found


def source_digest() -> str:
    """What a build says it was made from."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_HERE.glob("*.[ch]*")))).hexdigest()
