from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.lines import read_lines
from knnmt.errors import InputError


def test_only_line_feeds_end_lines_and_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffeins\r\n\nzwei\u2028drei\x0bvier\rfünf\n sechs ".encode())
    assert list(read_lines(path)) == ["eins", "", "zwei\u2028drei\x0bvier\rfünf", " sechs "]


def test_wrong_bytes_are_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"gut\n\nM\xfcller\n")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["gut", ""]
    with pytest.raises(InputError, match=r"latin\.txt, line 3: expected UTF-8, found byte 0xfc at column 2"):
        next(lines)
    path.write_bytes("gut".encode("utf-16"))
    with pytest.raises(InputError, match="found UTF-16"):
        next(read_lines(path))


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        next(read_lines(tmp_path / "absent"))
    with pytest.raises(InputError, match="found a directory"):
        next(read_lines(tmp_path))
