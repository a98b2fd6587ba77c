"""Files that users name: the old one stays whole until the new one is complete, whatever ends the writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from knnmt.errors import StorageError
from knnmt.output_files import UNFINISHED, replacing, write_output
from support import warm

TRANSLATE = [sys.executable, "-m", "knnmt", "translate"]
SENTENCES = b"Ja.\nNein.\n"


def translating(checkpoint: Path, output: Path) -> warm.Popen:
    """A translation of standard input, line by line."""
    command = [*TRANSLATE, "--model", str(checkpoint), "--window", "1", "-o", str(output)]
    return warm.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)


@contextmanager
def half_done(checkpoint: Path, output: Path) -> Iterator[warm.Popen]:
    """A translation that has written some lines and waits for more."""
    left = output.with_name(output.name + UNFINISHED)
    with translating(checkpoint, output) as running:
        assert running.stdin is not None
        running.stdin.write(SENTENCES * 3)
        until = time.monotonic() + 60
        while not (left.exists() and left.stat().st_size):
            assert running.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        yield running


def test_a_killed_translation_leaves_the_old_output_whole(tmp_path: Path, tiny_checkpoint: Path) -> None:
    output = tmp_path / "out.txt"
    output.write_text("old\n")
    with half_done(tiny_checkpoint, output) as running:
        with translating(tiny_checkpoint, output) as second:
            refused = second.communicate(SENTENCES, timeout=60)[1]
        assert f"{output}: another command is writing this file".encode() in refused
        assert (second.returncode, b"the finished lines" in refused) == (1, False)
        os.kill(running.pid, signal.SIGKILL)
        running.wait(60)
        assert output.read_text() == "old\n"
    with translating(tiny_checkpoint, output) as again:
        again.communicate(SENTENCES, timeout=60)
    assert again.returncode == 0
    assert output.read_text().count("\n") == 2
    assert list(tmp_path.iterdir()) == [output]


def test_two_translations_of_a_document_to_one_output_do_not_mix(tmp_path: Path, tiny_checkpoint: Path) -> None:
    from knnmt.documents.kept import Kept

    given, output = tmp_path / "film.de.srt", tmp_path / "film.en.srt"
    given.write_text("1\n00:00:01,000 --> 00:00:02,000\nJa.\n")
    command = [*TRANSLATE, "--model", str(tiny_checkpoint), str(given), "-o", str(output)]
    with Kept(output, "another run"):
        refused = warm.run(command, capture_output=True, text=True)
    assert f"{output}: another command is writing this file" in refused.stderr
    assert (refused.returncode, output.exists()) == (1, False)
    done = warm.run(command, capture_output=True, text=True)
    assert (done.returncode, output.exists()) == (0, True), done.stderr


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    secret, link = tmp_path / "there" / "secret.txt", tmp_path / "link.txt"
    secret.write_text("old")
    secret.chmod(0o640)
    link.symlink_to(secret)
    with replacing(link) as file:
        file.write(b"new")
        file.flush()
        unfinished = secret.with_name(secret.name + UNFINISHED)
        assert unfinished.stat().st_mode & 0o777 == 0o640
        assert secret.read_text() == "old"
    assert link.is_symlink()
    assert secret.read_text() == "new"
    assert secret.stat().st_mode & 0o777 == 0o640
    assert list(secret.parent.iterdir()) == [secret]


def test_what_is_left_after_an_error(tmp_path: Path) -> None:
    def fail(keep: bool, content: bytes) -> None:
        with replacing(tmp_path / "out", keep_unfinished=keep) as file:
            file.write(content)
            raise KeyError

    for keep, count in ((False, 0), (True, 1)):
        with pytest.raises(KeyError):
            fail(keep, b"some")
        assert len(list(tmp_path.iterdir())) == count
    with pytest.raises(KeyError):
        fail(True, b"")
    assert not list(tmp_path.iterdir())  # nothing was written


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content: list[bytes] = []
    reader = threading.Thread(target=lambda: content.append(pipe.read_bytes()))
    reader.start()
    write_output(pipe, b"through")
    reader.join(60)
    assert content == [b"through"]
    assert list(tmp_path.iterdir()) == [pipe]
    write_output(Path(os.devnull), b"away")


def test_what_is_already_in_the_file_behind_a_stream_stays(tmp_path: Path) -> None:
    code = "import sys; from knnmt.output_files import *; write_output(Path('/dev/stdout'), b'second')"
    with (tmp_path / "all.txt").open("wb") as file:
        file.write(b"first\n")
        file.flush()
        done = warm.run([sys.executable, "-c", code], stdout=file, light=True)
    assert done.returncode == 0
    assert (tmp_path / "all.txt").read_bytes() == b"first\nsecond"


def _directory(path: Path) -> None:
    path.mkdir()


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _link_in_the_way(path: Path) -> None:
    (path.parent / "elsewhere").write_text("stays")
    path.with_name(path.name + UNFINISHED).symlink_to(path.parent / "elsewhere")


def _file_of_another(path: Path) -> None:
    unfinished = path.with_name(path.name + UNFINISHED)
    unfinished.touch()
    try:
        os.chown(unfinished, 12345, 12345)
    except PermissionError:
        pytest.skip("only the administrator can make a file of another user")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (_directory, "expected the name of a file, found a directory"),
        (_loop, "cannot be written: Too many levels of symbolic links"),
        (_link_in_the_way, "cannot be written: it is a link, but must be a file"),
        (_file_of_another, "is not a file of yours"),
    ],
)
def test_what_cannot_be_replaced_is_refused(tmp_path: Path, prepare: Callable[[Path], None], message: str) -> None:
    output = tmp_path / "out.txt"
    prepare(output)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StorageError, match=message):
        write_output(output, b"new")
    assert sorted(tmp_path.iterdir()) == before
    elsewhere = tmp_path / "elsewhere"
    assert not elsewhere.exists() or elsewhere.read_text() == "stays"


def test_read_only_files_are_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out.txt"
    output.write_text("old")
    output.chmod(0o444)
    if os.access(output, os.W_OK):  # the administrator may write everything
        monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StorageError, match="it is read-only"):
        write_output(output, b"new")
    assert output.read_text() == "old"


def test_many_writers_of_one_file_leave_one_whole_content(tmp_path: Path) -> None:
    """Writers that come just when another one renames its file do not get what it has renamed."""
    output = tmp_path / "out.txt"
    refused = []

    def write(number: int) -> None:
        for _ in range(50):
            try:
                write_output(output, str(number).encode() * 1000)
            except StorageError as error:
                refused.append(str(error))
            assert len(set(output.read_bytes() or b"?")) == 1 or not output.exists()

    write_output(output, b"0")
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(output.read_bytes()) == 1000
    assert all("another command is writing" in each for each in refused)
    assert list(tmp_path.iterdir()) == [output]
