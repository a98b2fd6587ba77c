"""The demonstration: the whole story, without the package index and with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT


def demonstrate(place: Path, **environment: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), str(place)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bleu(said: str) -> tuple[float, float]:
    alone, adapted = re.findall(r"(?:the model alone|with the memory)   BLEU ([\d.]+)", said)
    return float(alone), float(adapted)


@pytest.mark.soak
def test_without_the_package_index_the_story_is_that_of_our_own_memory(tmp_path: Path) -> None:
    said = demonstrate(tmp_path, PIP_NO_INDEX="1")
    assert "The package index cannot be reached" in said
    alone, adapted = bleu(said)
    assert adapted > alone + 10
    assert said.count("    reference  ") == 6
    assert re.search(r"The model gives (under )?[\d.]+% and the memory (under )?[\d.]+%\. With λ", said)
    assert "memory.tsv#" in said
    assert (tmp_path / "own.store" / "manifest.json").exists()
    assert f"translate -d {tmp_path / 'own.store'}" in said
    assert f"explain -d {tmp_path / 'own.store'}" in said
    assert f"serve --store own={tmp_path / 'own.store'}" in said


@pytest.mark.soak
def test_the_story_of_real_catalogs(tmp_path: Path) -> None:
    said = demonstrate(tmp_path)
    assert "cannot be reached" not in said
    alone, adapted = bleu(said)
    assert adapted > alone + 15
    assert re.search(r"(wagtail|django)/.*\.po#\d+", said)
    assert "perplexity " in said
