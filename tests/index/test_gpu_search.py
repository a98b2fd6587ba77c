"""The benchmark of search on a GPU runs; what it measures on a CPU means nothing."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from support.index_stores import clustered, write_store

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "gpu_search.py"


def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_store(tmp_path / "store", [clustered(3000)])
    options = f"--entries 2e3 --rows 3 --dim 32 --device cpu --block-mib 1 --store {store.path}"
    monkeypatch.setattr(sys, "argv", [str(BENCHMARK), *options.split()])
    runpy.run_path(str(BENCHMARK), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[2] for line in lines if line.startswith("| 2,000 |")] == ["exact", "clusters"]
    assert any(line.startswith("store, real text: 3,000 entries") for line in lines)
    assert lines[-1].startswith("| 3 |")
