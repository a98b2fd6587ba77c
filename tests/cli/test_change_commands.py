"""Removing from a store and replacing in it: what is meant is found, and nobody loses a store by a slip."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import sys
from pathlib import Path

import pytest

from knnmt import Datastore
from knnmt.engine.transformer import TransformerEngine
from support import warm
from support.commands import completed, fails, succeeds_silently
from support.datastore_pairs import some_pairs


@pytest.fixture(scope="module")
def made(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pairs = [*some_pairs(8, "/daten/kunde/memory.tsv"), *some_pairs(4, "glossar.tmx", start=20)]
    return Datastore.build(tmp_path_factory.mktemp("made") / "own.store", pairs, tiny).path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "own.store")


def sentences(store: Path) -> int:
    return len(list(Datastore.open(store).pairs()))


def test_a_file_is_removed_by_its_name_and_a_unit_by_name_and_number(store: Path) -> None:
    said = succeeds_silently("remove", store, "--origin", "memory.tsv#3")
    assert "removed    1 sentence, " in said
    assert "           1 of /daten/kunde/memory.tsv\n" in said
    assert f"on disk    removed text stays until `knnmt compact {store}`\n" in said
    assert "removed    4 sentences, " in succeeds_silently("remove", store, "--origin", "glossar.*")
    assert "would remove 7 sentences\n" in succeeds_silently("remove", store, "--origin", "memory.tsv", "--dry-run")
    assert sentences(store) == 7


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--yes"]])
def test_where_nothing_fits_close_names_are_said_and_the_status_is_1(store: Path, more: list[str]) -> None:
    said = fails("remove", store, "--origin", "memmory.tsv", *more)
    assert "no sentence matches; nothing was removed. Close to it: memory.tsv" in said
    assert f"`knnmt inspect {store}` lists its files" in said
    assert "Close to it: 'Satz 3 ja ja ja '." in fails("remove", store, "--source-text", "satz 3 ja ja ja", *more)
    assert "Close to it" not in fails("remove", store, "--match", "nirgends", *more)
    assert sentences(store) == 12


def test_more_than_half_of_a_store_does_not_go_by_a_slip(store: Path) -> None:
    said = fails("remove", store, "--origin", "memory.tsv")
    assert "would remove 8 of 12 sentences, more than half of the store: add --yes to do so" in said
    assert sentences(store) == 12
    assert "removed    8 sentences, " in succeeds_silently("remove", store, "--origin", "memory.tsv", "--yes")
    assert "removed    2 sentences, " in succeeds_silently("remove", store, "--match", "line 2[01]")  # half of the four


@pytest.mark.parametrize(("answer", "status", "left"), [(b"y\n", 0, 4), (b"n\n", 1, 12), (b"\n", 1, 12)])
def test_on_a_terminal_it_asks(store: Path, answer: bytes, status: int, left: int) -> None:
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "knnmt", "remove", str(store), "--origin", "memory.tsv"]
    with warm.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # a terminal that nobody writes to any more says so by an error
            while chunk := os.read(screen, 1000):
                shown += chunk
                if b"[y/N]" in shown and answer:
                    os.write(screen, answer)
                    answer = b""
    os.close(screen)
    assert f"Remove 8 of 12 sentences of {store}?" in shown.decode()
    assert process.returncode == status
    assert sentences(store) == left
    assert ("nothing was removed" in shown.decode()) == (status == 1)


def test_corrections_take_the_place_of_what_has_their_source(
    store: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    corrections = tmp_path / "korrekturen.tsv"
    corrections.write_text("Satz 3 ja ja ja\tthe third\nSatz 0\tline 0\nNeu\tNew\n", encoding="utf-8")
    model = ["--model", str(tiny_checkpoint)]
    said = succeeds_silently("replace", store, corrections, "--known-only", *model)
    assert "removed    1 sentence, " in said
    assert "put in     1 sentence, " in said
    assert "unchanged  1 pair that the store already held\n" in said
    assert "new        1 pair with sources that were not in the store, left out:\n" in said
    assert f"           {corrections}#3  Neu\n" in said
    assert "store      12 sentences, " in said
    assert f"until `knnmt compact {store}`" in said
    targets = {" ".join(pair.source.split()): pair.target for pair in Datastore.open(store).pairs()}
    assert targets["Satz 3 ja ja ja"] == "the third"
    assert "Neu" not in targets
    said = succeeds_silently("replace", store, corrections, *model)
    assert "put in     1 sentence, " in said
    assert "new        1 pair with sources that were not in the store:\n" in said
    assert "until" not in said
    assert sentences(store) == 13
    corrections.write_text("", encoding="utf-8")
    assert "found none" in fails("replace", store, corrections, *model)


def test_a_search_without_a_hit_says_so(store: Path) -> None:
    done = completed("inspect", store, "--search", "satz 3")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"no sentence of {store} contains 'satz 3'; 1 would match if case were ignored\n"
    assert completed("inspect", store, "--search", "nirgends").stderr == f"no sentence of {store} contains 'nirgends'\n"
    assert completed("inspect", store, "--search", "Satz 3", "--limit", "1").returncode == 0
