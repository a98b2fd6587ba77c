"""Catalogs whose messages are identifiers, with the text in a comment."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.report import ReadingReport
from support.memories import read

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: de\\n"\n\n'
TO_GERMAN = {"source_language": "en", "target_language": "de"}


def sources(tmp_path: Path, *entries: str) -> tuple[list[str], ReadingReport]:
    """The sources of a catalog, without marks of accelerators, which are no matter of this."""
    pairs, report = read(tmp_path / "plone.po", HEADER + "\n\n".join(entries), **TO_GERMAN)
    return [source.replace("_", "") for source, _ in pairs], report


def entry(comment: str, message: str = "button_save_version", translation: str = "Version sichern") -> str:
    return f'{comment}\nmsgid "{message}"\nmsgstr "{translation}"'


@pytest.mark.parametrize(
    ("comment", "text"),
    [
        ('#. Default: "Save version"', "Save version"),
        ('#. Default : "Save version"\n#: a.pt:12', "Save version"),
        ('# Default: "Save version"', "Save version"),
        ("#. Default: Save version", "Save version"),
        ('#. Save the page.\n#. Default: "Save version"\n#. Used on the button', "Save version"),
        ('#. Default: "Save "\n#. "this version"', "Save this version"),
        ('#. Default: ""\n#. "Save "\n#. "this version"\n#. On the button', "Save this version"),
        ('#. Default: "Save this\n#. version"\n#. On the button', "Save this version"),
        (r'#. Default: "Save as \"${title}\""', 'Save as "${title}"'),
        (r'#. Default: "Save \"this"' + "\n" + r'#. " version\""', 'Save "this version"'),
        ('#. Default: "Click "here" to save"', 'Click "here" to save'),
        (r'#. Default: "Save\nthis"', "Save\nthis"),
        (r'#. Default: "C:\\"' + "\n#. On the button", "C:\\"),
        ('#. Default: "Save version"\n#. Default: "save version"', "Save version"),
        ('#. Default: "Save version', "Save version"),
    ],
)
def test_the_text_of_an_identifier_is_its_default(tmp_path: Path, comment: str, text: str) -> None:
    assert sources(tmp_path, entry(comment))[0] == [text]


@pytest.mark.parametrize("message", ["label_title", "label.title", "heading-title", "listing:Title", "a/b"])
def test_what_is_an_identifier(tmp_path: Path, message: str) -> None:
    assert sources(tmp_path, entry('#. Default: "Title"', message))[0] == ["Title"]


@pytest.mark.parametrize("message", ["Timeout", "Save version", "Title:", "_Title", "T_itle of it", "${title}"])
def test_a_default_of_something_else_is_no_text_of_a_message(tmp_path: Path, message: str) -> None:
    assert sources(tmp_path, entry('#. Default: "10 seconds"', message))[0] == [message.replace("_", "")]


def test_identifiers_without_a_text_are_left_out_and_counted(tmp_path: Path) -> None:
    kept = ["UTF-8", "read-only", "e-mail", "Sav_e", "o_pen", "gtk-ok", "IPv4/IPv6"]
    others = [entry("", "find_me", "f_inde mich"), *(entry("", message) for message in kept)]
    found, report = sources(tmp_path, entry(""), entry('#. Default: ""'), entry("#. On the button"), *others)
    assert found == ["findme", "UTF-8", "read-only", "e-mail", "Save", "open", "gtk-ok", "IPv4/IPv6"]
    assert report.skipped == {"identifier whose text the catalog does not state": 3}
