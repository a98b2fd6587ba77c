"""The command line as people use it: real processes, real pipes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from knnmt import Translator, __version__
from knnmt.engine.shipped import MODELS_DIRECTORY
from support import warm
from support.command_processes import knnmt, lines
from support.german import german_sentences


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["models"], ["translate", "--help"], ["explain", "--help"], []]
)
def test_help_and_listings_do_not_wait_for_torch(arguments: list[str]) -> None:
    code = (
        "import sys, atexit; from knnmt.cli import main; atexit.register(lambda: print('torch' in sys.modules)); main()"
    )
    done = warm.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, light=True)
    assert done.stdout.endswith("False\n")
    assert "knnmt" in done.stdout + done.stderr


def test_the_list_of_commands_cuts_no_sentence_short() -> None:
    listing = knnmt("--help").stdout.decode()
    assert "\n  train-gate  " in listing
    assert "..." not in listing.partition("Commands:")[2]


def test_version_and_models() -> None:
    assert knnmt("--version").stdout.decode() == f"knnmt {__version__}\n"
    listing = knnmt("models").stdout.decode()
    assert "de-en, from de to en\n" in listing
    assert "en-de, from en to de\n" in listing
    assert listing.count("12,000 tokens, 33 MB") == 2
    for name in ("de-en", "en-de"):
        assert f"{MODELS_DIRECTORY / name / 'README.md'} is its card" in listing
    assert "--model DIRECTORY" in listing


def test_standard_input_to_standard_output_line_by_line() -> None:
    texts = ["Guten Morgen! Wie geht es Ihnen?", "", "Die Größe ist 3 m.", "   "]
    done = knnmt("translate", stdin="\r\n".join(texts).encode() + b"\n", LC_ALL="C")
    assert done.returncode == 0
    translator = Translator(device="cpu")
    assert lines(done.stdout) == [each.text for each in translator.translate(texts, split_sentences=True)]
    assert lines(done.stdout)[1] == ""
    assert lines(done.stderr) == ["knnmt: de-en, from de to en: the text looks German"]


def test_files_in_order_into_an_output_file(tmp_path: Path) -> None:
    texts = german_sentences(6)
    first, second, out = tmp_path / "a.txt", tmp_path / "b c.txt", tmp_path / "out.txt"
    first.write_text("\n".join(texts[:4]), encoding="utf-8")
    second.write_text("\n".join(texts[4:]), encoding="utf-8")
    done = knnmt(
        "translate", first, second, "--output", out, "--beam", "1", "--batch-size", "2", "--no-split-sentences"
    )
    assert (done.returncode, done.stdout) == (0, b"")
    expected = Translator(device="cpu").translate(texts, beam=1)
    assert lines(out.read_bytes()) == [each.text for each in expected]


def test_a_line_without_a_translation_keeps_its_place_and_is_named(overflowing_checkpoint: Path) -> None:
    stdin = "Satz 4\naßc\nGuten Tag\n".encode()
    command = ["translate", "--model", str(overflowing_checkpoint), "--device", "cpu"]
    sound = lines(knnmt(*command, stdin=b"Satz 4\nGuten Tag\n").stdout)
    assert all(sound)
    done = knnmt(*command, stdin=stdin)
    assert done.returncode == 1
    assert lines(done.stdout) == [sound[0], "", sound[1]]
    (said,) = [line for line in lines(done.stderr) if "line" in line]
    assert said.startswith("knnmt: error: line 2: no translation of 'aßc': ")
    assert b"Traceback" not in done.stderr
    objects = [json.loads(line) for line in lines(knnmt(*command, "--jsonl", stdin=stdin).stdout)]
    assert ["error" in each for each in objects] == [False, True, False]
    assert objects[1] == {
        "source": "aßc",
        "text": "",
        "kind": None,
        "score": None,
        "complete": False,
        "tokens": [],
        "error": said.removeprefix("knnmt: error: line 2: "),
    }


def test_scores_n_best_and_json_lines() -> None:
    stdin = b"Danke!\nJa.\n"
    expected = Translator(device="cpu").translate(["Danke!", "Ja."], n_best=2)
    ranked = [(i, each) for i, best in enumerate(expected, 1) for each in (best, *best.alternatives)]
    plain = knnmt("translate", "--n-best", "2", "--scores", stdin=stdin)
    assert lines(plain.stdout) == [f"{i}\t{each.score:.4f}\t{each.text}" for i, each in ranked]
    objects = [json.loads(line) for line in lines(knnmt("translate", "--n-best", "2", "--jsonl", stdin=stdin).stdout)]
    assert [each["source"] for each in objects] == ["Danke!", "Ja."]
    assert objects[0]["text"] == expected[0].text
    assert objects[0]["tokens"] == ["▁Thank", "▁you", "!", "</s>"]
    assert objects[1]["alternatives"][0]["text"] == expected[1].alternatives[0].text
    assert objects[0]["score"] == pytest.approx(expected[0].score, abs=1e-5)


def test_timings_say_where_the_time_went(tiny_checkpoint: Path) -> None:
    done = knnmt("translate", "-m", tiny_checkpoint, "--timings", "--threads", "1", stdin=b"ja\n")
    assert lines(done.stdout) == [Translator(tiny_checkpoint, device="cpu").translate("ja", protect=True).text]
    for stage in (b"import", b"loading", b"encoder", b"decoder", b"output", b"beam", b"total"):
        assert stage in done.stderr


def test_mistakes_are_explained_without_a_traceback(tmp_path: Path) -> None:
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"gut\nM\xfcller\n")
    cases = [
        (("translate", latin), "latin.txt, line 2: expected UTF-8, found byte 0xfc"),
        (("translate", tmp_path / "absent.txt"), "no such file"),
        (("translate", "--model", "./absent"), "no such directory"),
        (("translate", "--n-best", "9"), "add --beam 9"),
        (("translate", latin, "--output", latin), "its text would be lost"),
        (("translate", "--output", tmp_path / "absent" / "x"), "cannot be written"),
        (("translate", "--dtype", "float8"), "use one of float32"),
    ]
    for arguments, message in cases:
        done = knnmt(*arguments, stdin=b"Ja.\n")
        assert done.returncode == 1
        assert lines(done.stderr)[-1].startswith("knnmt: error: ")
        assert message in done.stderr.decode()
        assert b"Traceback" not in done.stderr
    assert latin.read_bytes() == b"gut\nM\xfcller\n"


def test_pipes_are_read_once_and_what_is_read_is_never_overwritten(tmp_path: Path, tiny_checkpoint: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("Ja.\n", encoding="utf-8")
    tiny = ["--model", str(tiny_checkpoint)]
    command = [sys.executable, "-m", "knnmt", "translate", *tiny]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with warm.Popen([*command, str(pipe)], stdout=subprocess.PIPE) as reading:
        pipe.write_text("Ja.\n", encoding="utf-8")
        assert len(reading.communicate(timeout=60)[0].splitlines()) == 1
    with text.open("rb") as given:
        same = warm.run([*command, "-o", str(text)], stdin=given, capture_output=True, text=True)
    assert "its text would be lost" in same.stderr
    assert knnmt("translate", text, "-o", tmp_path / "old.txt", "--beam", "1", *tiny).returncode == 0
    before = (tmp_path / "old.txt").read_bytes()
    assert knnmt("translate", text, "-o", tmp_path / "old.txt", "--model", "./typo").returncode == 1
    assert (tmp_path / "old.txt").read_bytes() == before
    with Path("/dev/full").open("wb") as output:
        full = warm.run([*command, str(text)], stdout=output, stderr=subprocess.PIPE, text=True)
    assert "the output cannot be written: No space left" in full.stderr


def test_a_memory_is_built_and_translated_with(tmp_path: Path) -> None:
    """As the help tells it, in processes of their own, with the shipped model."""
    memory, store = tmp_path / "own.tsv", tmp_path / "own.store"
    pairs = [
        ("Der Hauptschalter befindet sich an der Rückseite.", "The grand lever sits at the stern."),
        ("Die Anzeige leuchtet grün.", "The glimmer shines verdant."),
        ("Die Anzeige blinkt rot.", "The glimmer pulses crimson."),
        ("Drücken Sie die Taste.", "Kindly depress the knob."),
    ]
    memory.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    built = knnmt("build", memory, "-o", store)
    assert b"settings   k:8|" in built.stdout
    done = knnmt(
        "translate",
        "-d",
        store,
        "--lambda",
        "0.7",
        "--temperature",
        "9",
        stdin="\n".join(pair[0] for pair in pairs).encode(),
    )
    assert done.stderr == b""
    assert lines(done.stdout) == [target for _, target in pairs]
    missing = knnmt("translate", "-d", tmp_path / "absent", stdin=b"Ja.\n")
    assert missing.returncode == 1
    assert missing.stderr.decode().startswith("knnmt: error: ")
    assert b"there is no datastore" in missing.stderr


def test_a_long_line_is_translated_in_parts_and_said(tiny_checkpoint: Path) -> None:
    text = ", ".join(sentence.rstrip(".!") for sentence in german_sentences(5))
    done = knnmt("translate", "-m", tiny_checkpoint, "--beam", "1", stdin=text.encode())
    assert done.returncode == 0
    assert len(lines(done.stdout)) == 1
    assert b"knnmt: warning: a segment of" in done.stderr


def test_a_bar_is_drawn_on_a_terminal_and_only_there(tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("Ja.\nNein.\n", encoding="utf-8")
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "knnmt", "translate", str(source)]
    with warm.Popen(command, stdout=subprocess.PIPE, stderr=terminal, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(terminal)
        drawn = ""
        with contextlib.suppress(OSError):  # a terminal that nobody writes to any more says so by an error
            while chunk := os.read(screen, 1000):
                drawn += chunk.decode("utf-8", errors="replace")
        stdout, _ = process.communicate()
    os.close(screen)
    assert "translating" in drawn
    assert "0/2" in drawn
    assert len(lines(stdout)) == 2
    assert "translating" not in stdout.decode()


def test_control_c_ends_cleanly_with_what_is_done_written(tmp_path: Path) -> None:
    source, out, unfinished = tmp_path / "in.txt", tmp_path / "out.txt", tmp_path / "out.txt.unfinished"
    source.write_text("Das ist ein Satz.\n" * 30_000, encoding="utf-8")
    out.write_text("old\n", encoding="utf-8")
    command = [sys.executable, "-m", "knnmt", "translate", str(source), "--output", str(out)]
    with warm.Popen(command, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 90
        while (not unfinished.exists() or unfinished.stat().st_size == 0) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out.read_text(encoding="utf-8") == "old\n"
    assert f"the finished lines are in {unfinished}; {out} is unchanged" in stderr.decode()
    written = unfinished.read_text(encoding="utf-8")
    assert written.endswith("\n")
    done = written.count("\n")
    assert 0 < done < 30_000
    assert f"interrupted; {done} of 30000 lines are translated and written" in stderr.decode()


def test_lines_of_all_lengths_are_counted_as_they_are_done_and_written_in_their_turn(tmp_path: Path) -> None:
    """Within the first window: the bar moves, the first lines are there, and Ctrl-C says what became of the rest."""
    texts = german_sentences(320)
    texts[1::2] = ["Ja."] * 160
    source, out, unfinished = tmp_path / "in.txt", tmp_path / "out.txt", tmp_path / "out.txt.unfinished"
    source.write_text("\n".join(texts), encoding="utf-8")
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "knnmt", "translate", str(source), "--output", str(out), "--beam", "1"]
    with warm.Popen(command, stderr=terminal, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(terminal)
        drawn, asked = "", False
        with contextlib.suppress(OSError):
            while chunk := os.read(screen, 1000):
                drawn += chunk.decode("utf-8", errors="replace")
                if not asked and unfinished.exists() and unfinished.stat().st_size and max(_counted(drawn)) > 64:
                    process.send_signal(signal.SIGINT)
                    asked = True
    os.close(screen)
    assert asked
    assert process.returncode == 130
    said = " ".join(drawn.split())
    match = re.search(
        r"interrupted; (\d+) of 320 lines are translated and written knnmt: (\d+) more were translated", said
    )
    assert match
    written = unfinished.read_text(encoding="utf-8")
    assert written.endswith("\n")
    assert written.count("\n") == int(match[1])
    assert 64 < int(match[1]) + int(match[2]) < 320
    first = Translator(device="cpu").translate(texts[:2], split_sentences=True, beam=1)
    assert written.split("\n")[:2] == [each.text for each in first][: written.count("\n")]


def _counted(drawn: str) -> list[int]:
    return [0, *(int(count) for count in re.findall(r"(\d+)/320", drawn))]


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("Ja.\n" * 9000, encoding="utf-8")
    command = [sys.executable, "-m", "knnmt", "translate", "--model", "de-en", "--beam", "1"]
    with (
        text.open("rb") as given,
        warm.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 141
    assert said == b""
