"""Inline codes in the manner of several tools, in TMX and XLIFF."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.inline import visible_text
from support.memories import read

TMX = (
    '<?xml version="1.0"?><tmx version="1.4"><header creationtool="hand" adminlang="en" srclang="de" '
    'datatype="xml"/><body><tu><tuv xml:lang="de"><seg>{}</seg></tuv><tuv xml:lang="en"><seg>{}</seg></tuv></tu>'
    "</body></tmx>"
)
XLIFF_1 = (
    '<?xml version="1.0"?><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" '
    'xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"><file original="a" source-language="de" target-language="en" '
    'datatype="x"><header><sdl:tag-defs><sdl:tag id="7"><sdl:ph name="code">{{code}}</sdl:ph></sdl:tag>'
    '<sdl:tag id="8"><sdl:ph name="br">&lt;br/&gt;</sdl:ph></sdl:tag></sdl:tag-defs></header><body>'
    '<trans-unit id="1"><source>{}</source><target state="final">{}</target></trans-unit></body></file></xliff>'
)
XLIFF_2 = (
    '<?xml version="1.0"?><xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="de" '
    'trgLang="en"><file id="f"><unit id="u"><originalData><data id="d1">%s</data><data id="d2">&lt;br/&gt;</data>'
    '</originalData><segment state="final"><source>{}</source><target>{}</target></segment></unit></file></xliff>'
)

KEPT = ("Zum Behalten von {0} auf Speichern klicken.", "Click Save to keep {0}.")
EMPTY = ("Auf Speichern klicken.", "Click Save.")


@pytest.mark.parametrize(
    ("document", "source", "target", "expected"),
    [
        pytest.param(
            TMX,
            "Zum Behalten von <ph x='1'>{0}</ph> auf <bpt i='1'>&lt;b&gt;</bpt>Speichern<ept i='1'>&lt;/b&gt;</ept> "
            "klicken.",
            "Click <bpt i='1'>&lt;b&gt;</bpt>Save<ept i='1'>&lt;/b&gt;</ept> to keep <ph x='1'>{0}</ph>.",
            KEPT,
            id="a placeholder",
        ),
        pytest.param(
            TMX,
            "Zum Behalten von <ph x='1'>{0}</ph> auf Speichern klicken.",
            "Click Save to keep <ph x='1'/>.",
            KEPT,
            id="a placeholder that only one side writes out",
        ),
        pytest.param(
            TMX,
            "Auf <bpt i='1' type='bold'>{}</bpt>Speichern<ept i='1'>{}</ept> <ph type='img'>&lt;img/&gt;</ph> klicken.",
            "Click <bpt i='1' type='bold'>{}</bpt>Save<ept i='1'>{}</ept> <ph type='img'>&lt;img/&gt;</ph>.",
            EMPTY,
            id="memoQ",
        ),
        pytest.param(
            TMX,
            "Auf <bpt i='0' x='0'>&lt;a0&gt;</bpt>Speichern<ept i='0'>&lt;/a0&gt;</ept> klicken.",
            "Click <bpt i='0' x='0'>&lt;a0&gt;</bpt>Save<ept i='0'>&lt;/a0&gt;</ept> <ph x='1'>&lt;x1/&gt;</ph>.",
            EMPTY,
            id="OmegaT",
        ),
        pytest.param(
            TMX,
            "Auf <bpt i='1' type='1' x='1'/>Speichern<ept i='1'/> klicken. <ph x='2' type='2'/>",
            "<ph x='2' type='2'/> Click <bpt i='1' type='1' x='1'/>Save<ept i='1'/>.",
            EMPTY,
            id="Trados Studio",
        ),
        pytest.param(
            TMX,
            "Auf <ut>{\\cs6\\f1\\cf6\\lang1024 &lt;b&gt;}</ut>Speichern<ut>{\\cs6 &lt;/b&gt;}</ut> klicken.",
            "Click <ut>{\\b </ut>Save<ut>}</ut>.",
            EMPTY,
            id="Trados Workbench",
        ),
        pytest.param(
            TMX,
            "Hallo!<ph x='1' type='0'/>Welt",
            "Hello!<ph>&lt;br&gt;</ph>World",
            ("Hallo! Welt", "Hello! World"),
            id="a line break",
        ),
        pytest.param(
            TMX,
            "un<bpt i='1'>&lt;i&gt;</bpt>glaub<ept i='1'>&lt;/i&gt;</ept>lich (<it pos='begin'>&lt;u&gt;</it>ja)",
            "un<hi>believ</hi>able (<ph/>yes)",
            ("unglaublich (ja)", "unbelievable (yes)"),
            id="inside words and brackets",
        ),
        pytest.param(
            TMX,
            "Hier<ph x='1'>&lt;img alt=&quot;<sub>ein Vogel</sub>&quot;/&gt;</ph>.",
            "Here <ph x='1'>&lt;img alt=&quot;<sub>a bird</sub>&quot;/&gt;</ph>.",
            ("Hier ein Vogel.", "Here a bird."),
            id="text inside of mark-up",
        ),
        pytest.param(
            XLIFF_1,
            'Zum Behalten von <x id="INTERPOLATION" equiv-text="{{0}}"/> auf '
            '<x id="START_BOLD" equiv-text="&lt;b&gt;"/>Speichern<x id="CLOSE_BOLD" equiv-text="&lt;/b&gt;"/> klicken.',
            'Click <g id="2">Save</g> to keep <x id="INTERPOLATION"/>.',
            ("Zum Behalten von {{0}} auf Speichern klicken.", "Click Save to keep {{0}}."),
            id="Angular",
        ),
        pytest.param(
            XLIFF_1,
            'Zum Behalten von <x id="7"/> auf <g id="3">Speichern</g> klicken.<x id="8"/>',
            'Click <g id="3">Save</g> to keep <x id="7"/>.<x id="8"/>',
            ("Zum Behalten von {code} auf Speichern klicken.", "Click Save to keep {code}."),
            id="SDLXLIFF",
        ),
        pytest.param(
            XLIFF_2,
            'Zum Behalten von <ph id="1" dataRef="d1"/> auf <pc id="2">Speichern</pc><ph id="3" dataRef="d2"/>klicken.',
            'Click <pc id="2"><mrk id="m">Save</mrk></pc> to keep <ph id="1"/>.',
            ("Zum Behalten von %s auf Speichern klicken.", "Click Save to keep %s."),
            id="original data",
        ),
        pytest.param(
            XLIFF_2,
            'Zum Behalten von <ph id="1" equiv="INTERPOLATION" disp="{{n}}"/> auf Speichern klicken.',
            'Click Save to keep <ph id="1" equiv="INTERPOLATION" disp="{{n}}"/><ph id="2" equiv="LINE_BREAK"/>.',
            ("Zum Behalten von {{n}} auf Speichern klicken.", "Click Save to keep {{n}}."),
            id="what is to be displayed",
        ),
    ],
)
def test_placeholders_stay_and_mark_up_leaves_whole_sentences(
    tmp_path: Path, document: str, source: str, target: str, expected: tuple[str, str]
) -> None:
    name = "a.tmx" if document is TMX else "a.xlf"
    before, between, after = document.split("{}")
    content = before.replace("{{code}}", "{code}") + source + between + target + after
    assert read(tmp_path / name, content)[0] == [expected]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("{0}", "{0}"),
        ("{}", "{}"),
        ("%1$s", "%1$s"),
        ("\\n", "\\n"),
        ("C:\\temp", "C:\\temp"),
        ("<code>run()</code>", "run()"),
        (" ", " "),
        ("", ""),
        ("<b> <i>", ""),
        ("{\\b ", ""),
        ("\\tab ", ""),
        ("}", ""),
    ],
)
def test_what_of_a_code_is_text(code: str, text: str) -> None:
    assert visible_text(code) == text
