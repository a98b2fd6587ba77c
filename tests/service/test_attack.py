"""An attack on a service for ten minutes, which `make soak` runs; and that its verdict can be bad."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from attacking.honest import Record
from attacking.hostile import WAYS
from attacking.verdict import Observed, faults, memory_before_and_after, percentile
from support import ROOT

MINUTES = os.environ.get("KNNMT_ATTACK_MINUTES", "10")
MEMORY = [400e6, 480e6, *[500e6] * 8]


@pytest.mark.soak
def test_a_service_withstands_an_attack() -> None:
    command = [sys.executable, "tests/attack.py", "--minutes", MINUTES]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_there_are_as_many_attackers_as_the_pages_say() -> None:
    assert len(WAYS) == len({way.__name__ for way in WAYS}) == 16
    assert all(way.__doc__ for way in WAYS)


def test_a_service_that_withstood_has_no_faults() -> None:
    assert faults(Record(late=[0.0] * 98 + [1.9] * 2), Observed(MEMORY, ending=9.9)) == []
    assert faults(Record(undisturbed=[0.5], late=[0.0] * 98 + [2.4] * 2), Observed(MEMORY)) == []


@pytest.mark.parametrize(
    ("record", "seen", "says"),
    [
        (Record(), Observed(MEMORY), "no honest text was answered"),
        (Record(late=[0.1], lost=["503: busy"]), Observed(MEMORY), "1 honest texts were not answered, such as 503"),
        (Record(late=[0.1], swapped=["other"]), Observed(MEMORY), "1 answers were to other texts"),
        (Record(late=[0.1] * 98 + [2.1] * 2), Observed(MEMORY), "up to 2.10 s after their own decoding"),
        (Record(undisturbed=[0.5], late=[2.6]), Observed(MEMORY), "later than without hostile clients (0.50 s)"),
        (Record(late=[0.1]), Observed([*MEMORY[:-1], 530e6]), "memory grew from 500 to 530 MB"),
        (Record(late=[0.1]), Observed(MEMORY, ending=10.1), r"ended 10\.1 s after SIGTERM"),
    ],
)
def test_each_fault_is_found(record: Record, seen: Observed, says: str) -> None:
    [found] = faults(record, seen)
    assert says.replace("\\", "") in found


def test_an_answer_must_have_the_numbers_of_its_text() -> None:
    record = Record(alone={"form": 1.0})
    record.answer("form", (10_001, 7), 1.5, 200, '{"translations": [{"text": "Page 10001, 7"}]}')
    record.answer("form", (10_001, 7), 0.5, 200, '{"translations": [{"text": "Page 10002, 7"}]}')
    record.answer("form", (10_001, 7), 0.5, 503, '{"code": "ending"}')
    record.answer("form", (10_001, 7), 0.5, 200, '{"translations": [{"error": "damaged"}]}')
    assert (record.late, len(record.swapped), len(record.lost)) == ([0.5], 1, 2)


def test_answers_without_hostile_clients_are_counted_by_themselves() -> None:
    record = Record(late=[0.3])
    record.disturb()
    record.answer("form", (10_001, 7), 0.5, 200, '{"translations": [{"text": "Page 10001, 7"}]}')
    assert (record.undisturbed, record.late) == ([0.3], [0.5])


def test_memory_is_compared_when_caches_are_full() -> None:
    assert memory_before_and_after([*MEMORY[:2], 500e6, *[510e6] * 6, 520e6]) == (500e6, 520e6)
    assert percentile(list(map(float, range(1, 101))), 0.99) == 99
