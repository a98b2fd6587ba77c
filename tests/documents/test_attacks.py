"""Documents made to do harm: each ends in an error of our own, or is read, in little time and memory."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt.documents.docx import ArchiveLimits, Docx
from knnmt.documents.html_pages import HtmlPage
from knnmt.documents.json_strings import JsonStrings
from knnmt.documents.markdown import MarkdownPage
from knnmt.documents.opening import open_document
from knnmt.documents.po import PoDocument
from knnmt.documents.properties import Properties
from knnmt.documents.subtitles import Subtitles
from knnmt.documents.translating import to_translate
from knnmt.documents.yaml_strings import YamlStrings
from knnmt.errors import InputError, MalformedDocumentError, MissingDependencyError
from knnmt.protection.marked import Code
from support.pretending import GOLDEN, shout_document

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def archive(**members: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return written.getvalue()


def test_archives_that_unpack_without_end_are_refused() -> None:
    with pytest.raises(MalformedDocumentError, match="of which 1 MiB are text"):
        Docx(archive(**{"word/document.xml": b" " * (2 << 20)}), "x.docx", ArchiveLimits(text_bytes=1 << 20))
    with pytest.raises(MalformedDocumentError, match="2 MiB"):
        Docx(archive(**{"word/media/a.png": b"\0" * (3 << 20)}), "x.docx", ArchiveLimits(bytes=1 << 21))
    with pytest.raises(MalformedDocumentError, match="at most 3 members"):
        Docx(archive(**{f"a{number}": b"" for number in range(4)}), "x.docx", ArchiveLimits(members=3))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"PK\x03\x04 and no more", "expected a DOCX archive"),
        (b"", "expected a DOCX archive"),
        (archive(a=b""), "without word/document.xml"),
        (archive(**{"word/document.xml": b"<w:document>"}), "well-formed"),
        (archive(**{"word/document.xml": b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}), "declaration of 'b'"),
    ],
)
def test_archives_that_are_no_documents_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(MalformedDocumentError, match=says):
        Docx(data, "x.docx")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_two_members_of_one_name_is_refused() -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        for text in ("Ja", "Nein"):
            file.writestr("word/document.xml", f"<w:p {W}><w:r><w:t>{text}</w:t></w:r></w:p>")
    with pytest.raises(MalformedDocumentError, match=r"each member once, found 'word/document.xml' again"):
        Docx(written.getvalue(), "x.docx")


def test_a_member_that_is_broken_is_refused() -> None:
    data = bytearray((GOLDEN / "letter.docx").read_bytes())
    data[data.index(b"word/document.xml") + 40] ^= 0xFF
    with pytest.raises(MalformedDocumentError, match="expected a DOCX archive"):
        Docx(bytes(data), "x.docx")


@pytest.mark.parametrize(
    ("opens", "data", "says"),
    [
        (JsonStrings, b"[" * 200 + b'"x"' + b"]" * 200, "less than 100 deep"),
        (JsonStrings, b"[" * 200_000, "expected JSON"),
        (JsonStrings, b'{"a": }', "expected JSON"),
        (JsonStrings, b'{"a": "\xff"}', "found byte 0xff"),
        (YamlStrings, b"[" * 1500, "expected YAML"),
        (YamlStrings, b"a: [" * 150 + b"x" + b"]" * 150, "less than 100 deep"),
        (YamlStrings, b"a: &a [*a, *b]", "expected YAML"),
        (YamlStrings, b"a: \x00", "expected YAML"),
        (Subtitles, b"no times at all", "expected subtitles"),
        (HtmlPage, b'<meta charset="utf-8">\xff', "found byte 0xff"),
        (HtmlPage, b'<meta charset="klingon">', "'klingon'"),
        (MarkdownPage, b"\xff", "found byte 0xff"),
    ],
)
def test_crafted_texts_are_refused(opens: Callable[[bytes, str], object], data: bytes, says: str) -> None:
    with pytest.raises(MalformedDocumentError, match=says):
        opens(data, "x")


def test_aliases_are_not_multiplied() -> None:
    bomb = "a: &a [x, y]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)
    )
    assert len(YamlStrings(bomb.encode(), "x.yml").units) == 2
    assert len(YamlStrings(b"a: &a [x, *a]", "x.yml").units) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<" * 50_000,
        "<!--" * 50_000,
        "<a " * 50_000,
        '<a href="' * 50_000,
        "<b>x" * 10_000,
        "<code>" * 50_000,
        "&" * 50_000,
        "<p>x</p>" * 2_000,
    ],
)
def test_a_page_of_beginnings_is_read_once(text: str) -> None:
    started = time.process_time()
    document = HtmlPage(text.encode(), "x.html")
    assert document.with_targets({}).data == text.encode()
    shout_document(document)
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        (f"am{'_' * 60} (Datum)", True),
        (f"am{'_' * 60}", False),
        ("am___", False),
        ("am_", True),
        ("_am", True),
        ("anzeige.titel_lang", False),
        ("anzeige..titel", True),
        ("a_b.c-d", False),
        ("a._b", False),
        ("a_.b", True),
        ("Anzeige_Titel", True),
        (" name@example.org ", False),
        ("@@example.org", False),
        ("@example.org", True),
        ("name@example", True),
        ("https://example.org/x?y", False),
        ("https:// example.org", True),
    ],
)
def test_addresses_and_identifiers_are_not_translated(text: str, translated: bool) -> None:
    document = PoDocument(f'msgid "{text}"\nmsgstr ""\n'.encode(), "x.po")
    assert bool(to_translate(document)) == translated


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"LONG": ["a", "b"]}'),
        ("a.yml", "? LONG\n: [a, b]"),
        ("strings.xml", '<resources><string-array name="LONG"><item>a</item></string-array></resources>'),
        ("a.ts", "<TS><context><name>LONG</name><message><source>a</source></message></context></TS>"),
        (
            "a.xlf",
            '<xliff version="1.2"><file original="LONG"><body><trans-unit id="LONG"><source>a</source>'
            '<seg-source><mrk mtype="seg" mid="LONG">a</mrk></seg-source></trans-unit></body></file><file/></xliff>',
        ),
        (
            "b.xlf",
            '<xliff version="2.0"><file id="LONG"><unit id="LONG"><segment id="LONG"><source>a</source></segment>'
            "<segment><source>b</source></segment></unit></file><file/></xliff>",
        ),
    ],
)
def test_what_many_units_share_is_not_repeated_in_each(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text.replace("LONG", "x" * 100_000))
    ids = [unit.id for unit in open_document(tmp_path / name).units]
    assert ids
    assert max(map(len, ids)) < 2_000


def test_a_run_of_breaks_with_a_long_format_stays_as_it_is() -> None:
    def document(breaks: int, size: int) -> Docx:
        run = f'<w:r><w:rPr><w:sz w:val="{"1" * size}"/></w:rPr><w:t>Ja</w:t>{"<w:br/>" * breaks}</w:r>'
        return Docx(archive(**{"word/document.xml": f"<w:p {W}>{run}<w:r><w:t>Nein</w:t></w:r></w:p>".encode()}), "a")

    (whole,) = document(3, 10).units
    assert "Ja" in whole.source
    (left,) = document(1_000, 5_000).units
    assert sum(len(part.raw) for part in left.source if isinstance(part, Code)) < 20_000
    with pytest.raises(MalformedDocumentError, match="properties of a run in at most 10,000 characters"):
        document(1, 20_000)


def test_cues_and_notes_that_do_not_end_are_read_once() -> None:
    started = time.process_time()
    assert len(Subtitles(b"00:00:01,000 --> 00:00:02,000\n" * 20_000 + b"Ja\n", "x.srt").units) == 1
    assert len(MarkdownPage(b"[^a" * 20_000 + b"\n", "x.md").units) == 1
    assert time.process_time() - started < 20


@pytest.mark.parametrize("text", ["\\\n" * 100_000, "a=\\u12\n" * 1000, "=" * 100_000, "a" * 300_000, " \\" * 100_000])
def test_properties_of_any_form_are_read(text: str) -> None:
    document = Properties(text.encode(), "x.properties")
    assert document.with_targets({}).data == text.encode()


def test_half_a_surrogate_pair_is_no_text() -> None:
    document = Properties(b"a=x \\ud800 y\nb=\\ud83d\\ude00 z\n", "x.properties")
    for unit in document.units:
        "".join(part for part in unit.source if isinstance(part, str)).encode("utf-8")
    assert document.units[1].source == ("\U0001f600 z",)
    strings = JsonStrings(b'{"a": "x \\ud800 y"}', "x.json")
    outcome = shout_document(strings)
    assert outcome.data == b'{"a": "x \\ud800 y"}'
    assert "half of a surrogate pair" in outcome.failures["a"]


@pytest.mark.parametrize(("package", "name"), [("yaml", "locale.yml"), ("markdown_it", "page.md")])
def test_a_package_that_is_missing_is_named(package: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingDependencyError, match=r"knnmt\[documents\]"):
        open_document(GOLDEN / name)


@pytest.mark.parametrize(
    "golden", [path for path in sorted(GOLDEN.iterdir()) if path.suffix != ".out"], ids=lambda path: path.name
)
def test_a_document_that_is_cut_anywhere_is_read_or_refused(golden: Path, tmp_path: Path) -> None:
    data = golden.read_bytes()
    step = max(1, len(data) // 25)
    for end in range(0, len(data), step):
        for changed in (data[:end], data[:end] + b"\x00" + data[end:], data[:end] + b'<"&{[:' + data[end:]):
            path = tmp_path / golden.name
            path.write_bytes(changed)
            try:
                document = open_document(path)
            except InputError:
                continue
            assert document.with_targets({}).data == changed
            shout_document(document, retranslate=True)
