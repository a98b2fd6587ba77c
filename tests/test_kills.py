"""A thousand kills of all that writes: the store is as before or as after, and the next run leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT, TESTS

KILLS = int(os.environ.get("KNNMT_KILLS", "1000"))
PARTS = {  # of a hundred kills: less of what takes long
    "build": 15,
    "add": 17,
    "remove": 17,
    "replace": 17,
    "compact": 10,
    "merge": 7,
    "index": 9,
    "tune": 4,
    "adapt": 4,
}


def kill(command: str, checkpoint: Path, place: Path, kills: int) -> tuple[int, int]:
    """How many kills left a store as before, and how many as after."""
    paths = [str(ROOT / "src"), str(TESTS)]
    known = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    line = [sys.executable, "-m", "support.killing", command, str(checkpoint), str(place), str(kills), "0"]
    ran = subprocess.run(line, env=known, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    _, before, after, *_ = ran.stdout.split()
    return int(before), int(after)


@pytest.mark.soak
@pytest.mark.parametrize("command", PARTS)
def test_no_kill_leaves_a_state_that_is_neither(command: str, tiny_checkpoint: Path, tmp_path: Path) -> None:
    kills = max(1, KILLS * PARTS[command] // 100)
    assert sum(kill(command, tiny_checkpoint, tmp_path, kills)) >= kills
