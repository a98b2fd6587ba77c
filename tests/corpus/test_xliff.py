from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.documents.document import State
from knnmt.documents.opening import open_document
from knnmt.errors import MalformedMemoryError
from support.memories import contexts, read, read_with_origins


def version_1(*content: str, source: str | None = "de-DE", target: str | None = "en-GB") -> str:
    languages = (f' source-language="{source}"' if source else "") + (f' target-language="{target}"' if target else "")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" '
        'xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0">\n'
        f'<file original="brief.txt" datatype="plaintext"{languages}>\n<header/>\n<body>\n'
        + "\n".join(content)
        + "\n</body></file></xliff>"
    )


def version_2(*content: str, source: str = "de", target: str = "en", namespace: str = "2.0") -> str:
    return (
        f'<xliff version="{namespace}" xmlns="urn:oasis:names:tc:xliff:document:{namespace}" '
        f'xmlns:m="urn:beispiel:modul" srcLang="{source}" trgLang="{target}">\n<file id="f1">'
        + "\n".join(content)
        + "</file></xliff>"
    )


def test_version_1_units_in_groups_without_alternatives_and_notes(tmp_path: Path) -> None:
    content = version_1(
        '<trans-unit id="1"><sdl:source>fremd</sdl:source><source>Der Hof</source>'
        '<target state="translated">The yard</target>'
        "<note>Ein Hinweis</note><alt-trans><source>Hof</source><target>court</target></alt-trans></trans-unit>",
        '<group id="g"><group><trans-unit id="2"><source>Das Dach</source><target state="final">The roof</target>'
        "</trans-unit></group></group>",
        '<trans-unit><source>Die Wand</source><target state="signed-off">The wall</target></trans-unit>',
    )
    pairs, report = read_with_origins(tmp_path / "a.xlf", content)
    assert pairs == [
        ("Der Hof", "The yard", "brief.txt/1"),
        ("Das Dach", "The roof", "brief.txt/2"),
        ("Die Wand", "The wall", "brief.txt/unit3"),
    ]
    assert not report.skipped
    assert not report.noted


def test_what_a_unit_says_of_its_use_is_its_context(tmp_path: Path) -> None:
    group = (
        '<context-group purpose="location"><context context-type="sourcefile">a.c</context>'
        '<context context-type="linenumber">7</context></context-group>'
        '<context-group><context context-type="x-before"> Ja </context><context/></context-group>'
    )
    content = version_1(
        f'<trans-unit id="1" resname="button.yard"><source>Hof</source><target>Yard</target>{group}</trans-unit>',
        '<trans-unit id="2" name="nothing"><source>Dach</source><target>Roof</target></trans-unit>',
    )
    assert contexts(tmp_path / "a.xlf", content) == ["button.yard\nJa", ""]
    unit = '<unit id="u" name="label.roof"><segment><source>Dach</source><target>Roof</target></segment></unit>'
    assert contexts(tmp_path / "b.xlf", version_2(unit, unit.replace(' name="label.roof"', ""))) == ["label.roof", ""]


def test_version_1_states(tmp_path: Path) -> None:
    content = version_1(
        '<trans-unit id="1"><source>a</source><target state="needs-translation">A</target></trans-unit>',
        '<trans-unit id="2" approved="yes"><source>b</source><target state="needs-review-l10n">B</target></trans-unit>',
        '<trans-unit id="3" approved="no"><source>c</source><target>C</target></trans-unit>',
        '<trans-unit id="4"><source>d</source><target state="new"> </target></trans-unit>',
        '<trans-unit id="5"><source>e</source></trans-unit>',
        '<trans-unit id="6" translate="no"><source>f</source><target state="final">F</target></trans-unit>',
        '<group translate="no"><trans-unit id="7"><source>g</source><target state="final">G</target></trans-unit>'
        '<trans-unit id="8" translate="yes"><source>h</source><target state="final">H</target></trans-unit></group>',
        '<trans-unit id="9"><source> </source><target state="final">I</target></trans-unit>',
    )
    pairs, report = read(tmp_path / "a.xlf", content)
    assert pairs == [("b", "B"), ("c", "C"), ("h", "H")]
    assert report.skipped == {
        "state needs-translation": 1,
        "untranslated": 2,
        'marked translate="no"': 2,
        "empty source or target": 1,
    }
    assert report.noted == {"target without state, taken as translated": 1}
    pairs, report = read(tmp_path / "a.xlf", content, unfinished=True)
    assert pairs == [("a", "A"), ("b", "B"), ("c", "C"), ("h", "H")]
    assert report.noted["state needs-translation, included on request"] == 1


