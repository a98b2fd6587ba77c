from __future__ import annotations

import gzip
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from knnmt.corpus.lines import read_lines
from knnmt.corpus.opening import open_stream
from knnmt.errors import InputError, MissingDependencyError

CONTENT = ("Der Zug nach Ulm fährt um sieben Uhr ab.\n" * 9000 + "Ende\n").encode()
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("kind", COMPRESS)
def test_compression_is_known_by_content_and_parts_are_joined(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "misleading.txt"
    path.write_bytes(COMPRESS[kind](CONTENT[:1000]) + COMPRESS[kind](CONTENT[1000:]))
    with open_stream(path) as stream:
        assert len(stream.peek()) > 0
        assert stream.read() == CONTENT
    assert list(read_lines(path)) == CONTENT.decode().splitlines()


@pytest.mark.parametrize("kind", COMPRESS)
def test_more_than_is_taken_is_refused_while_it_is_unpacked(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(COMPRESS[kind](b"a" * 5_000_000))
    with open_stream(path, 1_000_000) as stream, pytest.raises(InputError, match="bomb: has more than 1,000,000 bytes"):
        stream.read()
    path.write_bytes(CONTENT)
    with open_stream(path, len(CONTENT)) as stream:
        assert stream.read() == CONTENT


def test_plain_files_and_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "plain.gz"
    path.write_bytes(CONTENT)
    with open_stream(path) as stream:
        assert stream.peek()[:30] == CONTENT[:30]
        assert stream.read() == CONTENT
    path.write_bytes(b"")
    with open_stream(path) as stream:
        assert stream.read() == b""


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_cut_archive_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "archive"
    noise = os.urandom(200_000)
    whole = COMPRESS[kind](noise)
    for length in (len(whole) - 3, len(whole) // 2, 12):
        path.write_bytes(whole[:length])
        with open_stream(path) as stream, pytest.raises(InputError, match=r"archive: the compressed file ends too"):
            stream.read()


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_damaged_archive_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "archive"
    whole = bytearray(COMPRESS[kind](CONTENT))
    whole[len(whole) // 2 :] = b"\xff" * len(whole[len(whole) // 2 :])
    path.write_bytes(whole)
    with open_stream(path) as stream, pytest.raises(InputError, match=r"archive: "):
        stream.read()


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fehlt: no such file"):
        open_stream(tmp_path / "fehlt")
    with pytest.raises(InputError, match="expected a file, found a directory"):
        open_stream(tmp_path)
    packed = tmp_path / "packed.sdlppx"
    packed.write_bytes(b"PK\x03\x04....")
    with pytest.raises(InputError, match=r"packed\.sdlppx: expected a file of text, found a zip archive"):
        open_stream(packed)


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "geheim.tsv"

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match=r"geheim\.tsv: no permission to read it"):
        open_stream(path)


def test_zstd_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tsv.zst"
    path.write_bytes(COMPRESS["zstd"](CONTENT))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(
        MissingDependencyError, match=r"a\.tsv\.zst, which zstd compressed, needs the package"
    ) as caught:
        open_stream(path)
    assert caught.value.extra == "formats"
