"""Files and requests may state any name as their encoding: it is known, or it is refused."""

from __future__ import annotations

import encodings
import pkgutil
from encodings.aliases import aliases
from pathlib import Path

import pytest

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.text_encodings import is_codec, text_encoding
from knnmt.documents.opening import open_document
from knnmt.errors import KnnmtError

MODULES = {module.name for module in pkgutil.iter_modules(encodings.__path__)}
NAMES = sorted(MODULES | {"mbcs", "oem", "x" * 300, "CHARSET"})
FOR_BYTES = {"base64", "bz2", "hex", "quopri", "rot13", "uu", "zlib", "zip", "quoted-printable"}
NOT_FOR_TEXT = FOR_BYTES | {"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem"}
XML = '<?xml version="1.0" encoding="{}"?>\n'
DOCUMENTS = {
    "a.po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"\n\nmsgid "Haus"\nmsgstr "house"\n',
    "a.tmx": XML + '<tmx version="1.4"><header srclang="de"/><body><tu><tuv xml:lang="de"><seg>Haus</seg></tuv>'
    '<tuv xml:lang="en"><seg>house</seg></tuv></tu></body></tmx>',
    "a.xlf": XML + '<xliff version="1.2"><file source-language="de" target-language="en"><body><trans-unit id="1">'
    "<source>Haus</source><target>house</target></trans-unit></body></file></xliff>",
    "a.ts": XML + '<TS version="2.1" sourcelanguage="de" language="en"><context><name>x</name><message>'
    "<source>Haus</source><translation>house</translation></message></context></TS>",
    "a.html": '<!DOCTYPE html><html><head><meta charset="{}"><title>Haus</title></head><body><p>Baum</p></body></html>',
    "a.xml": XML + '<resources><string name="a">Haus</string></resources>',
}
MEMORIES = ("a.po", "a.tmx", "a.xlf")


def opened(path: Path) -> str:
    """The error when a document is opened and written, or nothing."""
    try:
        document = open_document(path, ("de", "en"))
        document.with_targets({unit.id: ("ä",) for unit in document.units})
    except KnnmtError as error:
        return str(error)
    return ""


def read(path: Path) -> str:
    """The error when a memory is read, or nothing."""
    try:
        list(read_files([path], ReadingConfig("de", "en"), ReadingReport()))
    except KnnmtError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_codec_of_python_is_an_encoding_or_an_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for codec in NAMES:
        path.write_text(DOCUMENTS[name].format(codec))
        errors = [opened(path)] + [read(path)] * (name in MEMORIES)
        if codec in NOT_FOR_TEXT:
            assert all("expected" in error and f"{codec!r}" in error for error in errors), (codec, errors)
            assert all("Convert it to UTF-8" in error for error in errors), (codec, errors)
    path.write_text(DOCUMENTS[name].format("iso-8859-1"))
    assert not opened(path)


def test_names_are_those_of_python() -> None:
    assert [text_encoding(name) for name in ("UTF-8", "utf8", "ISO-8859-15", "windows-1252", "Latin 1")] == [
        "utf-8",
        "utf-8",
        "iso8859-15",
        "cp1252",
        "iso8859-1",
    ]
    for name in [*aliases, *NAMES]:
        assert text_encoding(name) is None or "".encode(text_encoding(name) or "") is not None
    assert not [name for name in NOT_FOR_TEXT if text_encoding(name) is not None]
    assert not is_codec("CHARSET")
    assert not is_codec("aliases")


def test_made_up_names_are_not_kept_in_memory() -> None:
    known = len(encodings._cache)
    assert not any(text_encoding(f"made-up-{number}") for number in range(100))
    assert len(encodings._cache) <= known + 1
