from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.detection import detect_format

TMX = '<?xml version="1.0"?>\n<!-- <xliff> -->\n<?stil a="b"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">'


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        # Content comes first, whatever the name says.
        ("a.txt", TMX.encode(), "tmx"),
        ("a.tsv", TMX.encode("utf-16"), "tmx"),
        ("a", TMX.encode("utf-8-sig"), "tmx"),
        ("a", b"\xfe\xff" + TMX.encode("utf-16-be"), "tmx"),
        ("a.xml", b'<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:1.2" version="1.2">', "xliff"),
        ("a", b'<!DOCTYPE tmx [<!ENTITY a "b">]><tmx>', "tmx"),
        ("a.txt", b'# Kommentar\nmsgid ""\nmsgstr ""\n', "po"),
        # Then the name, without the suffix of a compression.
        ("a.tsv", b"ohne", "tsv"),
        ("a.tab", b"ohne", "tsv"),
        ("a.CSV.gz", b"a;b", "csv"),
        ("a.po", b"# Kommentar\n", "po"),
        ("a.pot.xz", b"", "po"),
        ("a.tmx.zst", b"", "tmx"),
        ("a.xlf", b"", "xliff"),
        ("a.xliff", b"", "xliff"),
        ("a.sdlxliff", b"", "xliff"),
        ("a.tmx", b"<html>", "tmx"),
        # Then a tab in the first line.
        ("a.txt", b"eins\tone\nzwei\n", "tsv"),
        ("a.txt", b"eins\nzwei\ttwo\n", "text"),
        ("corpus.de", b"", "text"),
        ("a.gz", b'Er sagte: msgid "\n', "text"),
        ("a.txt", b"<b>fett</b>\n", "text"),
    ],
)
def test_content_then_name_then_a_tab(name: str, head: bytes, expected: str) -> None:
    assert detect_format(Path(name), head) == expected
