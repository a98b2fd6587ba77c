"""The demonstration: the whole story, without the package index and with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT


def demonstrate(place: Path, **environment: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), str(place)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def scores(said: str) -> list[tuple[float, float]]:
    """BLEU without and with the memory, for each direction."""
    values = [float(each) for each in re.findall(r"(?:the model alone|with the memory)   BLEU ([\d.]+)", said)]
    return list(zip(values[::2], values[1::2], strict=True))


@pytest.mark.soak
def test_without_the_package_index_the_story_is_that_of_our_own_memory(tmp_path: Path) -> None:
    said = demonstrate(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert "The package index cannot be reached" in said
    assert len(scores(said)) == 2
    assert all(adapted > alone + 10 for alone, adapted in scores(said))
    assert said.count("    reference  ") == 6
    assert len(re.findall(r"The model gives (?:under )?[\d.]+% and the memory (?:under )?[\d.]+%\. With λ", said)) == 2
    assert "memory.tsv#" in said
    for direction in ("en-de", "de-en"):
        assert (tmp_path / f"own-{direction}.store" / "manifest.json").exists()
        assert f"explain -d {tmp_path / f'own-{direction}.store'}" in said
    store = tmp_path / "own-de-en.store"
    assert f"translate -d {store}" in said
    assert f"serve --store own-de-en={store}" in said


@pytest.mark.soak
def test_the_story_of_real_catalogs(tmp_path: Path) -> None:
    said = demonstrate(tmp_path)
    assert "cannot be reached" not in said
    assert len(scores(said)) == 2
    assert all(adapted > alone + 2 for alone, adapted in scores(said))
    assert re.search(r"wagtail-5\.2\.8/wagtail/.*\.po#\d+", said)
    assert said.count("perplexity ") == 2