SDL = version_1(
    '<trans-unit id="u1"><source>Eins. Zwei. Drei. Vier. Fünf.</source>'
    '<seg-source><g id="5"><mrk mtype="seg" mid="1">Eins.</mrk> <mrk mtype="seg" mid="2">Zwei.</mrk></g> '
    '<mrk mtype="seg" mid="3">Drei.</mrk> <mrk mtype="seg" mid="4">Vier.</mrk> <mrk mtype="seg" mid="5">Fünf.</mrk> '
    '<mrk mtype="seg" mid="6">Sechs.</mrk></seg-source>'
    '<target><mrk mtype="seg" mid="2">Two.</mrk> <g id="5"><mrk mtype="seg" mid="1">One<x id="9"/>.</mrk></g> '
    '<mrk mtype="seg" mid="3">Three.</mrk> <mrk mtype="seg" mid="4">Four.</mrk><mrk mtype="seg" mid="5"/>'
    '<mrk mtype="seg" mid="6">Six.</mrk><mrk mtype="seg" mid="7">Seven.</mrk></target>'
    '<sdl:seg-defs><sdl:seg id="1" conf="Translated"/><sdl:seg id="2" conf="ApprovedSignOff"/>'
    '<sdl:seg id="3" conf="Draft"/><sdl:seg id="4"/><sdl:seg id="5" conf="Translated"/>'
    '<sdl:seg id="6" conf="ApprovedTranslation"/></sdl:seg-defs></trans-unit>'
)


def test_sdl_segments_with_their_confirmation(tmp_path: Path) -> None:
    pairs, report = read_with_origins(tmp_path / "a.sdlxliff", "\ufeff" + SDL)
    assert pairs == [
        ("Eins.", "One.", "brief.txt/u1/1"),
        ("Zwei.", "Two.", "brief.txt/u1/2"),
        ("Sechs.", "Six.", "brief.txt/u1/6"),
    ]
    assert report.skipped == {
        "state Draft": 1,
        "state unspecified": 1,
        "untranslated": 1,
        "target segment without source": 1,
    }
    unfinished, _ = read(tmp_path / "a.sdlxliff", SDL, unfinished=True)
    assert unfinished == [
        ("Eins.", "One."), ("Zwei.", "Two."), ("Drei.", "Three."), ("Vier.", "Four."), ("Sechs.", "Six."),
    ]  # fmt: skip


def test_version_1_segments_without_definitions_share_the_state_of_the_target(tmp_path: Path) -> None:
    source = (
        "<source>Ja. Nein.</source>"
        '<seg-source><mrk mtype="seg" mid="a"><mrk mtype="x-t">Ja</mrk>.</mrk> '
        '<mrk mtype="seg" mid="b">Nein.</mrk></seg-source>'
    )
    marked = '<mrk mtype="seg" mid="a">Yes.</mrk> <mrk mtype="seg" mid="b">No.</mrk>'
    content = version_1(
        f'<trans-unit id="1">{source}<target state="final">{marked}</target></trans-unit>',
        f'<trans-unit id="2">{source}<target state="new">{marked}</target></trans-unit>',
        f'<trans-unit id="3">{source}<target state="final">Yes. No.</target></trans-unit>',
        f'<trans-unit id="4">{source}</trans-unit>',
    )
    pairs, report = read_with_origins(tmp_path / "a.xlf", content)
    assert pairs == [
        ("Ja.", "Yes.", "brief.txt/1/a"),
        ("Nein.", "No.", "brief.txt/1/b"),
        ("Ja. Nein.", "Yes. No.", "brief.txt/3"),
    ]
    assert report.skipped == {"state new": 2, "untranslated": 2}


def test_version_1_inline_elements(tmp_path: Path) -> None:
    content = version_1(
        '<trans-unit id="1"><source>Der <g id="1">rote <mrk mtype="term">Hahn</mrk></g><x id="2"/> kräht'
        '<ph id="3">%s</ph><bpt id="4">[</bpt>laut<ept id="4">]</ept><it id="5" pos="open">|</it></source>'
        '<target state="final">The <g id="1">red cock</g><bx id="6"/> crows<ex id="6"/><ph id="3">%s</ph>'
        "<!-- laut --><![CDATA[ <loud>]]></target></trans-unit>"
    )
    assert read(tmp_path / "a.xlf", content)[0] == [("Der rote Hahn kräht%slaut", "The red cock crows%s <loud>")]
    kept, _ = read(tmp_path / "a.xlf", content, inline="keep")
    assert kept == [("Der rote Hahn kräht%s[laut]|", "The red cock crows%s <loud>")]


