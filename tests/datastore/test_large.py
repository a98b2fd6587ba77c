"""A store of 20 million entries takes no more memory, and a change of it no more time, than a small one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "large.py"


@pytest.mark.soak
def test_twenty_million_entries(tmp_path: Path, domain_data: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--entries", "1000000", "20000000", "--place", str(tmp_path)]
    environment = {**os.environ, "KNNMT_DATA": str(domain_data.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    told: dict[tuple[str, str, str], float] = {}
    for line in done.stdout.splitlines():
        size, step, name, value = (part.strip() for part in line.strip("|").split("|"))
        told[size.split(",")[0], step, name] = float(value.replace(",", ""))
    assert told["20", "verify", "problems"] == 0
    for step in ("translate", "change"):  # in MiB: some tens of bytes for each sentence, none for an entry
        assert told["20", step, "anonymous MiB"] < told["1", step, "anonymous MiB"] + 200
    for name in ("add a pair", "add a pair: seen", "remove by source", "remove by source: seen"):
        assert told["20", "change", f"{name} (CPU)"] < told["1", "change", f"{name} (CPU)"] + 0.2, name
    assert told["20", "translate", "ready to search (CPU)"] < 2
