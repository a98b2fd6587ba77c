"""What a document says about where its new targets came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import polib
import pytest
from lxml import etree

from knnmt.documents.document import Document
from knnmt.documents.kept import Kept
from knnmt.documents.opening import open_document
from knnmt.documents.translating import translate_document
from knnmt.errors import SourceKeptWarning
from knnmt.protection.marked import Marked
from knnmt.segments.matches import Match
from knnmt.translator.translation import Caution, Translation
from support.pretending import GOLDEN, shouted

MATCH = Match('A "b" & <c>', "D & <e>", 'm"1.tmx#5', 96, exact=False)
PLAIN = Translation("", "", (), 0.0)
KNOWN = {
    "exact": replace(PLAIN, kind="exact match", match=replace(MATCH, score=100, exact=True), certainty=100),
    "repaired": replace(PLAIN, kind="repaired match", match=MATCH, certainty=94),
    "decoded": replace(
        PLAIN,
        kind="with memory",
        match=replace(MATCH, score=71),
        warnings=(Caution(SourceKeptWarning, "look\n<here>"),),
    ),
    "alone": replace(PLAIN, kind="model alone"),
}
REMARKS = {
    "exact": "knnmt: exact match; certainty 100%",
    "repaired": "knnmt: repaired match; match 96%; certainty 94%",
    "decoded": "knnmt: with memory; closest match 71%; warning: look <here>",
    "alone": "knnmt: model alone",
}


def translated(document: Document, kind: str, with_remarks: bool = True) -> bytes:
    def translate(texts: Sequence[Marked], *_: object) -> list[Translation]:
        return [replace(KNOWN[kind], marked=shouted(text)) for text in texts]

    with Kept(None, "") as kept:
        return translate_document(document, translate, kept, True, with_remarks=with_remarks).data


Opened = Callable[[str, bytes], Document]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    def open_again(name: str, data: bytes) -> Document:
        (tmp_path / name).write_bytes(data)
        return open_document(tmp_path / name, ("de", "en"))

    return open_again


@pytest.mark.parametrize("kind", KNOWN)
@pytest.mark.parametrize(
    "name",
    [
        "catalog.po",
        "plain.xlf",
        "segments.xliff",
        "app.ts",
        "memory.tmx",
        "trados.sdlxliff",
        "memoq.mqxliff",
        "app.json",
    ],
)
def test_a_later_run_replaces_the_remarks_of_an_earlier_one(name: str, kind: str, opened: Opened) -> None:
    original = (GOLDEN / name).read_bytes()
    document = opened(name, original)
    first = translated(document, kind)
    again = opened(name, first)
    assert [unit.source for unit in again.units] == [unit.source for unit in document.units] or not document.bilingual
    assert translated(opened(name, translated(again, "alone")), kind) == translated(again, kind) == first
    returns = opened(name, original.replace(b"\n", b"\r\n"))
    assert translated(returns, kind).replace(b"\r\n", b"\n") == first.replace(b"\r\n", b"\n")
    assert b"\n" not in translated(returns, kind).replace(b"\r\n", b"")


def test_a_catalog_gets_comments_above_everything_else_of_an_entry(opened: Opened) -> None:
    header = 'msgid ""\nmsgstr "Language: en\\n"\n\n'
    plural = 'msgid "zwei"\nmsgid_plural "drei"\nmsgstr[0] "{}"\nmsgstr[1] "{}"\n'
    text = f'{header}# ours\n#: a.py:1\nmsgid "eins"\nmsgstr ""\n\n{plural.format("", "")}'
    data = translated(opened("a.po", text.encode()), "decoded").decode()
    remark = f"# {REMARKS['decoded']}\n"
    assert data == (
        f'{header}{remark}# ours\n#: a.py:1\n#, fuzzy\nmsgid "eins"\nmsgstr "EINS"\n\n'
        f"{remark}#, fuzzy\n{plural.format('ZWEI', 'DREI')}"
    )
    first, second = polib.pofile(data)
    assert (first.tcomment, second.tcomment) == (f"{REMARKS['decoded']}\nours", REMARKS["decoded"])
    assert "knnmt" not in translated(opened("a.po", data.encode()), "alone", with_remarks=False).decode()


XLIFF_1 = '<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><file><body>{}</body></file></xliff>'


@pytest.mark.parametrize(
    ("kind", "qualifier", "score"),
    [("exact", "exact-match", "100"), ("repaired", "fuzzy-match", "96"), ("decoded", "mt-suggestion", "71")],
)
def test_xliff_1_has_the_segment_of_the_memory_with_its_quality(
    kind: str, qualifier: str, score: str, opened: Opened
) -> None:
    unit = '\n  <trans-unit id="a">\n    <source>Ja.</source>\n    <note>old</note>\n  </trans-unit>\n'
    data = translated(opened("a.xlf", XLIFF_1.format(unit).encode()), kind)
    [found] = etree.fromstring(data).iter("{*}trans-unit")
    assert [etree.QName(each).localname for each in found] == ["source", "target", "alt-trans", "note", "note"]
    _, target, candidate, remark, _ = found
    assert (target.get("state"), target.get("state-qualifier")) == ("needs-review-translation", qualifier)
    assert (candidate.get("match-quality"), candidate.get("origin")) == (score, MATCH.origin)
    assert [each.text for each in candidate] == [MATCH.source, MATCH.target]
    assert (remark.get("from"), remark.get("annotates"), remark.text) == ("knnmt", "target", REMARKS[kind])
    assert data.decode().count("\n    <") == 5
    plain = translated(opened("a.xlf", XLIFF_1.format(unit).encode()), kind, with_remarks=False).decode()
    assert f'state-qualifier="{qualifier}"' in plain
    assert "alt-trans" not in plain


def test_segments_of_xliff_1_each_have_their_own(opened: Opened) -> None:
    marks = '<mrk mtype="seg" mid="x1">Ja.</mrk> <mrk mtype="seg" mid="x2">Nein.</mrk>'
    unit = f'<trans-unit id="a"><source>Ja. Nein.</source><seg-source>{marks}</seg-source></trans-unit>'
    [found] = etree.fromstring(translated(opened("a.xlf", XLIFF_1.format(unit).encode()), "decoded")).iter(
        "{*}trans-unit"
    )
    assert [each.get("mid") for each in found.iter("{*}alt-trans")] == ["x1", "x2"]
    assert [each.text for each in found.iter("{*}note")] == [
        REMARKS["decoded"].replace("knnmt: ", f"knnmt: segment {mid}: ") for mid in ("x1", "x2")
    ]


UNIT_2 = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="de"><file id="f">'
    '<unit id="u">{}</unit></file></xliff>'
)
SEGMENT = "<segment><source>Ja.</source></segment>"
MTC = 'xmlns:m="urn:oasis:names:tc:xliff:matches:2.0"'


@pytest.mark.parametrize(
    ("inside", "order"),
    [
        (SEGMENT, "matches notes segment"),
        (f"<notes><note>x</note></notes>{SEGMENT}", "matches notes segment"),
        (f'<originalData><data id="d"/></originalData>{SEGMENT}', "matches notes originalData segment"),
        (
            f'<m:matches {MTC}><m:match ref="#x"><source>A</source><target>B</target></m:match></m:matches>{SEGMENT}',
            "matches notes segment",
        ),
    ],
)
def test_xliff_2_has_candidates_of_the_matches_module(inside: str, order: str, opened: Opened) -> None:
    data = translated(opened("a.xlf", UNIT_2.format(inside).encode()), "repaired")
    [unit] = etree.fromstring(data).iter("{*}unit")
    assert " ".join(etree.QName(each).localname for each in unit) == order
    [segment] = unit.iter("{*}segment")
    match = list(unit.iter("{urn:oasis:names:tc:xliff:matches:2.0}match"))[-1]
    assert match.get("ref") == f"#{segment.get('id')}" == "#s1"
    assert (match.get("matchQuality"), match.get("similarity"), match.get("type")) == ("96", "96", "tm")
    assert [(each.tag.split("}")[0], each.text) for each in match] == [
        ("{urn:oasis:names:tc:xliff:document:2.0", MATCH.source),
        ("{urn:oasis:names:tc:xliff:document:2.0", MATCH.target),
    ]
    note = list(unit.iter("{*}note"))[-1]
    assert (note.get("appliesTo"), note.text) == ("target", REMARKS["repaired"])


@pytest.mark.parametrize(("kind", "attributes"), [("exact", 'origin="tm" percent="100"'), ("decoded", 'origin="mt"')])
def test_a_file_of_trados_has_origin_and_percent_without_remarks(kind: str, attributes: str, opened: Opened) -> None:
    original = (GOLDEN / "trados.sdlxliff").read_bytes()
    for with_remarks in (False, True):
        data = translated(opened("a.sdlxliff", original), kind, with_remarks).decode()
        assert f'<sdl:seg id="2" conf="Draft" {attributes}/>' in data
        assert "<note" not in data
    stale = original.replace(b'id="3" origin="source"', b'id="3" origin="tm" percent="80"')
    percent = "100" if kind == "exact" else "0"
    assert f'percent="{percent}" conf="Draft"></sdl:seg>' in translated(opened("b.sdlxliff", stale), kind).decode()


@pytest.mark.parametrize(("kind", "percent"), [("repaired", ' mq:percent="96"'), ("decoded", "")])
def test_a_file_of_memoq_has_the_percent(kind: str, percent: str, opened: Opened) -> None:
    data = translated(opened("a.mqxliff", (GOLDEN / "memoq.mqxliff").read_bytes()), kind).decode()
    assert f'<trans-unit id="1" mq:status="PartiallyEdited" mq:locked="no"{percent}>' in data


def test_catalogs_of_qt_and_memories_have_their_comments(opened: Opened) -> None:
    message = "<message><source>Ja.</source>{}<translation type='unfinished'></translation></message>"
    catalog = "<TS language='en'><context>" + message + "</context></TS>"
    data = translated(opened("a.ts", catalog.format("").encode()), "decoded").decode()
    said = REMARKS["decoded"].replace("<", "&lt;")
    assert f"</source><translatorcomment>{said}</translatorcomment><translation" in data
    own = translated(opened("a.ts", catalog.format("<translatorcomment>by hand</translatorcomment>").encode()), "alone")
    assert f"<translatorcomment>by hand\n{REMARKS['alone']}</translatorcomment>" in own.decode()
    unit = '<tu><tuv xml:lang="de"><seg>Ja.</seg></tuv></tu>'
    memory = f'<tmx version="1.4"><header srclang="de"/><body>{unit}</body></tmx>'
    data = translated(opened("a.tmx", memory.encode()), "exact").decode()
    assert f'<tuv xml:lang="en" creationtool="knnmt"><note>{REMARKS["exact"]}</note><seg>JA.</seg></tuv>' in data