@pytest.mark.parametrize("namespace", ["2.0", "2.1", "2.2"])
def test_version_2_segments_and_states(tmp_path: Path, namespace: str) -> None:
    content = version_2(
        '<notes><note>Hinweis</note></notes><group id="g"><unit id="u1">'
        "<m:matches><m:match><source>fremd</source><target>foreign</target></m:match></m:matches>"
        '<segment id="s1" state="translated"><source>Eins. </source><target order="2">One. </target></segment>'
        "<ignorable><source> </source><target> </target></ignorable>"
        '<segment state="reviewed"><source>Zwei.</source><target>Two.</target></segment>'
        '<segment id="s3" state="initial"><source>Drei.</source><target>Three.</target></segment>'
        '<segment id="s4"><source>Vier.</source><target>Four.</target></segment>'
        '<segment id="s5" state="final"><source>Fünf.</source></segment></unit></group>',
        '<unit id="u2"><segment id="s" state="final"><source>Allein</source><target>Alone</target></segment></unit>',
        '<unit id="u3" translate="no"><segment state="final"><source>K7</source><target>K7</target></segment></unit>',
        namespace=namespace,
    )
    pairs, report = read_with_origins(tmp_path / "a.xlf", content)
    assert pairs == [
        ("Eins. ", "One. ", "f1/u1/s1"),
        ("Zwei.", "Two.", "f1/u1/2"),
        ("Vier.", "Four.", "f1/u1/s4"),
        ("Allein", "Alone", "f1/u2"),
    ]
    assert report.skipped == {"ignorable": 1, "state initial": 1, "untranslated": 1, 'marked translate="no"': 1}
    assert report.noted == {"target without state, taken as translated": 1}
    assert len(read(tmp_path / "a.xlf", content, unfinished=True)[0]) == 5


def test_version_2_inline_elements(tmp_path: Path) -> None:
    content = version_2(
        '<unit id="u"><originalData><data id="d1">&lt;b></data><data id="d2">&lt;/b></data><data id="d3">%d</data>'
        '</originalData><segment state="final">'
        '<source><pc id="1" dataRefStart="d1" dataRefEnd="d2">Alle <mrk id="m" type="term">Hähne</mrk></pc> '
        '<ph id="2" dataRef="d3"/>krähen<cp hex="0007"/><sc id="3" dataRef="d1"/>!<ec startRef="3" dataRef="d2"/>'
        '</source><target>All <pc id="1" dataRefStart="d1" dataRefEnd="d2">cocks</pc> crow</target></segment></unit>'
    )
    assert read(tmp_path / "a.xlf", content)[0] == [("Alle Hähne %dkrähen\x07!", "All cocks crow")]
    kept, _ = read(tmp_path / "a.xlf", content, inline="keep")
    assert kept == [("<b>Alle Hähne</b> %dkrähen\x07<b>!</b>", "All <b>cocks</b> crow")]


UNIT = '<trans-unit id="1"><source>links</source><target state="final">rechts</target></trans-unit>'


@pytest.mark.parametrize(
    ("source", "target", "expected", "skipped", "noted"),
    [
        ("de", "en", [("links", "rechts")], {}, {}),
        ("en-US", "de-AT", [("rechts", "links")], {}, {"file is en-US to de-AT, sides swapped": 1}),
        ("fr", "en", [], {"file is fr to en": 1}, {}),
        ("de", None, [("links", "rechts")], {}, {"file is de to unstated, included on request": 1}),
        ("it", None, [], {"file is it to unstated": 1}, {}),
    ],
)
def test_languages_of_the_file_decide(
    tmp_path: Path,
    source: str,
    target: str | None,
    expected: list[tuple[str, str]],
    skipped: dict[str, int],
    noted: dict[str, int],
) -> None:
    pairs, report = read(tmp_path / "a.xlf", version_1(UNIT, source=source, target=target))
    assert (pairs, report.skipped, report.noted) == (expected, skipped, noted)


