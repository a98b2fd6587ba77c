"""Building, changing and looking into a store from the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import warm
from support.commands import fails, succeeds_silently
from support.german import german_memory
from support.made_stores import made_store, random_keys, random_values

PAIRS = [
    ("Danke!", "Thank you!"),
    ("Die Datei wurde gespeichert.", "The file has been saved."),
    ("Die Datei wurde gelöscht.", "The file has been deleted."),
    ("Drucken", "Print"),
]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("memory") / "own.tsv"
    lines = [*PAIRS, ("", "empty"), ("Drucken", "Print")]
    path.write_text("".join(f"{source}\t{target}\n" for source, target in lines), encoding="utf-8")
    return path


@pytest.fixture
def store(memory: Path, tmp_path: Path) -> Path:
    succeeds_silently("build", memory, "-o", tmp_path / "own.store", "--drop-duplicates")
    return tmp_path / "own.store"


def test_a_store_from_building_to_export(memory: Path, tmp_path: Path) -> None:
    """The whole life of a store, as the help tells it."""
    store = tmp_path / "own.store"
    said = succeeds_silently("build", memory, "-o", store, "--drop-duplicates")
    assert "read       5 pairs from 1 file" in said
    assert "left out   1  empty source or target" in said
    assert "left out   1  duplicate" in said
    assert f"built      {store}: 4 sentences, " in said
    assert "entries of 320 dimensions" in said

    said = succeeds_silently("inspect", store)
    assert "model       de-en" in said
    assert "sentences   4" in said
    assert f"origin      {memory}: 4 sentences" in said
    assert said.count("entry ") >= 5
    assert "«" in said
    assert succeeds_silently("inspect", store, "--entry", "0") == (
        f"entry 0: token 1 of 4, from {memory}#1\n  source  Danke!\n  target  «Thank» you!\n"
    )
    assert "«end»" in succeeds_silently("inspect", store, "--entry", "3")
    found = succeeds_silently("inspect", store, "--search", "Datei")
    assert found.count("source  Die Datei wurde") == 2
    assert "and 1 more" in succeeds_silently("inspect", store, "--search", "Datei", "--limit", "1")

    corrections = tmp_path / "corrections.tsv"
    corrections.write_text("Abbrechen\tCancel\n", encoding="utf-8")
    said = succeeds_silently("add", store, corrections)
    assert "added      1 sentence" in said
    assert "store      5 sentences" in said

    would = succeeds_silently("remove", store, "--match", "Datei", "--dry-run")
    assert "would remove 2 sentences" in would
    assert "no sentence matches; nothing was removed" in fails("remove", store, "--origin", "Datei")
    assert "removed    2 sentences, " in succeeds_silently("remove", store, "--match", "Datei")
    assert "removed    1 sentence" in succeeds_silently("remove", store, "--origin", f"{memory}#1")
    assert "removed     " in succeeds_silently("inspect", store)
    assert "2 sentences" in succeeds_silently("compact", store)
    assert succeeds_silently("verify", store).startswith("sound: 1 file,")

    for name in ("out.tmx", "out.tsv"):
        assert "wrote 2 pairs" in succeeds_silently("export", store, "-o", tmp_path / name)
    assert (tmp_path / "out.tsv").read_text(encoding="utf-8") == (
        f"Drucken\tPrint\t{memory}#4\nAbbrechen\tCancel\t{corrections}#1\n"
    )
    for name, options in (("out.tmx", []), ("out.tsv", ["--origin-column", "3"])):
        again = tmp_path / f"again-{name}"
        succeeds_silently("build", tmp_path / name, "-o", again, *options)
        assert f"from {memory}#4" in succeeds_silently("inspect", again, "--entry", "0")


def test_mistakes_are_explained(store: Path, memory: Path, tmp_path: Path) -> None:
    assert "already exists" in fails("build", memory, "-o", store)
    assert "there is no datastore" in fails("inspect", tmp_path / "absent")
    assert "give an origin, a source text" in fails("remove", store)
    assert "ends in .tmx or .tsv" in fails("export", store, "-o", tmp_path / "out.docx")
    assert "does not exist; the store has entries" in fails("inspect", store, "--entry", "99999")
    assert "dtype must be one of float16, float32" in fails("build", memory, "-o", tmp_path / "x", "--dtype", "int8")
    broken = tmp_path / "broken.tsv"
    broken.write_text("Ja\tYes\nohne Spalte\n", encoding="utf-8")
    assert "broken.tsv" in fails("build", broken, "-o", tmp_path / "y")
    said = succeeds_silently("build", broken, "-o", tmp_path / "y", "--skip-malformed", "--restart")
    assert "malformed  1 unit," in said
    segment = next((store / "segments").iterdir())
    segment.write_bytes(segment.read_bytes()[:-1] + b"\x00")
    assert "its bytes were altered" in fails("verify", store)


def test_control_c_and_the_same_command_again(
    tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "large.tsv"
    memory.write_text("".join(f"Satz {n}\tsentence number {n}\n" for n in range(600)), encoding="utf-8")
    store = tmp_path / "large.store"
    command = ["build", str(memory), "-o", str(store), "--model", str(tiny_checkpoint)]
    monkeypatch.setattr("knnmt.datastore.slices.SLICE_ENTRIES", 1_200)
    code = "from knnmt.datastore import slices; from knnmt.cli import main; slices.SLICE_ENTRIES = 1_200; main()"
    with warm.Popen([sys.executable, "-c", code, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 200
        segments = store.with_name("large.store.building") / "segments"
        while time.monotonic() < deadline and not (segments.is_dir() and list(segments.glob("*.sha256"))):
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in stderr
    assert b"interrupted; rerun the command; it resumes" in stderr
    assert not store.exists()
    said = succeeds_silently(*command)
    assert "continued  " in said
    assert "600 sentences" in said


@pytest.mark.parametrize("command", [["inspect"], ["verify"], ["compact"], ["remove", "--origin", "*", "--dry-run"]])
def test_looking_into_a_store_does_not_wait_for_torch(tmp_path: Path, command: list[str]) -> None:
    code = (
        "import sys, atexit; from knnmt.cli import main; atexit.register(lambda: print('torch' in sys.modules)); main()"
    )
    verb, *options = command
    store = made_store(tmp_path / "store", random_keys(60, 8), random_values(60)).path
    arguments = [sys.executable, "-c", code, verb, str(store), *options]
    done = warm.run(arguments, capture_output=True, text=True, timeout=60, light=True)
    assert done.stdout.endswith("False\n")
    assert done.returncode == 0, done.stderr


def test_a_memory_the_other_way_round_is_said(tmp_path: Path) -> None:
    """Once, in a line, though the memory is read more than once; and of text to translate, too."""
    memory, text = tmp_path / "own.tsv", tmp_path / "text.txt"
    pairs = german_memory(40)
    memory.write_text("".join(f"{pair.target}\t{pair.source}\n" for pair in pairs), encoding="utf-8")
    text.write_text("".join(f"{pair.target}\n" for pair in pairs), encoding="utf-8")
    python = [sys.executable, "-m", "knnmt"]
    command = [*python, "adapt", str(memory), "-m", "de-en", "-o", str(tmp_path / "own.store"), "--sample", "0"]
    done = warm.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        f"knnmt: warning: {memory}: the sources look English and the targets look German, but de to en was requested. "
        "Are its sides swapped? --source-column 2 --target-column 1 swaps them\n"
    )
    command = [*python, "translate", str(text), "-d", str(tmp_path / "own.store"), "--beam", "1"]
    done = warm.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "knnmt: warning: the text looks English, but it is translated from de\n" in done.stderr
