from __future__ import annotations

import pytest

from knnmt.corpus.accelerators import accelerators_in, drop_accelerators, with_accelerator


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
        ("~File", "~Datei", ("File", "Datei")),
        ("Save _as …", "Speichern _unter …", ("Save as …", "Speichern unter …")),
        ("(_New)", "(_Neu)", ("(New)", "(Neu)")),
        ("On/_Off", "Ein/_Aus", ("On/Off", "Ein/Aus")),
        ("ZIP-_File:", "ZIP-_Datei:", ("ZIP-File:", "ZIP-Datei:")),
        ("O_pen", "O\u0308_ffnen", ("Open", "O\u0308ffnen")),
        ("&File", "ファイル(&F)", ("File", "ファイル")),
        ("ファイル (&F)", "&File", ("ファイル", "File")),
        ("&File", "Datei", ("File", "Datei")),
        ("_Z-Achse", "Z axis", ("Z-Achse", "Z axis")),
        ("&File", "_Datei", ("File", "_Datei")),
    ],
)
def test_marks_on_both_sides_go(source: str, target: str, expected: tuple[str, str]) -> None:
    assert drop_accelerators(source, target) == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Save &as", "Speichern unter"),
        ("&File && &Edit", "&Datei"),
        ("_File is missing.", "Datei fehlt."),
        ("Tom &amp; Jerry", "Tom &amp; Jerry"),
        ("&quot;", "&auml;"),
        ("&#228; x", "&#228; y"),
        ("R&D costs", "F&E-Kosten"),
        ("Questions to AT&T", "Fragen an AT&T"),
        ("Q&A", "F&A"),
        ("Müller&Sohn", "Miller&Son"),
        ("file.php?a=b&c=d", "datei.php?e=f&g=h"),
        ("old_file", "alte_datei"),
        ("Path_Name.txt", "Pfad_Name.txt"),
        ("Path name_of.txt", "Pfad name_von.txt"),
        ("Call open_it()", "Rufen Sie oeffne_es()"),
        ("The max_size value", "Der max_size-Wert"),
        ("Fetch _id values", "Die _id-Werte holen"),
        ("SQL_Read gave %d", "SQL_read gab %d"),
        ("Use E_ALL & ~E_NOTICE", "Verwenden Sie E_ALL & ~E_NOTICE"),
        ("Put ~a on it", "Legen Sie ~a darauf"),
        ("{number_of} days", "{anzahl_der} Tage"),
        ("_foo_", "_bar_"),
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


@pytest.mark.parametrize(
    ("text", "sure"),
    [
        ("&Datei", [True]),
        ("_Datei öffnen …", [True]),
        ("~Datei...", [True]),
        ("ファイル(&F)", [True]),
        ("Speichern _unter", [False]),
        ("Ö_ffnen", [False]),
        ("_id", [False]),
        ("_Datei fehlt.", [False]),
        ("A & B", []),
        ("&amp;", []),
        ("__init__", []),
        ("snake_case", []),
    ],
)
def test_a_text_alone_is_sure_where_nothing_else_is_written_like_that(text: str, sure: list[bool]) -> None:
    assert [found.sure for found in accelerators_in(text)] == sure


def test_a_mark_is_put_before_the_first_letter_once() -> None:
    assert with_accelerator("(New)", "_") == "(_New)"
    assert with_accelerator("Q&A", "&") == "Q&A"
    assert with_accelerator("100 %", "&") == "100 %"
