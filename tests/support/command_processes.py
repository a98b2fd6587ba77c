"""`knnmt` as people use it: real processes, real pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import warm

_WITHOUT_TORCH = (
    "import sys, atexit; from knnmt.cli import main; "
    "atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr)); main()"
)


def knnmt(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    start = subprocess.run if environment else warm.run  # variables are read while Python starts
    return start(
        [sys.executable, "-m", "knnmt", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def lines(output: bytes) -> list[str]:
    return output.decode("utf-8").split("\n")[:-1]


def refused_at_once(*arguments: str | Path, stdin: Path | None = None) -> str:
    """What a command says that fails before anything of PyTorch is there, and writes nothing."""
    with (stdin or Path("/dev/null")).open("rb") as given:
        command = [sys.executable, "-c", _WITHOUT_TORCH, *map(str, arguments)]
        done = warm.run(command, stdin=given, capture_output=True, text=True, timeout=60, light=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("knnmt: error: ")
    assert done.stderr.endswith("\nFalse\n")
    return str(done.stderr)
