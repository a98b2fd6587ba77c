"""Documents and binary files are told from plain text, by content and by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.lines import read_lines
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.plain_text import document_kind
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.errors import InputError

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x00\x00\x00\x01\x00\x08\x06"
MEMORY_ONLY = "Memories are TMX, XLIFF, SDLXLIFF, PO, TSV, CSV"


@pytest.mark.parametrize(
    ("name", "head", "kind"),
    [
        # By content, whatever the name.
        ("a.txt", b'<?xml version="1.0"?>\n<xliff version="1.2">', "an XLIFF file"),
        ("a.txt", '<?xml version="1.0"?><tmx version="1.4">'.encode("utf-16"), "a TMX memory"),
        ("a", b"<!DOCTYPE TS>\n<TS version='2.1'>", "a Qt catalog"),
        ("a", b"\xef\xbb\xbf<!doctype html>\n<title>", "an HTML page"),
        ("a", b"\n<HTML lang=de>", "an HTML page"),
        ("a", b'<?xml version="1.0"?>\n<root><data name="x">', "an XML file"),
        ("a", b'# Kommentar\nmsgid ""\nmsgstr ""\n', "a PO catalog"),
        ("a", b'{\n  "titel": "Hallo"\n}', "a JSON file"),
        ("a", b'[{"titel": "Hallo"}]', "a JSON file"),
        ("a", b"1\r\n00:00:01,000 --> 00:00:02,500\r\nHallo\r\n", "a file of subtitles"),
        ("a", b"WEBVTT\n\n00:01.000 --> 00:02.000\n", "a file of subtitles"),
        ("a.txt", PNG, "a PNG picture"),
        ("a.txt", b"\x00\x01\x02\xff" * 20, "a file of binary data"),
        # By name, without the suffix of a compression.
        ("a.po", b"# Kommentar\n", "a PO catalog"),
        ("a.XLF.gz", b"", "an XLIFF file"),
        ("a.sdlxliff", b"", "an XLIFF file"),
        ("a.properties", b"titel=Hallo\n", "a file of strings"),
        ("a.strings", b'"titel" = "Hallo";\n', "a file of strings"),
        ("a.yml", b"titel: Hallo\n", "a YAML file"),
        ("a.resx", b"", "an XML file"),
        ("a.tsv", b"Hallo\tHello\n", "a table of columns"),
        ("a.csv", b"Hallo;Hello\n", "a table of columns"),
        ("a.docx", b"", "an Office document"),
        # Plain text, also where it looks a little like something else.
        ("a.txt", b"<b>Achtung:</b> nicht schliessen\n", None),
        ("a.txt", b"[Hinweis] {0} Dateien\n", None),
        ("a.txt", b'{name} sagt: "Hallo"\n', None),
        ("a.txt", b"1\n2\n00:00:01,000\n", None),
        ("a.txt", b"Hallo\tHello\n", None),
        ("a.txt", b"%PDF ist ein Format\n", None),
        ("a.txt", b"eine Zeile mit einem Nullbyte \x00 darin" + b" und noch viel mehr Text" * 9, None),
        ("a.de", b"Hallo\n", None),
        ("a.md", b"# Titel\n", None),
        ("handbuch", b"", None),
        ("a.txt", "größer als früher\n".encode("utf-16"), None),  # refused later, with its own word
        ("a.txt", "größer als früher\n".encode("latin-1"), None),
    ],
)
def test_what_a_file_is(name: str, head: bytes, kind: str | None) -> None:
    assert document_kind(Path(name), head) == kind


def test_lines_of_documents_are_refused_unless_they_are_meant(tmp_path: Path) -> None:
    catalog = tmp_path / "katalog.po"
    catalog.write_text('msgid "Save"\nmsgstr "Sichern"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"katalog\.po: expected plain text.* found a PO catalog.*--plain"):
        next(read_lines(catalog))
    assert list(read_lines(catalog, plain=True)) == ['msgid "Save"', 'msgstr "Sichern"']
    picture = tmp_path / "bild.txt"
    picture.write_bytes(PNG)
    with pytest.raises(InputError, match="found a PNG picture") as refused:
        next(read_lines(picture, plain=True))
    assert "--plain" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("bild.png", PNG, "a PNG picture"),
        ("bild.tsv", PNG, "a PNG picture"),
        ("bild.tmx", PNG, "a PNG picture"),
        ("seite.html", b"<!doctype html>\n<p>Hallo", "an HTML page"),
        ("texte.json", b'{"titel": "Hallo"}', "a JSON file"),
        ("buch.docx", b"PK\x03\x04....", "an Office document"),
        ("altes.mo", b"\xde\x12\x04\x95\x00\x00\x00\x00", "a compiled catalog (MO)"),
    ],
)
def test_what_is_no_memory_is_said_to_be_what_it_is(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for partner in ([], [path]):
        with pytest.raises(InputError) as refused:
            list(read_files([path, *partner], ReadingConfig(), ReadingReport()))
        assert f"{path}: expected" in str(refused.value)
        assert f"found {kind}. " in str(refused.value)
        assert MEMORY_ONLY in str(refused.value) or kind == "an Office document"
