"""What takes seconds to make, made by one process of a test run and copied by the others that pytest-xdist started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A directory with what `make` writes into it; this process owns it, so tests may change it.

    name: of what is made, the same in all processes, and not used for anything else
    """
    own = factory.getbasetemp()
    everyones = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    model, place = everyones / f"{name}.made", own / name
    with FileLock(everyones / f"{name}.lock"):
        if not model.exists():
            scratch = everyones / f"{name}.making"
            shutil.rmtree(scratch, ignore_errors=True)  # of a process that failed or died
            scratch.mkdir()
            make(scratch)
            scratch.rename(model)
    shutil.copytree(model, place)
    return place
