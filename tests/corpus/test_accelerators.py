from __future__ import annotations

import pytest

from knnmt.corpus.accelerators import drop_accelerators


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("&File", "&Datei", ("File", "Datei")),
        ("_Open…", "Ö_ffnen…", ("Open…", "Öffnen…")),
        ("Save &as", "Speichern &unter", ("Save as", "Speichern unter")),
        ("&Start", "&Start", ("Start", "Start")),
        ("_Text", "_Text", ("Text", "Text")),
        ("&Find &amp; replace", "&Suchen &amp; ersetzen", ("Find &amp; replace", "Suchen &amp; ersetzen")),
        ("Set &max_size", "max_size &setzen", ("Set max_size", "max_size setzen")),
    ],
)
def test_marks_on_both_sides_go(source: str, target: str, expected: tuple[str, str]) -> None:
    assert drop_accelerators(source, target) == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("&File", "Datei"),
        ("&File", "_Datei"),
        ("&File && &Edit", "&Datei"),
        ("Tom &amp; Jerry", "Tom &amp; Jerry"),
        ("&quot;", "&auml;"),
        ("&#228; x", "&#228; y"),
        ("R&D costs", "F&E-Kosten"),
        ("Q & A", "F & A"),
        ("set max_size", "setze max_size"),
        ("the _id column", "die Spalte _id"),
        ("&value is null", "&value ist null"),
        ("100 &1", "&1 100"),
        ("__init__", "_x"),
        ("", ""),
    ],
)
def test_everything_else_stays(source: str, target: str) -> None:
    assert drop_accelerators(source, target) == (source, target)
