"""The fuzzer itself: it makes the same cases again, and finds what is there to be found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import islice
from math import inf
from pathlib import Path
from random import Random

import pytest

from fuzzing.cases import make_case
from fuzzing.mutations import change_arrays, change_json
from fuzzing.running import fuzz, replay, tried
from knnmt.corpus import reading
from knnmt.errors import SettingError
from support import ROOT


def test_a_seed_makes_the_same_cases(tmp_path: Path) -> None:
    made = []
    for turn in ("a", "b"):
        for number in range(40):
            place = tmp_path / turn / str(number)
            place.mkdir(parents=True)
            make_case(Random(f"7-{number}"), place, [])
        files = sorted(path for path in (tmp_path / turn).rglob("*") if path.is_file())
        made.append([(path.relative_to(tmp_path / turn), path.read_bytes()) for path in files])
    assert made[0] == made[1]
    assert len({content for _, content in made[0]}) > 30


def test_records_and_arrays_become_others() -> None:
    changed = [change_json(Random(seed), {"a": [1, 2.0, "x"], "b": {"file": "y"}}) for seed in range(60)]
    assert len({repr(each) for each in changed}) > 40
    header = b'{"k":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}  '
    content = len(header).to_bytes(8, "little") + header + bytes(8)
    assert len({change_arrays(Random(seed), content) for seed in range(60)}) > 15


def use_much_memory() -> None:
    bytearray(3 << 30)


def test_a_child_shows_every_way_to_fail() -> None:
    for use, expected in (
        (lambda: [].pop(), "IndexError in "),
        (use_much_memory, "MemoryError in "),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV"),
        (lambda: [time.process_time() for _ in iter(int, 1)], "more than 1 s"),
    ):
        found = tried(use, seconds=1)
        assert found is not None
        assert found.what.startswith(expected)
    assert tried(lambda: None) is None


def test_a_reader_that_fails_is_found_kept_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = 29  # whose cases 2 and 4 are PO
    cases = fuzz(seed, inf, [], None, tmp_path / "none")
    assert {found for _, found in islice(cases, 6)} == {None}
    with monkeypatch.context() as patched:
        patched.setitem(reading._READERS, "po", lambda *_: [][1])
        findings = (found for _, found in fuzz(seed, inf, [], None, tmp_path / "kept") if found)
        seen = [found.what for found in islice(findings, 2)]
        assert set(seen) == {seen[0]}
        assert seen[0].startswith("IndexError in ")
        (kept,) = (tmp_path / "kept").iterdir()
        again = replay(kept, None)
        assert again is not None
        assert again.what == seen[0]
    assert replay(kept, None) is None


def test_errors_of_our_own_outside_a_use_are_findings() -> None:
    def fail() -> None:
        raise SettingError("x")

    assert tried(fail) is not None


@pytest.mark.soak
def test_two_minutes_find_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "tests/fuzz.py", "--minutes", "2", "--findings", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