def test_languages_of_version_2_decide(tmp_path: Path) -> None:
    content = version_2(
        '<unit id="1"><segment state="final"><source>a</source><target>b</target></segment>'
        '<segment state="final"><source>c</source><target>d</target></segment></unit>',
        source="en",
        target="fr",
    )
    pairs, report = read(tmp_path / "a.xlf", content)
    assert (pairs, report.skipped) == ([], {"file is en to fr": 2})
    assert read(tmp_path / "a.xlf", content, source_language="fr")[0] == [("b", "a"), ("d", "c")]


MALFORMED = {
    "unit 1: expected a <source>, found none": version_1('<trans-unit id="1"><target>x</target></trans-unit>', UNIT),
    "unit 1: expected <mrk": version_1(
        '<trans-unit id="1"><source>a</source><seg-source><mrk mtype="seg" mid="1">a</mrk><mrk mtype="seg" mid="1">b'
        "</mrk></seg-source></trans-unit>",
        UNIT,
    ),
    "unit 1: expected a <segment>, found none": version_2('<unit id="1"/>'),
    "unit 1: expected a <source> in every <segment>": version_2(
        '<unit id="1"><segment><target>x</target></segment></unit>'
    ),
    "unit 1: expected <cp> with the hexadecimal code of a character, found hex='zz'": version_2(
        '<unit id="1"><segment><source>a<cp hex="zz"/></source><target>x</target></segment></unit>'
    ),
}


@pytest.mark.parametrize("message", MALFORMED)
def test_malformed_units_stop_or_are_counted(tmp_path: Path, message: str) -> None:
    with pytest.raises(MalformedMemoryError, match=rf"a\.xlf, line \d+, {message}"):
        read(tmp_path / "a.xlf", MALFORMED[message])
    pairs, report = read(tmp_path / "a.xlf", MALFORMED[message], on_error="skip")
    assert pairs == ([("links", "rechts")] if UNIT in MALFORMED[message] else [])
    assert report.malformed == 1
    assert message in report.problems[0]


def test_broken_xml_and_entities(tmp_path: Path) -> None:
    broken = '<trans-unit id="0"><source>a & b</source><target state="final">x</target></trans-unit>'
    with pytest.raises(MalformedMemoryError, match=r"a\.xlf, line 7: expected well-formed XML"):
        read(tmp_path / "a.xlf", version_1(UNIT, broken))
    pairs, report = read(tmp_path / "a.xlf", version_1(UNIT, broken, UNIT), on_error="skip")
    assert pairs == [("links", "rechts")] * 2
    assert (report.malformed, report.skipped) == (1, {"unit with broken XML": 1})
    declared = version_1(UNIT).replace("<xliff", '<!DOCTYPE xliff [<!ENTITY x "y">]>\n<xliff', 1)
    with pytest.raises(MalformedMemoryError, match="declares the entity 'x'"):
        read(tmp_path / "a.xlf", declared)


def test_an_embedded_original_is_passed_over(tmp_path: Path) -> None:
    embedded = f"<header><reference><internal-file>{'QUJD' * 3_000_000}</internal-file></reference></header>"
    content = version_1(UNIT).replace("<header/>", embedded)
    assert read(tmp_path / "a.sdlxliff", content)[0] == [("links", "rechts")]


MEMOQ = '<trans-unit id="{0}" mq:status="{0}"{1}><source>eins {0}</source><target>one {0}</target></trans-unit>'


def test_memoq_states_what_a_person_has_confirmed(tmp_path: Path) -> None:
    """Trap: its targets have no state of XLIFF, and such targets count as translated."""
    finished = ["ManuallyConfirmed", "ConfirmedTranslator", "ConfirmedReviewer1", "Proofread"]
    others = ["Pretranslated", "PartiallyEdited", "NotStarted", "Rejected"]
    units = [MEMOQ.format(status, "") for status in [*finished, *others]]
    content = version_1(*units, MEMOQ.format("Edited", ' approved="yes"')).replace(
        "xmlns:sdl", 'xmlns:mq="MQXliff" xmlns:sdl'
    )
    pairs, report = read(tmp_path / "a.mqxliff", content)
    assert pairs == [(f"eins {status}", f"one {status}") for status in finished]
    assert report.skipped == {f"state {status}": 1 for status in [*others, "Edited"]}
    document = open_document(tmp_path / "a.mqxliff")
    assert [unit.id for unit in document.units if unit.state is State.TRANSLATED] == finished
