"""Contexts: a unit of a document and the same unit in a memory are used in the same one, whatever the format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from knnmt import Datastore, Translator, open_document
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.plural_forms import form_contexts, singular_form
from knnmt.documents.kept import Kept
from knnmt.documents.read_memories import read_memories
from knnmt.documents.translating import translate_document
from knnmt.engine.transformer import TransformerEngine

HEAD = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: en\\nPlural-Forms: %s\\n"\n\n'
FORMS = 'msgid "%d Datei"\nmsgid_plural "%d Dateien"\n'
PO = """msgctxt "Menü"
msgid "Öffnen"
msgstr "Open"

msgctxt "Zustand"
msgid "Öffnen"
msgstr "Opening"

"""
DOCUMENTS = {
    "two.po": HEAD % "nplurals=2; plural=(n != 1);"
    + PO
    + FORMS
    + 'msgstr[0] "%d file"\nmsgstr[1] "%d files"\n\n'
    + 'msgctxt "Stall"\nmsgid "%d Schaf"\nmsgid_plural "%d Schaf"\nmsgstr[0] "%d ewe"\nmsgstr[1] "%d sheep"\n',
    "three.po": HEAD % "nplurals=3; plural=(n==1 ? 0 : n<5 ? 1 : 2);"
    + FORMS
    + 'msgstr[0] "%d file"\nmsgstr[1] "%d few files"\nmsgstr[2] "%d many files"\n',
    "last.po": HEAD % "nplurals=3; plural=(n==0 ? 0 : n==1 ? 2 : 1);"
    + FORMS
    + 'msgstr[0] "no %d files"\nmsgstr[1] "%d files"\nmsgstr[2] "%d file"\n',
    "one.po": HEAD % "nplurals=1; plural=0;" + FORMS + 'msgstr[0] "%d file"\n',
    "app.ts": """<TS version="2.1" language="en" sourcelanguage="de"><context><name>Fenster</name>
<message><source>Öffnen</source><comment>Menü</comment><translation>Open</translation></message>
<message><source>Öffnen</source><comment>Zustand</comment><extracomment>selten</extracomment>
<translation>Opening</translation></message>
<message numerus="yes"><source>%n Datei(en)</source>
<translation><numerusform>%n file</numerusform><numerusform>%n files</numerusform></translation></message>
</context></TS>
""",
    "one.xlf": """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="de" target-language="en" datatype="plaintext"><body>
<trans-unit id="1" resname="menu.open &amp; more">
<source>Öffnen</source><target>Open</target><note>nie</note></trans-unit>
<trans-unit id="2"><source>Öffnen</source><target>Opening</target><context-group>
<context context-type="sourcefile">a.c</context><context context-type="x-use"> Zustand </context>
</context-group></trans-unit>
</body></file></xliff>
""",
    "two.xlf": """<xliff version="2.0" srcLang="de" trgLang="en" xmlns="urn:oasis:names:tc:xliff:document:2.0">
<file id="f"><unit id="1" name="menu"><notes><note>nie</note></notes>
<segment state="final"><source>Öffnen</source><target>Open</target></segment></unit>
<unit id="2" name="zustand"><segment state="final"><source>Öffnen</source><target>Opening</target></segment></unit>
</file></xliff>
""",
    "memory.tmx": """<tmx version="1.4"><header srclang="de" segtype="sentence" adminlang="en" datatype="text"
 creationtool="t" creationtoolversion="1" o-tmf="t"/><body>
