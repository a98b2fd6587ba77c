"""Builds the compiled part of knnmt with the package, if there is a compiler.

It is built for the CPU of this machine. With KNNMT_BUILDS=all in the environment, it is built for each kind of CPU of
this architecture, such as for wheels.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path(__file__).parent / "src" / "knnmt"
NATIVE, GUARD = PACKAGE / "native", PACKAGE / "datastore"
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-pthread", "-w"]
V3, V4 = {"avx2", "bmi2", "fma", "f16c"}, {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# For each kind of CPU, the fastest build first: the compiler's options, and the features that a CPU must have.
BUILDS: dict[str, dict[str, tuple[list[str], set[str]]]] = {
    "x86_64": {
        "avx512amx": (
            ["-march=x86-64-v4", "-mavx512vnni", "-mamx-tile", "-mamx-int8"],
            {*V4, "avx512_vnni", "amx_tile", "amx_int8"},
        ),
        "avx512vnni": (["-march=x86-64-v4", "-mavx512vnni"], {*V4, "avx512_vnni"}),
        "avx512": (["-march=x86-64-v4"], V4),
        "avx2vnni": (["-march=x86-64-v3", "-mavxvnni"], {*V3, "avx_vnni"}),
        "avx2": (["-march=x86-64-v3"], V3),
    },
    "aarch64": {"neondot": (["-march=armv8.2-a+dotprod"], {"asimddp"}), "neon": ([], set())},
}


def compile_for(cpus: str) -> list[Path]:
    """The libraries that could be built, beside their sources.

    cpus: "this", or "all" of this architecture
    """
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    if platform.system() != "Linux" or shutil.which(compiler[0]) is None or not os.access(NATIVE, os.W_OK):
        return []
    kinds = [(NATIVE / f"knnmt-{name}.so", options) for name, options in builds_for(cpus).items()]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        made = workers.map(lambda kind: _made(*kind, compiler), [*kinds, (GUARD / "knnmt-guard.so", [])])
        return [target for target in made if target is not None]


def builds_for(cpus: str) -> dict[str, list[str]]:
    """The compiler's options for each build, by its name."""
    builds, features = BUILDS.get(platform.machine(), {}), _cpu_features()
    if cpus == "all":
        return {name: options for name, (options, _) in builds.items()}
    fitting = [(name, options) for name, (options, needed) in builds.items() if needed <= features]
    return dict(fitting[:1])


def _cpu_features() -> set[str]:
    """The features of this CPU, as Linux reports them."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    fields = [line.partition(":") for line in lines]
    return {feature for name, _, value in fields if name.strip() in ("flags", "Features") for feature in value.split()}


def _made(target: Path, flags: list[str], compiler: list[str]) -> Path | None:
    """One of the libraries, or None. One that is there already and made in this way of these sources is kept."""
    place = target.parent
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(place.glob("*.[ch]*")))).hexdigest()
    newer = target.exists() and target.stat().st_mtime > Path(__file__).stat().st_mtime
    if newer and digest.encode() in target.read_bytes():
        return target
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        linked = Path(scratch) / target.name
        options = [*FLAGS, *flags, f'-DKNNMT_SOURCE="{digest}"']
        sources = sorted(place.glob("*.cpp"))
        objects = [str(Path(scratch) / f"{source.stem}.o") for source in sources]
        compiling = zip(sources, objects, strict=True)
        steps = [
            *([*compiler, *options, "-c", str(source), "-o", compiled] for source, compiled in compiling),
            [*compiler, "-shared", "-pthread", "-o", str(linked), *objects],
        ]
        if any(subprocess.run(step, check=False, capture_output=True).returncode for step in steps):  # noqa: S603
            return None
        linked.replace(target)
        return target


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds what could be built to a wheel, which is then one of this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's own names
        """Called by hatchling before it makes a wheel, editable ones as well."""
        made = compile_for(os.environ.get("KNNMT_BUILDS", "this"))
        if not made:
            self.app.display_warning("knnmt goes without its compiled search: no C++ compiler made it for this machine")
            return
        root = Path(self.root)
        build_data["artifacts"] += [path.relative_to(root).as_posix() for path in made]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
