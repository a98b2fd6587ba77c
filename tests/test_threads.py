"""The OpenMP of PyTorch and of FAISS are told how their idle threads wait, unless the environment says it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

SCRIPT = """
import os
from knnmt import Translator
from knnmt.index.faiss_index import load_faiss
load_faiss()
print(os.environ.get("GOMP_SPINCOUNT"), os.environ.get("OMP_WAIT_POLICY"))
"""


def spins(**told: str) -> tuple[list[str], str]:
    """What each OpenMP says when it is loaded, and what is left of it in the environment."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", **told}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    if "GOMP_SPINCOUNT" not in ran.stderr:
        pytest.skip("this OpenMP does not say how it waits")
    return re.findall(r"GOMP_SPINCOUNT = '(.*?)'", ran.stderr), ran.stdout.strip()


def test_threads_spin_a_little_and_then_sleep() -> None:
    assert spins() == (["1000", "0"], "None None")


def test_what_the_environment_says_holds() -> None:
    told, left = spins(OMP_WAIT_POLICY="ACTIVE")
    assert not {"1000", "0"} & set(told)
    assert left == "None ACTIVE"
