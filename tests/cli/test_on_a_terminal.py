"""Nothing that a memory holds acts on the terminal it is shown on: a real terminal, real processes."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.translator.translator import Translator
from support import warm

# The window's title, the clipboard, colours by a C1 control, a line painted over, a turned direction, half a character.
TRAP = "\x1b]0;own\x07\x1b]52;c;eA==\x1b\\\x9b31m\rx\u202ey\u2066\x08"
TAMED = "␛]0;own␇␛]52;c;eA==␛\\\\u009b31m␍x\\u202ey\\u2066␈"
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_DRAWN = re.compile("\x1b\\[[0-9;?]*[mKAhlJG]|\r(?=\x1b|$|\n)")  # what a bar and colours are made of


def on_a_terminal(*arguments: str | Path, stdin: bytes = b"", term: str = "dumb") -> tuple[int, str]:
    """The status of a command, and all that both of its outputs send to a terminal."""
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "knnmt", *map(str, arguments)]
    with warm.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": term, "COLUMNS": "300"},
    ) as process:
        os.close(terminal)
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        sent = b""
        with contextlib.suppress(OSError):  # a terminal that nobody writes to any more says so by an error
            while chunk := os.read(screen, 10_000):
                sent += chunk
        status = process.wait()
    os.close(screen)
    return status, sent.decode("utf-8").replace("\r\n", "\n")


def assert_tame(sent: str, seen: str = TAMED) -> None:
    assert seen in sent
    assert not _ACTING.search(_DRAWN.sub("", sent))


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / f"own{TRAP}.store"
    pairs = [SegmentPair(f"q {TRAP}", f"t {TRAP}", f"o{TRAP}#{n}") for n in range(2)]
    return Datastore.build(path, pairs, tiny).path


@pytest.mark.parametrize("options", [[], ["--entry", "1"], ["--search", "own"]])
def test_looking_into_a_store(store: Path, options: list[str]) -> None:
    status, sent = on_a_terminal("inspect", store, *options)
    assert status == 0
    assert_tame(sent)


def test_what_is_piped_from_there_is_tame_too(store: Path) -> None:
    command = [sys.executable, "-m", "knnmt", "inspect", str(store)]
    piped = warm.run(command, capture_output=True, text=True, check=True)
    assert_tame(piped.stdout)


def test_errors_lists_and_paths(store: Path, tmp_path: Path) -> None:
    status, sent = on_a_terminal("remove", store, "--match", "own", "--dry-run")
    assert status == 0
    assert_tame(sent)
    status, sent = on_a_terminal("inspect", tmp_path / f"nowhere{TRAP}")
    assert status == 1
    assert_tame(sent)
    status, sent = on_a_terminal("inspect", os.fsdecode(bytes(tmp_path) + b"/\xff\x9b"))
    assert status == 1
    assert_tame(sent, "\\udcff")
    memory = tmp_path / "own.xlf"
    memory.write_text(
        '<xliff version="1.2"><file source-language="&#x9b;31m" target-language="&#x202e;"><body><trans-unit id="1">'
        "<source>a</source><target>b</target></trans-unit></body></file></xliff>",
        encoding="utf-8",
    )
    status, sent = on_a_terminal("build", memory, "-o", tmp_path / "new")
    assert status == 1
    assert_tame(sent, "no shipped model translates from \\u009b31m to \\u202e")
    status, sent = on_a_terminal(f"--{TRAP}")
    assert status == 2
    assert_tame(sent, "No such option")


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_explanations(store: Path, tiny_checkpoint: Path, term: str) -> None:
    status, sent = on_a_terminal(
        "explain", "-d", store, "-m", tiny_checkpoint, "--full", "--max-tokens", "5", "q ", term=term
    )
    assert status == 0
    assert_tame(sent, "␛]0;own␇")


def test_translations_are_data_in_a_pipe_and_tame_on_a_terminal(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """A line of white space is its own translation, and to Python these are white space."""
    blank = "\x1c\x85\u2029"
    text = tmp_path / "in.txt"
    text.write_text(f"{blank}\n", encoding="utf-8")
    assert Translator(tiny_checkpoint, device="cpu").translate(blank).text == blank
    status, sent = on_a_terminal("translate", "-m", tiny_checkpoint, text)
    assert (status, sent) == (0, "␜\\u0085\\u2029\n")
    command = [sys.executable, "-m", "knnmt", "translate", "-m", str(tiny_checkpoint), str(text)]
    assert warm.run(command, capture_output=True, check=True).stdout.decode() == f"{blank}\n"


def test_warnings_while_a_bar_is_drawn(tiny_checkpoint: Path, tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("a \x1b]0;owned\x07 b\n", encoding="utf-8")
    status, sent = on_a_terminal(
        "translate", "-m", tiny_checkpoint, text, "-o", tmp_path / "out", "--max-tokens", "1", term="xterm"
    )
    assert status == 0
    assert "may be cut off: 'a \\x1b]0;owned\\x07 b'" in sent.replace("\n", "")
    assert_tame(sent, "translating")
