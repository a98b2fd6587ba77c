"""The builds of compiled code that this machine can run, slower ones as well."""

from __future__ import annotations

from knnmt import native

_BUILDS = {"avx512vnni": "avx512_vnni", "avx512": "avx512bw", "avx2vnni": "avx_vnni", "avx2": "avx2"}
_BUILDS |= {"neondot": "asimddp", "neon": "asimd"}


def builds_that_run() -> list[str]:
    flags = native._cpu_flags()
    return [name for name, flag in _BUILDS.items() if flag in flags and native.load(name) is not None]
