"""What other libraries read in the documents that come out: the same, with texts in capitals."""

from __future__ import annotations

import io
import json
import re
import zipfile
from html.parser import HTMLParser
from typing import Any

import polib
import yaml
from lxml import etree
from markdown_it import MarkdownIt

from support.pretending import GOLDEN

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def both(name: str) -> tuple[bytes, bytes]:
    return (GOLDEN / name).read_bytes(), (GOLDEN / f"{name}.out").read_bytes()


def shouted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shouted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shouted(each) for each in value]
    return value.upper() if isinstance(value, str) and "://" not in value else value


def test_polib_reads_the_catalog() -> None:
    before, after = (list(polib.pofile(data.decode())) for data in both("catalog.po"))
    for old, new in zip(before, after, strict=True):
        assert (new.msgid, new.msgctxt, new.comment, new.tcomment, new.occurrences, new.previous_msgid) == (
            *(old.msgid, old.msgctxt, old.comment, old.tcomment, old.occurrences, old.previous_msgid),
        )
        assert [flag for flag in new.flags if flag != "fuzzy"] == [flag for flag in old.flags if flag != "fuzzy"]
        if old.obsolete or old.msgid == "button_unknown" or (old.msgstr and not old.fuzzy):
            assert (new.msgstr, new.fuzzy) == (old.msgstr, old.fuzzy)
        elif old.msgid_plural:
            assert new.fuzzy
            assert new.msgstr_plural == {0: old.msgid.upper(), 1: old.msgid_plural.upper()}
        else:
            assert new.fuzzy
            assert new.msgstr in (old.msgid.upper(), "WIRKLICH LÖSCHEN?")


def test_json_and_yaml_hold_the_same_with_capitals() -> None:
    before, after = (json.loads(data) for data in both("app.json"))
    assert after == shouted(before)
    old, new = (yaml.safe_load(data) for data in both("locale.yml"))
    assert new == shouted(old)


def test_lxml_finds_the_same_elements() -> None:
    for name in ("plain.xlf", "trados.sdlxliff", "memoq.mqxliff", "segments.xliff", "app.ts"):
        before, after = (etree.fromstring(data) for data in both(name))
        sides = ("{*}source", "{*}seg-source", "{*}note", "{*}header", "{*}originalData", "{*}alt-trans")
        untouched = [[etree.tostring(each, with_tail=False) for each in tree.iter(*sides)] for tree in (before, after)]
        assert untouched[0] == untouched[1]
        assert len(untouched[0]) > 1
    for name in ("strings.xml", "Strings.resx"):
        before, after = (etree.fromstring(data) for data in both(name))
        assert [(each.tag, dict(each.attrib)) for each in before.iter()] == [
            (each.tag, dict(each.attrib)) for each in after.iter()
        ]


def test_pages_have_the_same_tags() -> None:
    class Tags(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[tuple[str, object]] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found.append((tag, [name for name, _ in attrs]))

        def handle_endtag(self, tag: str) -> None:
            self.found.append(("/", tag))

    trees = []
    for data in both("page.html"):
        parser = Tags()
        parser.feed(data.decode())
        trees.append(parser.found)
    assert trees[0] == trees[1]


def test_markdown_is_rendered_alike() -> None:
    render = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render
    before, after = (re.sub(r"\A---.*?\n---\n", "", data.decode(), flags=re.DOTALL) for data in both("page.md"))
    parts = [
        re.split(r"(<pre>.*?</pre>|<code>.*?</code>|<div>.*?</div>|<[^>]*>)", render(text), flags=re.DOTALL)
        for text in (before, after)
    ]
    old, new = ([re.sub(r"\s+", " ", part) for part in each] for each in parts)
    assert old[1::2] == new[1::2]
    assert [part.upper() for part in old[::2] if "&" not in part and "example" not in part] == [
        part for part in new[::2] if "&" not in part and "example" not in part
    ]


def test_paragraphs_of_the_archive_are_in_capitals() -> None:
    texts = []
    for data in both("letter.docx"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.testzip() is None
            tree = etree.fromstring(archive.read("word/document.xml"))
        texts.append(["".join(each.text or "" for each in p.iter(f"{W}t")) for p in tree.iter(f"{W}p")])
    assert texts[1] == [text.upper() for text in texts[0]]
