"""Whole documents, compared to the byte: what goes in, and what must come out with only the targets replaced.

A golden file NAME and what it becomes, NAME.out, were written and read by people. The pretended translator writes in
capitals.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest

from knnmt.documents.document import State
from knnmt.documents.opening import document_format, open_document
from knnmt.documents.translating import to_translate
from support.pretending import GOLDEN, shout_document

FILES = sorted(path for path in GOLDEN.iterdir() if path.suffix != ".out")
TEXTS = [path for path in FILES if path.suffix != ".docx"]
XML = [path for path in TEXTS if path.read_bytes().lstrip().startswith(b"<") and path.suffix not in (".html", ".md")]


def in_place(directory: Path, golden: Path, data: bytes) -> Path:
    """A document of the golden one's name with other bytes."""
    path = directory / golden.name
    path.write_bytes(data)
    return path


def members(data: bytes) -> dict[str, bytes]:
    """The content of an archive in its order, uncompressed; of any other file its bytes."""
    if not data.startswith(b"PK"):
        return {"": data}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def result_of(golden: Path) -> bytes:
    return golden.with_name(f"{golden.name}.out").read_bytes()


@pytest.mark.parametrize("golden", FILES, ids=lambda path: path.name)
def test_a_document_comes_out_with_only_its_targets_replaced(golden: Path) -> None:
    document = open_document(golden)
    assert document.format == document_format(golden)
    assert document.with_targets({}).data == golden.read_bytes()
    outcome = shout_document(document, retranslate=True)
    assert not outcome.failures
    assert outcome.translated == len(to_translate(document, retranslate=True)) > 0
    assert members(outcome.data) == members(result_of(golden))
    if golden.suffix == ".docx":
        changed = {name for name, data in members(outcome.data).items() if data != members(golden.read_bytes())[name]}
        assert changed == {"word/document.xml", "word/header1.xml"}


@pytest.mark.parametrize("golden", FILES, ids=lambda path: path.name)
def test_what_comes_out_is_a_document_with_the_same_units_and_nothing_left_to_do(golden: Path, tmp_path: Path) -> None:
    before = open_document(golden)
    after = open_document(in_place(tmp_path, golden, result_of(golden)))
    assert len(after.units) == len(before.units)
    if not before.bilingual:
        return
    assert [unit.source for unit in after.units] == [unit.source for unit in before.units]
    done = {unit.id for unit in to_translate(before, retranslate=True)}
    states = {now.state for then, now in zip(before.units, after.units, strict=True) if then.id in done}
    assert states == {State.FUZZY}, "a machine's translation is marked as one to look at"
    assert not to_translate(after)


@pytest.mark.parametrize("golden", TEXTS, ids=lambda path: path.name)
def test_line_ends_and_byte_order_marks_stay(golden: Path, tmp_path: Path) -> None:
    with_returns = golden.read_bytes().replace(b"\n", b"\r\n")
    outcome = shout_document(open_document(in_place(tmp_path, golden, with_returns)), retranslate=True)
    assert outcome.data == result_of(golden).replace(b"\n", b"\r\n")
    marked = b"\xef\xbb\xbf" + golden.read_bytes()
    outcome = shout_document(open_document(in_place(tmp_path, golden, marked)), retranslate=True)
    assert outcome.data == b"\xef\xbb\xbf" + result_of(golden)


@pytest.mark.parametrize("golden", XML, ids=lambda path: path.name)
@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1"])
def test_xml_stays_in_its_encoding(golden: Path, encoding: str, tmp_path: Path) -> None:
    def recoded(data: bytes) -> bytes:
        text = data.decode("utf-8")
        text = re.sub(r"<\?xml[^>]*\?>", "", text, count=1)
        return f'<?xml version="1.0" encoding="{encoding}"?>{text}'.encode(encoding, "xmlcharrefreplace")

    outcome = shout_document(open_document(in_place(tmp_path, golden, recoded(golden.read_bytes()))), retranslate=True)
    assert outcome.data == recoded(result_of(golden))
