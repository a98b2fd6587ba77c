"""Texts and documents that are made to be slow to read, of any length. A seed makes the same ones again."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator
from random import Random
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from support.pattern_paths import Automaton, alternatives

Make = Callable[[int], str]
"""From a length to about so many characters."""

_PIECES = (
    *"()<>{}[]\"'„“‚‘%0aA1.!?…:;,\n\t \\/|@#$&_-=+*~`^€\u00a0\u0301中。）ㅎ",
    *("1 ", "1,", "1.", "a.", "A. ", ". ", "! ", "Nr. ", "a_", "_ ", "- ", "\n\n", "\n- ", " \n", "a b "),
    *("{0}", "{0", "{{", "${", "{a, plural, ", "one {", "'{", "%s", "%(", "%1$", "%-0", "%%", "%<b>", "$(a", "&amp;"),
    *("&#", "&lt;b&gt;", "<b>", "</b>", "<b ", "<b a=", '<b a="', "<b/>", "<!--", "-->", "<![CDATA[", "]]>", "<?a "),
    *("<br>", "<g id='1'>", "<bpt i='1'>", "</ept>", "http://", "a@b.", "www.a", "C:\\a", "\\n", "../a", "a-b", "ab"),
)
"""What the readers of texts look for, whole and in part."""


def texts(seed: int, pairs: int) -> Iterator[tuple[str, Make]]:
    """Each piece repeated, with and without a number; and of pairs of pieces some repeated and some one after the
    other.
    """
    chance = Random(seed)
    for piece in _PIECES:
        yield f"{piece!r} repeated", repeated(piece)
        yield f"{piece!r} with numbers", numbered(piece)
        yield f"{piece!r} and an end", lambda length, piece=piece: f"a {repeated(piece)(length)} b!"  # type: ignore[misc]
    for _ in range(pairs):
        one, other = chance.choices(_PIECES, k=2)
        yield f"{one + other!r} repeated", repeated(one + other)
        yield (
            f"many {one!r}, then many {other!r}",
            lambda length, one=one, other=other: repeated(one)(length // 2) + repeated(other)(length // 2),  # type: ignore[misc]
        )


def repeated(piece: str) -> Make:
    return lambda length: piece * (length // len(piece))


def numbered(piece: str) -> Make:
    """The same piece with numbers behind it, no two of which are equal."""
    return lambda length: "".join(f"{piece}{number} " for number in range(length // (len(piece) + 6)))


def texts_for(pattern: re.Pattern[Any], seed: int, count: int) -> Iterator[tuple[str, Make]]:
    """Words that a pattern reads, or nearly, repeated."""
    chance = Random(seed)
    tree = parser.parse(pattern.pattern, pattern.flags)
    is_bytes = isinstance(pattern.pattern, bytes)
    automata = [Automaton(each, tree.state, pattern.flags, is_bytes) for each in alternatives(tree)]
    words = dict.fromkeys(each for automaton in automata for each in sorted(automaton.alphabet)[:20])
    for _ in range(count):
        words[_walked(chance.choice(automata), chance)] = None
    for word in filter(None, words):
        yield f"{word!r} repeated", repeated(word)


def _walked(automaton: Automaton, chance: Random) -> str:
    """A word on some way through an automaton."""
    word, position = "", -1
    for _ in range(chance.randint(1, 6)):
        steps = sorted(automaton.steps(position, word[-1:]))
        if not steps:
            break
        position, character = chance.choice(steps)
        word += character
    return word


_XLIFF = (
    '<xliff version="1.2"><file source-language="de" target-language="en" original="{of}">'
    "<body>{units}</body></file></xliff>"
)
_XLIFF_2 = '<xliff version="2.0" srcLang="de" trgLang="en"><file id="{of}">{units}</file></xliff>'
_TMX = '<tmx version="1.4"><header srclang="de"/><body>{units}</body></tmx>'
_TS = '<TS sourcelanguage="de" language="en"><context><name>{of}</name>{units}</context></TS>'
_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_SEGMENT = '<mrk mtype="seg" mid="{n}">Datei {n}</mrk>'


def documents() -> Iterator[tuple[str, str, Callable[[int], bytes]]]:
    """(what it is, the name of the file, from a length to its content)"""
    for name, file, whole, piece in _DOCUMENTS:
        yield name, file, lambda length, whole=whole, piece=piece: _document(whole, piece, length)  # type: ignore[misc]
    yield "a paragraph of runs", "a.docx", lambda length: _docx("<w:r><w:t>Datei {n}</w:t></w:r>", "", length)
    yield (
        "runs of many formats",
        "a.docx",
        lambda length: _docx('<w:r><w:rPr><w:sz w:val="{n}"/></w:rPr><w:t>a {n}</w:t></w:r>', "", length),
    )
    yield "a run of breaks, with a long format", "a.docx", lambda length: _docx("<w:br/>", "l", length)
    yield (
        "fields that do not end",
        "a.docx",
        lambda length: _docx('<w:r><w:fldChar w:fldCharType="begin"/></w:r>', "", length),
    )


def _document(whole: str, piece: str, length: int) -> bytes:
    """Half of the length is repeated pieces, half is one long text for each place {long} has."""
    long = "x" * (length // 2 if "{long}" in whole else 0)
    count = (length - len(long)) // len(piece)
    head, _, tail = whole.replace("{long}", long).partition("{pieces}")
    return (head + "".join(piece.replace("{n}", str(number)) for number in range(count)) + tail).encode()


def _docx(piece: str, kind: str, length: int) -> bytes:
    pieces = "".join(piece.replace("{n}", str(number)) for number in range(length // len(piece) // (2 if kind else 1)))
    if kind:
        pieces = f'<w:r><w:rPr><w:sz w:val="{"9" * (length // 2)}"/></w:rPr><w:t>Datei</w:t>{pieces}</w:r>'
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", f"<w:document {_W}><w:body><w:p>{pieces}</w:p></w:body></w:document>")
    return written.getvalue()


def _xliff(units: str, of: str = "a") -> str:
    return _XLIFF.replace("{of}", of).replace("{units}", units)


def _xliff_2(units: str, of: str = "a") -> str:
    return _XLIFF_2.replace("{of}", of).replace("{units}", units)


_UNIT = '<trans-unit id="{n}"><source>Datei {n}</source></trans-unit>'
_UNIT_2 = '<unit id="{n}"><segment><source>Datei {n}</source></segment></unit>'
_TU = '<tu><tuv xml:lang="de"><seg>Datei {n}</seg></tuv></tu>'
_MESSAGE = "<message><source>Datei {n}</source></message>"
_SEGMENTED = '<trans-unit id="1"><source>a</source><seg-source>{pieces}</seg-source>'
_DOCUMENTS = [
    ("messages", "a.po", "{pieces}", 'msgid "Datei {n}"\nmsgstr ""\n\n'),
    ("lines of a message", "a.po", 'msgid ""\n{pieces}msgstr ""\n', '"Datei {n} "\n'),
    ("lines of a translation", "a.po", 'msgid "a"\nmsgstr ""\n{pieces}', '"Datei {n} "\n'),
    ("comments of a message", "a.po", '{pieces}msgid "Datei"\nmsgstr ""\n', "#. a {n}\n"),
    ("flags of a message", "a.po", '#, a{pieces}\nmsgid "Datei"\nmsgstr ""\n', ", f{n}-format"),
    ("lines of flags", "a.po", '{pieces}msgid "Datei"\nmsgstr ""\n', "#, c-format\n"),
    ("remarks of a message", "a.po", '{pieces}msgid "Datei"\nmsgstr ""\n', "# knnmt: {n}\n"),
    ("plural forms", "a.po", "{pieces}", 'msgid "Datei {n}"\nmsgid_plural "Dateien"\nmsgstr[0] ""\nmsgstr[1] ""\n\n'),
    ("obsolete messages", "a.po", '{pieces}msgid "Datei"\nmsgstr ""\n', '#~ msgid "a {n}"\n#~ msgstr "b"\n'),
    ("units", "a.xlf", _xliff("{pieces}"), _UNIT),
    (
        "units in a file with a long name",
        "a.xlf",
        _xliff("{pieces}", "{long}").replace("</file>", '</file><file original="b"><body/></file>'),
        _UNIT,
    ),
    ("segments", "a.xlf", _xliff(_SEGMENTED + "</trans-unit>"), _SEGMENT),
    (
        "segments with a target",
        "a.xlf",
        _xliff(_SEGMENTED + '<target><mrk mtype="seg" mid="0"/></target></trans-unit>'),
        _SEGMENT,
    ),
    (
        "segments and contexts",
        "a.xlf",
        _xliff(_SEGMENTED + "<context-group><context>{long}</context></context-group></trans-unit>"),
        _SEGMENT,
    ),
    (
        "segments of a long unit's name",
        "a.xlf",
        _xliff(_SEGMENTED.replace('"1"', '"{long}"') + "</trans-unit>"),
        _SEGMENT,
    ),
    (
        "contexts of a unit",
        "a.xlf",
        _xliff('<trans-unit id="1"><source>a</source><context-group>{pieces}</context-group></trans-unit>'),
        "<context>a {n}</context>",
    ),
    ("codes", "a.xlf", _xliff('<trans-unit id="1"><source>{pieces}</source></trans-unit>'), 'Datei <x id="{n}"/>'),
    (
        "notes of an earlier run",
        "a.xlf",
        _xliff('<trans-unit id="1"><source>a</source>{pieces}</trans-unit>'),
        '<note from="knnmt">a {n}</note>',
    ),
    ("definitions", "a.xlf", _xliff(_SEGMENTED + "</trans-unit>"), _SEGMENT + '<sdl:seg id="{n}" xmlns:sdl="s"/>'),
    ("units", "a2.xlf", _xliff_2("{pieces}"), _UNIT_2),
    ("segments", "a2.xlf", _xliff_2('<unit id="1">{pieces}</unit>'), "<segment><source>Datei {n}</source></segment>"),
    (
        "segments of a long unit's name",
        "a2.xlf",
        _xliff_2('<unit id="{long}">{pieces}</unit>'),
        "<segment><source>Datei {n}</source></segment>",
    ),
    (
        "segments and a long name",
        "a2.xlf",
        _xliff_2('<unit id="1" name="{long}">{pieces}</unit>'),
        "<segment><source>Datei {n}</source></segment>",
    ),
    (
        "codes",
        "a2.xlf",
        _xliff_2('<unit id="1"><segment><source>{pieces}</source></segment></unit>'),
        'Datei <ph id="{n}"/>',
    ),
    (
        "notes of an earlier run",
        "a2.xlf",
        _xliff_2('<unit id="1"><notes>{pieces}</notes><segment><source>a</source></segment></unit>'),
        '<note id="knnmt-{n}">a</note>',
    ),
    ("units", "a.tmx", _TMX.replace("{units}", "{pieces}"), _TU),
    ("variants", "a.tmx", _TMX.replace("{units}", "<tu>{pieces}</tu>"), '<tuv xml:lang="de"><seg>a {n}</seg></tuv>'),
    ("languages", "a.tmx", _TMX.replace("{units}", "<tu>{pieces}</tu>"), '<tuv xml:lang="x{n}"><seg>a</seg></tuv>'),
    (
        "codes",
        "a.tmx",
        _TMX.replace("{units}", '<tu><tuv xml:lang="de"><seg>{pieces}</seg></tuv></tu>'),
        'Datei <ph x="{n}"/>',
    ),
    ("messages", "a.ts", _TS.replace("{of}", "a").replace("{units}", "{pieces}"), _MESSAGE),
    ("messages of a long context", "a.ts", _TS.replace("{of}", "{long}").replace("{units}", "{pieces}"), _MESSAGE),
    (
        "forms",
        "a.ts",
        _TS.replace("{of}", "a").replace(
            "{units}", '<message numerus="yes"><source>a</source><translation>{pieces}</translation></message>'
        ),
        "<numerusform/>",
    ),
    (
        "forms for messages",
        "a.ts",
        _TS.replace("{of}", "a").replace(
            "{units}",
            '<message numerus="yes"><source>a</source><translation>'
            + "<numerusform/>" * 99
            + "</translation></message>{pieces}",
        ),
        '<message numerus="yes"><source>a {n}</source></message>',
    ),
    ("strings", "strings.xml", "<resources>{pieces}</resources>", '<string name="a{n}">Datei {n}</string>'),
    (
        "items of a list",
        "strings.xml",
        '<resources><string-array name="a">{pieces}</string-array></resources>',
        "<item>Datei {n}</item>",
    ),
    (
        "items of a list with a long name",
        "strings.xml",
        '<resources><string-array name="{long}">{pieces}</string-array></resources>',
        "<item>Datei {n}</item>",
    ),
    (
        "items of plurals",
        "strings.xml",
        '<resources><plurals name="a">{pieces}</plurals></resources>',
        '<item quantity="q{n}">Datei</item>',
    ),
    ("entries", "a.resx", "<root>{pieces}</root>", '<data name="a{n}"><value>Datei</value></data>'),
    ("entries of one name", "a.resx", "<root>{pieces}</root>", '<data name="a"><value>Datei</value></data>'),
    ("attributes", "a.resx", "<root><data {pieces}><value>Datei</value></data></root>", ' a{n}=""'),
    ("entries", "a.properties", "{pieces}", "a{n}=Datei {n}\n"),
    ("lines of an entry", "a.properties", "a={pieces}", "Datei {n}\\\n"),
    ("a key of escapes", "a.properties", "{pieces}=Datei", "\\u0041"),
    ("strings", "a.json", '{"z": ""{pieces}}', ', "a{n}": "Datei {n}"'),
    ("strings below a long key", "a.json", '{"{long}": ["a"{pieces}]}', ', "Datei {n}"'),
    ("messages", "a.json", '{"a": {"message": "Datei"}{pieces}}', ', "a{n}": {"message": "Datei"}'),
    ("strings", "a.yaml", "{pieces}", "a{n}: Datei {n}\n"),
    ("strings below a long key", "a.yaml", "? {long}\n:\n{pieces}", " - Datei {n}\n"),
    ("a folded string", "a.yaml", "a: >\n{pieces}", " Datei {n}\n"),
    ("items in brackets", "a.yaml", "a: [b{pieces}]\n", ", Datei {n}"),
    ("lines", "a.txt", "{pieces}", "Datei {n}\n"),
    ("cues", "a.srt", "{pieces}", "{n}\n00:00:01,000 --> 00:00:02,000\nDatei {n}\n\n"),
    ("lines of a cue", "a.srt", "1\n00:00:01,000 --> 00:00:02,000\n{pieces}", "Datei {n}\n"),
    ("tags of a cue", "a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\n{pieces}\n", "<i>a {n} "),
    ("paragraphs", "a.html", "<body>{pieces}</body>", "<p>Datei {n}</p>"),
    ("codes", "a.html", "<p>{pieces}</p>", "Datei <b>{n}</b> "),
    ("open codes", "a.html", "<p>{pieces}</p>", "<b>a {n} "),
    ("closing codes", "a.html", "<p>{pieces}</p>", "</b>a {n} "),
    ("pictures", "a.html", "<p>Datei {pieces}</p>", '<img alt="Datei {n}">'),
    ("attributes", "a.html", "<p {pieces}>Datei</p>", 'title="Datei {n}" '),
    ("attributes without a value", "a.html", "<p {pieces}>Datei</p>", "a{n} "),
    ("contents", "a.html", "<meta {pieces}>Datei", 'content="Datei {n}" '),
    ("elements that are not translated", "a.html", "<p>Datei {pieces}</p>", '<i translate="no">a {n}'),
    ("nested code", "a.html", "<p>Datei {pieces}</p>", "<code>a {n} "),
    ("comments", "a.html", "<p>Datei {pieces}</p>", "<!-- a {n}"),
    ("paragraphs", "a.md", "{pieces}", "Datei {n}\n\n"),
    ("lines of a paragraph", "a.md", "{pieces}", "Datei {n}\n"),
    ("emphasis", "a.md", "{pieces}", "*a {n} "),
    ("links", "a.md", "{pieces}", "[a {n}](b) "),
    ("cells", "a.md", "|a|\n|-|\n{pieces}", "|Datei {n}|\n"),
    ("code", "a.md", "Datei {pieces}", "`a {n}` "),
    ("items", "a.md", "{pieces}", "- Datei {n}\n"),
    ("quotes", "a.md", "{pieces}", "> Datei {n}\n\n"),
]
