"""What holds for all documents: units that fail, what is kept of a run that was killed, and crafted files."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from knnmt.documents.android import AndroidStrings
from knnmt.documents.content import Content, Edit
from knnmt.documents.direction import direction_of
from knnmt.documents.docx import Docx
from knnmt.documents.kept import Kept
from knnmt.documents.markdown import MarkdownPage
from knnmt.documents.markup import parse, xml_content
from knnmt.documents.opening import MAX_BYTES, document_format, documents_in, open_document
from knnmt.documents.po import PoDocument
from knnmt.documents.provenance import MemorySegment, Provenance, UnitWarning
from knnmt.documents.qt import QtCatalog
from knnmt.documents.review import Draft
from knnmt.documents.subtitles import Subtitles
from knnmt.documents.translating import translate_document
from knnmt.documents.xliff import open_xliff
from knnmt.engine.language_codes import Languages
from knnmt.errors import InputError, MalformedDocumentError, SettingError
from knnmt.protection.marked import Code, Marked
from knnmt.translator.translation import Translation
from support.pretending import GOLDEN, shout, shout_document

HEADER = 'msgid ""\nmsgstr "Language: en\\nContent-Type: text/plain; charset=ISO-8859-1\\n"\n\n'


def xliff(units: str, version: str = "1.2") -> bytes:
    return f'<xliff version="{version}"><file><body>{units}</body></file></xliff>'.encode()


def test_edits_touch_nothing_else() -> None:
    content = Content(b"abcdef", "x")
    assert content.replaced([Edit(4, 5, "E"), Edit(1, 1, "-"), Edit(4, 5, "E"), Edit(1, 3, "BC")]) == b"a-BCdEf"
    with pytest.raises(ValueError, match="overlap"):
        content.replaced([Edit(0, 3, ""), Edit(2, 4, "")])


def test_an_encoding_that_does_not_come_back_is_refused() -> None:
    with pytest.raises(MalformedDocumentError, match="cannot be written back unchanged"):
        Content(b"\x1b$B\x1b(B", "x", "iso2022_jp")
    with pytest.raises(MalformedDocumentError, match="found byte 0xff at 2"):
        Content(b"ab\xff", "x")
    with pytest.raises(MalformedDocumentError, match="found 'klingon'"):
        Content(b"ab", "x", "klingon")


def test_a_unit_that_fails_keeps_its_place_and_says_why() -> None:
    document = PoDocument((HEADER + 'msgid "eins"\nmsgstr ""\n\nmsgid "zwei"\nmsgstr ""\n').encode("latin-1"), "x.po")

    def translate(texts: Sequence[Marked], *_: object) -> list[Translation]:
        assert texts == [("eins",), ("zwei",)]
        return [Translation("", "", (), 0.0, marked=("ONE \u2603",)), *shout(texts[1:])]

    with Kept(None, "") as kept:
        outcome = translate_document(document, translate, kept)
    assert outcome.data.decode("latin-1") == HEADER + (
        'msgid "eins"\nmsgstr ""\n\n#, fuzzy\nmsgid "zwei"\nmsgstr "ZWEI"\n'
    )
    assert list(outcome.failures) == ["line 4"]
    assert "'\u2603'" in outcome.failures["line 4"]
    assert (outcome.translated, outcome.kept) == (1, 0)


def test_a_unit_without_translation_or_with_too_many_codes_fails() -> None:
    units = "".join(
        f'<trans-unit id="{name}"><source>{text}</source></trans-unit>'
        for name, text in (("a", "eins"), ("b", "zwei" + "<x/>" * 1001))
    )
    document = open_xliff(xliff(units), "x.xlf")

    def translate(texts: Sequence[Marked], *_: object) -> list[Translation]:
        assert texts == [("eins",)]
        return [Translation("", "", (), 0.0, error="nothing was found")]

    with Kept(None, "") as kept:
        outcome = translate_document(document, translate, kept)
    assert outcome.data == xliff(units)
    assert outcome.failures == {"a": "nothing was found", "b": "it has more than 1,000 inline codes"}


def test_tags_in_text_are_codes_while_it_is_translated() -> None:
    text = "Ein &lt;b>fettes&lt;/b> <g id='1'>Wort</g> &lt;br/>"
    document = open_xliff(xliff(f'<trans-unit id="a"><source>{text}</source></trans-unit>'), "x.xlf")
    seen: list[Marked] = []

    def translate(texts: Sequence[Marked], *_: object) -> list[Translation]:
        seen.extend(texts)
        return shout(texts)

    with Kept(None, "") as kept:
        outcome = translate_document(document, translate, kept)
    codes = [part for part in seen[0] if isinstance(part, Code)]
    assert [code.raw for code in codes] == ["<b>", "</b>", "<g id='1'>", "</g>", "<br/>"]
    assert len({code.pair for code in codes if code.pair is not None}) == 2
    assert b"EIN &lt;b>FETTES&lt;/b> <g id='1'>WORT</g> &lt;br/></target>" in outcome.data
    with Kept(None, "") as kept:
        translate_document(document, translate, kept, tags="none")
    assert [part.raw for part in seen[1] if isinstance(part, Code)] == ["<g id='1'>", "</g>"]


def test_a_killed_run_goes_on_from_what_is_kept(tmp_path: Path) -> None:
    source = HEADER + "".join(f'msgid "wort {number}"\nmsgstr ""\n\n' for number in range(600))
    document = PoDocument(source.encode(), "x.po")
    place = tmp_path / "sub" / "out.po"
    asked: list[int] = []

    def until_killed(texts: Sequence[Marked], *_: object) -> list[Translation]:
        asked.append(len(texts))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return shout(texts)

    def count(texts: Sequence[Marked], *_: object) -> list[Translation]:
        asked.append(len(texts))
        return shout(texts)

    with pytest.raises(KeyboardInterrupt), Kept(place, "this") as kept:
        translate_document(document, until_killed, kept)
    left = tmp_path / "sub" / "out.po.translating"
    with left.open("ab") as file:
        file.write(b'["line 999", ["cut')  # as a kill in the middle of a line leaves it
    with Kept(place, "this") as kept:
        assert len(kept.drafts) == 256
        resumed = translate_document(document, count, kept)
        assert json.loads(left.read_bytes().splitlines()[-1])[0] != "line 999"
    assert asked == [256, 256, 256, 88]
    assert resumed.data == shout_document(document).data
    assert not left.exists()


def test_what_is_kept_goes_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "a.translating").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="found a link: remove it"), Kept(tmp_path / "a", "one"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_what_is_kept_of_something_else_is_not_taken(tmp_path: Path) -> None:
    match = MemorySegment("Quelle", "source", "a.tmx#1", 96)
    about = Provenance("repaired match", match, 0.5, 90, (UnitWarning("MatchWarning", "look"),))
    draft = Draft(("text", Code("<b>", shown="b")), about)
    with suppress(RuntimeError), Kept(tmp_path / "a", "one") as kept:
        kept.add({"x": draft})
        raise RuntimeError
    with suppress(RuntimeError), Kept(tmp_path / "a", "one") as kept:
        assert kept.drafts == {"x": draft}
        raise RuntimeError
    with Kept(tmp_path / "a", "other") as kept:
        assert kept.drafts == {}


def test_the_direction_is_the_file_s_and_the_model_s() -> None:
    model = Languages("de", "en")

    def catalog(language: str, texts: Sequence[str] = ()) -> PoDocument:
        entries = "".join(f'msgid "{text}"\nmsgstr ""\n\n' for text in texts)
        return PoDocument(f'msgid ""\nmsgstr "Language: {language}\\n"\n\n{entries}'.encode(), "x.po")

    assert direction_of(catalog("en_GB"), "x.po", model, "the model de-en") == "x.po: de to en, as it states (to en_GB)"
    assert "the document states no languages" in direction_of(catalog(""), "x.po", model, "the model de-en")
    with pytest.raises(
        SettingError, match=r"goes from en to de, but the model de-en translates de to en. To .*, use --model en-de"
    ):
        direction_of(catalog("de"), "x.po", model, "the model de-en")
    with pytest.raises(SettingError, match="goes from another language to fr"):
        direction_of(catalog("fr"), "x.po", model, "the model de-en")
    english = [f"The file {number} is not in the folder that you have chosen" for number in range(20)]
    with pytest.raises(SettingError, match=r"look English.*use --model en-de --ignore-stated-languages"):
        direction_of(catalog("en", english), "x.po", model, "the model de-en")
    for texts in ((), english):
        with pytest.raises(
            SettingError, match=r"but the store x\.store translates de to en\. To translate en to de, use y"
        ):
            direction_of(catalog("en" if texts else "de", texts), "x.po", model, "the store x.store", "use y")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'<!DOCTYPE x [<!ENTITY a "b">]><xliff version="1.2"/>', "declaration of 'a'"),
        (b'<!DOCTYPE x [<!ENTITY % a SYSTEM "/etc/passwd">%a;]><xliff version="1.2"/>', "declaration of 'a'"),
        (b'<!DOCTYPE x [<!ATTLIST xliff a CDATA "b">]><xliff version="1.2"/>', "values, found one for 'a'"),
        (b'<xliff version="1.2"><file></xliff>', "well-formed"),
        (b'<xliff version="1.2">&undeclared;</xliff>', "well-formed"),
        (b"<xliff>" * 201 + b"</xliff>" * 201, "more than 200 nested elements"),
        (b'<xliff version="3"/>', "version '3'"),
        (b"<tmx/>", "root element <xliff>"),
        (b'<?xml version="1.0" encoding="nothing"?><xliff/>', "'nothing'"),
        (b'<xliff version="1.2"><trans-unit/></xliff>', "expected a <source>"),
        (b'<xliff version="2.0"><unit><segment/></unit></xliff>', "expected a <source>"),
        (
            b'<xliff version="1.2"><file target-language="en"/><file target-language="fr"/></xliff>',
            "expected one target language, found en, fr",
        ),
        (b"\xff\xfe<\0x\0", "well-formed"),
        (b"<x\0y>", "well-formed"),
    ],
)
def test_crafted_xml_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(MalformedDocumentError, match=says.replace("(", r"\(")):
        open_xliff(data, "x.xlf")


def test_more_elements_than_any_document_has_are_refused() -> None:
    parse(xml_content(b"<r>" + b"<a/>" * 9 + b"</r>", "x.xlf"), max_elements=10)
    with pytest.raises(MalformedDocumentError, match=r"x\.xlf, line 1: .*more than 10 elements"):
        parse(xml_content(b"<r>" + b"<a/>" * 10 + b"</r>", "x.xlf"), max_elements=10)


def test_a_file_that_is_too_large_or_no_document_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large.po"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="at most 67,108,864"):
        open_document(large)
    with pytest.raises(InputError, match="no such file"):
        open_document(tmp_path / "absent.po")
    table = tmp_path / "a.csv"
    table.write_text("a,b\n")
    with pytest.raises(InputError, match="found a table of columns"):
        open_document(table)
    with pytest.raises(InputError, match="found no file"):
        open_document(tmp_path)


def test_formats_are_known_by_content_then_by_name(tmp_path: Path) -> None:
    for golden in GOLDEN.iterdir():
        if golden.suffix in (".po", ".xlf", ".xliff"):
            renamed = tmp_path / f"{golden.stem}.txt"
            renamed.write_bytes(golden.read_bytes())
            assert document_format(renamed) == document_format(golden) != "text"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.PO").write_bytes(b"")
    (tmp_path / "c.bin").write_bytes(b"")
    assert documents_in(tmp_path) is not None
    found = [str(path.relative_to(tmp_path)) for path in documents_in(tmp_path)]
    assert found == sorted(found)
    assert "b/x.PO" in found
    assert "c.bin" not in found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('msgid "a"\n', "line 1: expected a msgstr"),
        ('msgctxt "a"\nmsgstr "b"\n', "line 1: expected a msgid"),
        ('msgid "a"\nmsgid "b"\nmsgstr ""\n', "line 2: .* found msgid twice"),
        ('msgid "a"\nmsgstr "b" "c"\n', "line 2: expected a comment or a quoted string"),
        ('msgid "a\nmsgstr ""\n', "line 1: expected a comment"),
        ("Hallo\n", "line 1: expected a comment"),
    ],
)
def test_a_malformed_catalog_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(MalformedDocumentError, match=says):
        PoDocument(text.encode(), "x.po")


def test_plural_forms_are_those_of_the_rule() -> None:
    def sources(rule: str, forms: int) -> list[Marked]:
        header = f'msgid ""\nmsgstr "Plural-Forms: {rule}\\n"\n\n'
        entry = 'msgid "eine"\nmsgid_plural "viele"\n' + "".join(f'msgstr[{form}] ""\n' for form in range(forms))
        return [unit.source for unit in PoDocument((header + entry).encode(), "x.po").units]

    assert sources("nplurals=2; plural=(n != 1);", 2) == [("eine",), ("viele",)]
    assert sources("nplurals=1; plural=0;", 1) == [("viele",)]
    assert sources("nplurals=3; plural=n==0 ? 0 : n==1 ? 1 : 2;", 3) == [("viele",), ("eine",), ("viele",)]
    assert sources("nplurals=INTEGER; plural=EXPRESSION;", 2) == [("eine",), ("viele",)]
    assert sources("nplurals=2; plural=n**;", 2) == [("eine",), ("viele",)]


def test_forms_that_the_header_tells_of_and_an_entry_lacks_are_added() -> None:
    header = 'msgid ""\r\nmsgstr "Plural-Forms: nplurals={}; plural=n==1 ? 0 : n<5 ? 1 : 2;\\n"\r\n\r\n'
    entry = 'msgid "eine"\r\nmsgid_plural "viele"\r\nmsgstr[0] ""\r\nmsgstr[1] ""\r\n'
    outcome = shout_document(PoDocument((header.format(3) + entry).encode(), "x.po"))
    added = 'msgstr[0] "EINE"\r\nmsgstr[1] "VIELE"\r\nmsgstr[2] "VIELE"\r\n'
    assert outcome.data.decode().endswith('#, fuzzy\r\nmsgid "eine"\r\nmsgid_plural "viele"\r\n' + added)
    assert len(PoDocument((header.format(999) + entry).encode(), "x.po").units) == 2  # no language has so many


PLURALS = """<resources>
  <plurals name="files">
    <item quantity="zero">keine</item>
    <item quantity="one">%d Datei</item>
    <item quantity="other"><![CDATA[%d Dateien]]></item>
  </plurals>
