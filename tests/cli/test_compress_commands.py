"""Reducing and pruning from the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from support import warm
from support.commands import fails, succeeds_silently
from support.made_stores import made_store, random_keys, random_values


def test_a_smaller_store_says_what_became_smaller(tmp_path: Path) -> None:
    made = made_store(tmp_path / "made.store", random_keys(56, 32), random_values(56)).path
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    reduced, pruned = tmp_path / "reduced.store", tmp_path / "pruned.store"
    said = succeeds_silently("reduce", made, "-o", reduced, "--dim", "8")
    assert f"reduced    {reduced}: 56 entries of 8 dimensions instead of 32" in said
    assert "% of the variance" in said
    assert "on disk    " in said
    said = succeeds_silently("prune", reduced, "-o", pruned, "--k", "3", "--seed", "5")
    assert f"pruned     {pruned}: 56 entries became " in said
    assert "% kept" in said
    assert succeeds_silently("verify", pruned).startswith("sound: 2 files")
    said = succeeds_silently("inspect", pruned)
    assert "transforms  pca:8, prune:k=3,seed=5" in said
    assert "of 8 dimensions" in said
    assert "sentences   14" in said
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before
    assert "already exists" in fails("prune", made, "-o", pruned)
    assert "dim must lie between 1 and the 8 dimensions" in fails("reduce", pruned, "-o", tmp_path / "x", "--dim", "9")
    assert "there is no datastore" in fails("reduce", tmp_path / "absent", "-o", tmp_path / "x", "--dim", "9")


def test_control_c_leaves_nothing(tmp_path: Path) -> None:
    store = made_store(tmp_path / "s", random_keys(40_000, 64), random_values(40_000))
    command = [sys.executable, "-m", "knnmt", "prune", str(store.path), "-o", str(tmp_path / "new")]
    with warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (tmp_path / "new.making" / "lock").exists():
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; no new store was made; rerun the command to start over" in said
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
