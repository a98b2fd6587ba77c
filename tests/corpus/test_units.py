from __future__ import annotations

import pytest

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.units import for_model, lines_of


def test_the_model_sees_no_accelerators_unless_they_are_kept() -> None:
    pair = SegmentPair("Speichern &unter", "Save &as", "a.po#3")
    assert for_model(pair) == SegmentPair("Speichern unter", "Save as", "a.po#3")
    assert for_model(pair, "keep") is pair
    plain = SegmentPair("Drucken", "&Print", "a.po#4")
    assert for_model(plain) is plain


@pytest.mark.parametrize(
    ("source", "target", "lines"),
    [
        ("Zeile eins\nZeile zwei", "Line one\nLine two", [("Zeile eins", "Line one"), ("Zeile zwei", "Line two")]),
        ("Leer.\n\n  voll:\r\n", "\nEmpty.\nfull:", [("Leer.", "Empty."), ("voll:", "full:")]),
        ("Farben:\n- rot\n- grün", "Colours:\n- red\n- green", 3),
        ("Eine Zeile", "One line", []),
        ("Eine Zeile\n", "One line\n", []),
        ("Zwei\nZeilen", "One line", []),
        ("Soll die Datei\nwirklich weg?", "Do you want the\nfile gone?", []),
        ("Soll die\nDatei weg?", "Do you want the\nfile gone?", []),
    ],
)
def test_lines_are_told_apart_where_no_side_goes_on_in_the_next(
    source: str, target: str, lines: list[tuple[str, str]] | int
) -> None:
    found = lines_of(SegmentPair(source, target, "a.po#3"))
    assert {pair.origin for pair in found} <= {"a.po#3"}
    if isinstance(lines, int):
        assert len(found) == lines
    else:
        assert [(pair.source, pair.target) for pair in found] == lines