<tu><prop type="x-context-pre">Vorher &lt;b&gt;</prop>
<prop type="x-Context-post">Nachher</prop><prop type="x-other">no</prop>
<tuv xml:lang="de"><seg>Öffnen</seg></tuv><tuv xml:lang="en"><seg>Open</seg></tuv></tu>
<tu><prop type="x-context">Zustand</prop>
<tuv xml:lang="de"><seg>Öffnen</seg></tuv><tuv xml:lang="en"><seg>Opening</seg></tuv></tu>
</body></tmx>
""",
}
STRINGS = (
    '<resources><plurals name="s"><item quantity="one">%s</item><item quantity="other">%s</item></plurals></resources>'
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_unit_has_the_context_that_memories_keep(name: str, tmp_path: Path) -> None:
    path = _written(tmp_path / name)
    units = open_document(path, ("de", "en")).units
    pairs = list(read_memories([path], ReadingConfig(source_language="de", target_language="en")))
    assert [(unit.source, unit.context) for unit in units] == [((pair.source,), pair.context) for pair in pairs]
    assert len({(pair.source, pair.context) for pair in pairs}) == len(pairs)  # which tells all of these apart


@pytest.mark.parametrize("name", ["three.po", "app.ts", "one.xlf"])
def test_an_emptied_document_gets_its_own_targets_again(
    name: str, tmp_path: Path, tiny: TransformerEngine, tiny_checkpoint: Path
) -> None:
    path = _written(tmp_path / name)
    full = open_document(path, ("de", "en"))
    reading = ReadingConfig(source_language="de", target_language="en")
    Datastore.build(tmp_path / "store", read_memories([path], reading), tiny)
    path.write_text(_emptied(DOCUMENTS[name]), "utf-8")
    translator = Translator(tiny_checkpoint, device="cpu", datastore=tmp_path / "store")
    empty = open_document(path, ("de", "en"))
    assert not any(unit.target for unit in empty.units)
    with Kept(None, "") as kept:
        translate_document(empty, lambda *texts: translator.translate_marked(*texts, exact_matches="prefer"), kept)
    assert {name: draft.target for name, draft in kept.drafts.items()} == {unit.id: unit.target for unit in full.units}


def test_forms_of_the_same_source_in_strings_of_android(tmp_path: Path) -> None:
    for language, forms in {"de": ("%d Stück", "%d Stück"), "en": ("%d piece", "%d pieces")}.items():
        (tmp_path / f"values-{language}").mkdir()
        (tmp_path / f"values-{language}/strings.xml").write_text(STRINGS % forms)
    pairs = read_memories([tmp_path], ReadingConfig(source_language="de", target_language="en"))
    assert [(pair.target, pair.context) for pair in pairs] == [("%d piece", "one"), ("%d pieces", "other")]


def test_a_form_is_part_of_the_context_only_where_sources_are_alike() -> None:
    assert form_contexts("m", ["a", "b", "b"]) == ["m", "m\nform 2 of 3", "m\nform 3 of 3"]
    assert form_contexts("", ["a", "b"]) == ["", ""]
    assert form_contexts("", ["a", "a"], ["one", "other"]) == ["one", "other"]


@pytest.mark.parametrize(
    "rule", ["", "nplurals=2; plural=n**;", "nplurals=2; plural=n/0;", f"nplurals=2; plural={'(' * 900}n;"]
)
def test_a_rule_that_cannot_be_read_counts_the_first_form_as_the_singular(rule: str) -> None:
    assert singular_form(rule) == 0


def _written(path: Path) -> Path:
    path.write_text(DOCUMENTS[path.name], "utf-8")
    return path


def _emptied(text: str) -> str:
    head, blank, rest = text.partition("\n\n") if text.startswith("msgid") else ("", "", text)
    rest = re.sub(r'(msgstr(?:\[\d\])?) ".*"', r'\1 ""', rest)
    rest = re.sub(r"<(target|numerusform)>.*?</\1>", r"<\1></\1>", rest)
    rest = re.sub(
        r"<translation>(?!<numerus)([^<]*)</translation>", '<translation type="unfinished"></translation>', rest
    )
    rest = re.sub(r"<translation>(?=<numerus)", '<translation type="unfinished">', rest)
    return head + blank + re.sub(r'<tuv xml:lang="en">.*?</tuv>', "", rest)