</resources>
"""


@pytest.mark.parametrize(
    ("language", "becomes"),
    [
        (None, ("zero:KEINE", "one:%D DATEI", "other:<![CDATA[%D DATEIEN]]>")),
        ("tlh", ("zero:KEINE", "one:%D DATEI", "other:<![CDATA[%D DATEIEN]]>")),
        ("en-GB", ("one:%D DATEI", "other:<![CDATA[%D DATEIEN]]>")),
        ("jpn_Jpan", ("other:<![CDATA[%D DATEIEN]]>",)),
        (
            "pl",
            ("one:%D DATEI", *(f"{each}:<![CDATA[%D DATEIEN]]>" for each in ("few", "many", "other"))),
        ),
    ],
)
def test_plural_forms_of_android_become_those_of_the_language(language: str | None, becomes: Sequence[str]) -> None:
    document = AndroidStrings(PLURALS.encode(), "strings.xml", ("de", language))
    items = (each.split(":", 1) for each in becomes)
    lines = [f'    <item quantity="{quantity}">{text}</item>\n' for quantity, text in items]
    before, _, after = PLURALS.partition("    <item")
    expected = before + "".join(lines) + "  </plurals>" + after.split("</plurals>")[1]
    assert shout_document(document).data.decode() == expected
    assert document.with_targets({}).data == PLURALS.encode()


def test_forms_of_android_that_are_no_plurals_stay() -> None:
    twice = PLURALS.replace("zero", "other").encode()
    document = AndroidStrings(twice, "strings.xml", ("de", "pl"))
    assert [unit.id for unit in document.units] == ["files[other]", "files[one]", "files[other]~2"]
    assert shout_document(document).data.count(b"<item") == 3


def test_a_numeric_message_of_qt_without_forms_gets_as_many_as_others_have() -> None:
    message = '<message numerus="yes"><source>%n Datei(en)</source>{}</message>'
    forms = "<translation><numerusform>a</numerusform><numerusform>b</numerusform></translation>"
    whole = f'<TS version="2.1"><context><name>x</name>{message.format(forms)}{message}</context></TS>'
    made = '<translation type="unfinished">' + "<numerusform>%N DATEI(EN)</numerusform>" * 2
    for empty in ('<translation type="unfinished"></translation>', ""):
        outcome = shout_document(QtCatalog(whole.format(empty).encode(), "x.ts"))
        assert outcome.data.decode() == whole.format(made + "</translation>")


def test_a_copy_of_the_source_that_nobody_confirmed_is_no_translation() -> None:
    def states(units: str, version: str) -> list[str]:
        return [unit.state.value for unit in open_xliff(xliff(units, version), "x.xlf").units]

    def segmented(conf: str, target: str) -> str:
        mark = '<mrk mtype="seg" mid="1">{}</mrk>'
        sides = f"<seg-source>{mark.format('Ja')}</seg-source><target>{mark.format(target)}</target>"
        definitions = f'<sdl:seg-defs><sdl:seg id="1"{conf}/></sdl:seg-defs>'
        return f'<trans-unit xmlns:sdl="s" id="a"><source>Ja</source>{sides}{definitions}</trans-unit>'

    assert states(segmented("", "Ja"), "1.2") == ["untranslated"]
    assert states(segmented(' conf="Draft"', "Yes"), "1.2") == ["fuzzy"]
    assert states(segmented(' conf="Translated"', "Ja"), "1.2") == ["translated"]
    segment = '<unit id="u"><segment state="{}"><source>Ja</source><target>{}</target></segment></unit>'
    assert states(segment.format("initial", "Ja"), "2.0") == ["untranslated"]
    assert states(segment.format("initial", "Yes"), "2.0") == ["fuzzy"]
    assert states(segment.format("final", "Ja"), "2.0") == ["translated"]


def test_fuzzy_units_that_are_left_are_counted() -> None:
    document = open_document(GOLDEN / "catalog.po")
    assert (shout_document(document).fuzzy, shout_document(document, retranslate=True).fuzzy) == (2, 0)


def test_spaces_around_a_subtitle_stay() -> None:
    document = Subtitles(b"1\n00:00:01,000 --> 00:00:02,000\n   One \n", "x.srt")
    (unit,) = document.units
    assert unit.source == ("   One ",)
    assert document.written(unit, ("   Eins ",)) == "   Eins "
    assert document.written(unit, ("   Eins \n \n",)) == "   Eins "


def test_cues_without_an_empty_line_between_them_are_told_apart() -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\nJa.\n2\n00:00:02,000 --> 00:00:03,000\nNein.\n"
    document = Subtitles(text.encode(), "x.srt")
    assert [unit.source for unit in document.units] == [("Ja.",), ("Nein.",)]
    assert shout_document(document).data.decode() == text.replace("Ja", "JA").replace("Nein", "NEIN")


def docx(paragraph: str) -> bytes:
    written = io.BytesIO()
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(
            "word/document.xml", f"<w:document {names}><w:body><w:p>{paragraph}</w:p></w:body></w:document>"
        )
    return written.getvalue()


BOLD = "<w:rPr><w:b/></w:rPr>"


@pytest.mark.parametrize(
    ("paragraph", "becomes"),
    [
        (  # cut in mid-word, by checks of spelling and of language
            '<w:r w:rsidR="1"><w:t>Das Ge</w:t></w:r><w:proofErr w:type="x"/>'
            '<w:r><w:rPr><w:lang w:val="de-DE"/></w:rPr><w:t>rät</w:t></w:r>',
            "[Das Gerät]",
        ),
        (
            f"<w:r><w:t>Sehr lange </w:t></w:r><w:r>{BOLD}<w:t>wich</w:t></w:r>"
            f"<w:r>{BOLD}<w:t>tig</w:t></w:r><w:r><w:t>.</w:t></w:r>",
            f"[Sehr lange ]{BOLD}[wichtig]</w:rPr>[.]",
        ),
        (  # tabs and breaks in runs with words, at their beginning too
            "<w:r><w:tab/><w:t>Name</w:t><w:br/><w:t>Ort</w:t></w:r>",
            "<w:r><w:tab/></w:r>[Name]<w:r><w:br/></w:r>[Ort]",
        ),
        (
            '<w:r><w:t>Hier</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r>',
            "[Hier]",
        ),
        (
            '<w:hyperlink r:id="x"><w:r><w:t>Link</w:t></w:r></w:hyperlink><w:r><w:t> hier</w:t></w:r>',
            '<w:hyperlink r:id="x">[Link]</w:hyperlink>[ hier]',
        ),
    ],
)
def test_runs_of_word_are_the_words_of_a_sentence(paragraph: str, becomes: str) -> None:
    [unit] = (document := Docx(docx(paragraph.replace("r:id", "w:id")), "a.docx")).units
    assert "".join(part.raw if isinstance(part, Code) else f"[{part}]" for part in unit.source) == becomes.replace(
        "r:id", "w:id"
    )
    written = shout_document(document)
    with zipfile.ZipFile(io.BytesIO(written.data)) as archive:
        text = archive.read("word/document.xml").decode()
    for element in ("tab", "br", "footnoteReference", "hyperlink"):
        assert text.count(f"<w:{element}") == paragraph.count(f"<w:{element}")
    assert "".join(re.findall(r"<w:t[^>]*>([^<]*)", text)) == "".join(re.findall(r"\[([^]]*)\]", becomes)).upper()


def test_times_in_a_cue_and_marks_of_notes_are_codes() -> None:
    cues = "WEBVTT\n\n00:01.000 --> 00:02.000\n<00:01.500>Hallo <b>Welt</b>\n"
    assert shout_document(Subtitles(cues.encode(), "x.vtt")).data.decode().endswith("\n<00:01.500>HALLO <b>WELT</b>\n")
    page = "> [!NOTE]\n> Lies[^1] *das*.\n\n[^1]: Die Note.\n"
    assert shout_document(MarkdownPage(page.encode(), "x.md")).data.decode() == (
        "> [!NOTE]\n> LIES[^1] *DAS*.\n\n[^1]: DIE NOTE.\n"
    )
