"""Domains whose stores do not fit into memory together."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_process import ask, served, when_it_listens

from knnmt.calibration.index_choice import memory_of_machine
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from support.datastore_pairs import some_pairs

NAMES = ["small", "second", "third"]


def mapped(process: int) -> set[str]:
    """The domains whose files a process has mapped."""
    lines = Path(f"/proc/{process}/maps").read_text(encoding="utf-8").splitlines()
    return {name for name in NAMES for line in lines if f"/{name}/segments/" in line}


def test_the_domain_not_used_for_longest_is_closed_and_opened_again(
    tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    first = Datastore.build(tmp_path / "small", some_pairs(1800), tiny).path
    stores = [first, *(shutil.copytree(first, tmp_path / name) for name in NAMES[1:])]
    size = sum(stored.bytes for stored in Datastore.open(first).manifest.files())
    assert size > 1 << 20, "smaller files are not mapped"
    for_two = -(-2 * size >> 20)
    assert for_two << 20 < 3 * size
    others = [f"--store={name}={store}" for name, store in zip(NAMES[1:], stores[1:], strict=True)]
    with served(tiny_checkpoint, first, *others, "--store-memory", str(for_two)) as (process, port):
        when_it_listens(port)

        def translate(name: str, text: str) -> str:
            status, answer = ask(port, "POST", f"/d/{name}/v1/translate", {"texts": [text], "beam": 1})
            assert status == 200
            found: str = answer["translations"][0]["text"]
            return found

        expected = translate("small", "Satz 3 neu")
        for name, open_then in (
            ("second", {"small", "second"}),
            ("third", {"second", "third"}),
            ("second", {"second", "third"}),
            ("small", {"second", "small"}),
            ("third", {"small", "third"}),
        ):
            assert translate(name, "Satz 3 neu") == expected
            assert mapped(process.pid) == open_then


@pytest.mark.parametrize(("written", "expected"), [("max\n", None), ("1048576\n", 1 << 20), (None, None)])
def test_the_memory_of_a_container_counts(tmp_path: Path, written: str | None, expected: int | None) -> None:
    if written is not None:
        (tmp_path / "memory.max").write_text(written, encoding="ascii")
    whole = memory_of_machine(tmp_path / "none")
    assert whole > 1 << 28
    assert memory_of_machine(tmp_path / "memory.max") == (expected or whole)
