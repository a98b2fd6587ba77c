"""Whatever a translation holds, it is read again as it was written, and its neighbours stay what they were."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from knnmt.documents.document import Document
from knnmt.documents.opening import open_document
from knnmt.protection.marked import Marked
from support.pretending import GOLDEN

FILES = sorted(path for path in GOLDEN.iterdir() if path.suffix != ".out")
CHARACTERS = "abcÄß中😀 .,:;!?'\"\\/<>&%$#@*_-=+|~`^()[]{}0123\u00a0\u2028"
TEXTS = st.text(alphabet=CHARACTERS, min_size=1, max_size=30).filter(lambda text: text.strip() and text.isprintable())
LINES = ("po", "xliff", "qt", "tmx", "resx", "properties", "json", "yaml", "android")  # whose texts may have several


def shown(text: Marked | None) -> str:
    """What a person sees: the words, white space as one space."""
    return re.sub(r"[ \t\n]+", " ", "".join(part for part in text or () if isinstance(part, str))).strip(" ")


def texts(document: Document) -> list[str]:
    return [shown(unit.target if document.bilingual else unit.source) for unit in document.units]


@pytest.mark.parametrize("golden", FILES, ids=lambda path: path.name)
@given(chosen=st.integers(0, 100), text=TEXTS)
@example(chosen=0, text='- "it\'s" <b> & {0} #1')
@example(chosen=1, text="@x: 'y' \\n | *z* _z_ [z](z)")
@example(chosen=2, text="1. yes")
@example(chosen=3, text="no")
@example(chosen=4, text="--> ]]> -->")
def test_a_target_is_read_as_it_was_written(
    golden: Path, chosen: int, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = open_document(golden)
    if golden.suffix == ".srt":
        text = text.replace("<", "(")  # which has no way to write it as text
    units = [unit for unit in document.units if unit.translatable and unit.source]
    unit = units[chosen % len(units)]
    if "{0" in shown(unit.source):
        text = f"{text} {{0}}"  # a pattern stays one
    codes = [part for part in unit.source if not isinstance(part, str) and document.format != "markdown"]
    target: Marked = (text, *codes)
    written = document.with_targets({unit.id: target})
    if written.failures:
        return
    path = tmp_path_factory.mktemp("again") / golden.name
    path.write_bytes(written.data)
    again = open_document(path)
    before, after = texts(document), texts(again)
    place = document.units.index(unit)
    if len(before) == len(after):
        assert after[place] == shown((text,))
        assert after[:place] + after[place + 1 :] == before[:place] + before[place + 1 :]
    else:
        assert not any(each.isalpha() for each in text), "only what has no letters may be no unit any more"


@pytest.mark.parametrize(
    "golden", [path for path in FILES if open_document(path).format in LINES], ids=lambda path: path.name
)
def test_line_ends_in_a_target_are_kept(golden: Path, tmp_path: Path) -> None:
    document = open_document(golden)
    unit = next(unit for unit in document.units if unit.translatable and unit.source)
    written = document.with_targets({unit.id: ("one\n two \\n\n\nthree",)})
    path = tmp_path / golden.name
    path.write_bytes(written.data)
    again = open_document(path)
    found = again.units[document.units.index(unit)]
    assert "".join(map(str, (found.target if again.bilingual else found.source) or ())) == "one\n two \\n\n\nthree"
