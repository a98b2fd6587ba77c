"""What `knnmt translate` takes for text, and what it refuses before the model is loaded: in processes of their own."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from knnmt import Translator
from support.command_processes import knnmt, lines, refused_at_once

XLIFF = '<?xml version="1.0"?>\n<xliff version="1.2">\n<source>Hallo</source>\n</xliff>\n'
REFUSED = [
    ("a.tsv", "Hallo\tHello\n", "a table of columns"),
    ("a.rtf", "{\\rtf1 Hallo}\n", "an RTF document"),
    ("a.strings", '"titel" = "Hallo";\n', "a file of strings"),
]


@pytest.mark.parametrize(("name", "content", "kind"), REFUSED)
def test_documents_that_cannot_be_written_back_are_refused_before_the_model_is_loaded(
    tmp_path: Path, name: str, content: str, kind: str
) -> None:
    document, out = tmp_path / name, tmp_path / "out.txt"
    document.write_text(content, encoding="utf-8")
    out.write_text("was da war\n", encoding="utf-8")
    said = refused_at_once("translate", document, "-o", out)
    assert f"{document}: expected plain text, one segment per line, found {kind}" in said
    assert "--plain" in said
    assert out.read_text(encoding="utf-8") == "was da war\n"


def test_documents_are_known_compressed_from_standard_input_and_beside_a_pipe(tmp_path: Path) -> None:
    document, packed = tmp_path / "a.xlf", tmp_path / "a.gz"
    document.write_text(XLIFF, encoding="utf-8")
    packed.write_bytes(gzip.compress(XLIFF.encode()))
    assert "found an XLIFF file" in refused_at_once("translate", packed)
    assert "standard input: expected plain text" in refused_at_once("translate", stdin=document)
    assert "a.xlf: expected plain text" in refused_at_once("explain", "-d", "absent", "--file", document)
    assert "several documents need --output-dir" in refused_at_once("translate", "/dev/stdin", document)
    piped = knnmt("translate", stdin=XLIFF.encode())  # looked at when it comes
    assert (piped.returncode, piped.stdout) == (1, b"")
    assert b"standard input: expected plain text" in piped.stderr


def test_plain_takes_the_lines_of_a_document(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("Guten Morgen!\nJa.\n", encoding="utf-8")
    done = knnmt("translate", "-m", "de-en", "--plain", table)
    assert (done.returncode, done.stderr) == (0, b"")
    assert lines(done.stdout) == [each.text for each in Translator(device="cpu").translate(["Guten Morgen!", "Ja."])]
    picture = tmp_path / "a.txt"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    assert "found a PNG picture" in refused_at_once("translate", "--plain", picture)


def test_texts_of_the_command_line(tmp_path: Path) -> None:
    done = knnmt("translate", "-m", "de-en", "--text", "Guten Morgen!", "-t", "Ja.", stdin=b"nicht gelesen\n")
    assert (done.returncode, done.stderr) == (0, b"")
    assert lines(done.stdout) == [each.text for each in Translator(device="cpu").translate(["Guten Morgen!", "Ja."])]
    assert "found both" in refused_at_once("translate", "--text", "Ja.", tmp_path / "a.txt")
    said = refused_at_once("translate", "Guten Morgen!")
    assert "Guten Morgen!: no such file. To translate these words themselves, use --text" in said
