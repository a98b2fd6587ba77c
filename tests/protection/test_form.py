"""What a translation takes over of the form of its source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.protection.form import in_the_form_of


@pytest.mark.parametrize(
    ("language", "source", "translation", "expected"),
    [
        # The initial capital.
        ("en", "Datei öffnen", "open file", "Open file"),
        ("en", "„Datei“ öffnen", "open 'File'", "Open 'File'"),
        ("en", "- Datei öffnen", "- open file", "- Open file"),
        ("en", "Öffnen mit iPhone", "iPhone opening", "iPhone opening"),
        ("en", "Mit npm installieren", "npm installation", "npm installation"),
        ("en", "Theke und Apotheke", "the bar and the pharmacy", "The bar and the pharmacy"),
        ("en", "PDF-Datei", "pdf file", "pdf file"),
        ("en", "%s Dateien", "files: %s", "files: %s"),
        ("en", "3 Dateien", "three files", "three files"),
        ("en", "Die Option", "--option", "--option"),
        ("en", "Die Option", "%s option", "%s option"),
        ("en", "Noch ~~tage~~", "~~tage~~ left", "~~tage~~ left"),
        ("en", "config.py wird gelesen", "reading config.py", "reading config.py"),
        ("de", "Save file", "datei speichern", "Datei speichern"),
        ("fr", "Speichern", "état", "État"),
        ("ka", "Save", "შენახვა", "შენახვა"),
        ("tr", "Save", "indir", "İndir"),
        ("nld_Latn", "Save", "opslaan", "Opslaan"),
        (None, "Datei öffnen", "open file", "Open file"),
        # The initial small letter.
        ("en", "bitte warten", "Please wait", "please wait"),
        ("en", "ich bin da", "I am here", "I am here"),
        ("en", "dokument", "PDF file", "PDF file"),
        ("en", "deutsch", "German", "German"),
        ("en", "montags geschlossen", "Monday: closed", "Monday: closed"),
        ("en", "alles über Leipzig", "Leipzig: all about it", "Leipzig: all about it"),
        ("en", "iPhone verbinden", "Connect iPhone", "Connect iPhone"),
        ("en", "--help zeigt das", "Shows this with --help", "Shows this with --help"),
        ("de", "folder not found", "Ordner nicht gefunden", "Ordner nicht gefunden"),
        ("de", "please wait", "Bitte warten", "bitte warten"),
        ("deu_Latn", "no folder", "Kein Ordner", "kein Ordner"),
        ("fr", "deutsch", "Allemand", "allemand"),
        (None, "bitte warten", "Please wait", "Please wait"),
        ("zh", "please wait", "请稍候", "请稍候"),
        ("en", "请稍候", "Please wait", "Please wait"),
        # All capitals.
        ("en", "ACHTUNG", "Warning", "WARNING"),
        ("en", "ACHTUNG: %s {name}", "Warning: %s {name}", "WARNING: %s {name}"),
        ("en", "USB", "usb port", "usb port"),
        ("en", "MAX_LENGTH", "Max length", "Max length"),
        ("de", "STREETS", "Straßen", "STRASSEN"),
        ("tr", "DATEI", "disk", "DİSK"),
        ("zh", "WARNING", "警告", "警告"),
        # The final mark.
        ("en", "Gesperrt.", "Locked", "Locked."),
        ("en", "Die Liste ::: !site", "The list :::", "The list :::"),
        ("en", "Telef.", "Phone", "Phone"),
        ("en", "Er ist gesperrt.", "It is locked", "It is locked."),
        ("en", "Er ist gesperrt", "It is locked.", "It is locked"),
        ("en", "Gesperrt!", "Locked.", "Locked!"),
        ("en", "Gesperrt?", "Locked", "Locked?"),
        ("en", "Name:", "Name", "Name:"),
        ("en", "Name", "Name:", "Name"),
        ("en", "Speichern unter …", "Save As", "Save As…"),
        ("en", "Speichern unter...", "Save As…", "Save As..."),
        ("en", "Speichern unter …", "Save as ...", "Save as …"),
        ("en", "Speichern unter", "Save As…", "Save As"),
        ("de", "Save as …", "Speichern unter", "Speichern unter …"),
        ("de", "Save as…", "Speichern unter.", "Speichern unter…"),
        ("en", "Öffnen, Schließen usw.", "Open, close, and so on", "Open, close, and so on"),
        ("en", "Öffnen und schließen", "Open, close, etc.", "Open, close, etc."),
        ("en", "Er sagte „Halt“.", 'He said "stop."', 'He said "stop."'),
        ("en", "Er sagte „Halt“.", 'He said "stop"', 'He said "stop".'),
        ("en", "(Er ist gesperrt.)", "(It is locked)", "(It is locked)"),
        ("en", "Er liest a&nbsp;", "It reads a&nbsp;", "It reads a&nbsp;"),
        ("en", "Es ist %s.", "It is %s", "It is %s."),
        ("zh", "It is locked.", "已锁定", "已锁定。"),
        ("zh", "It is locked.", "已锁定。", "已锁定。"),
        ("zh", "Loading...", "正在加载……", "正在加载……"),
        ("ja", "Locked?", "ロック", "ロック？"),
        ("en", "已锁定。", "It is locked", "It is locked."),
        ("fr", "Gesperrt!", "Verrouillé", "Verrouillé\u00a0!"),
        ("fr", "Gesperrt!", "Verrouillé !", "Verrouillé !"),
        ("hi", "It is locked.", "यह बंद है।", "यह बंद है।"),
        ("th", "It is locked.", "ถูกล็อก", "ถูกล็อก"),
        ("en", "ถูกล็อก", "It is locked.", "It is locked."),
        ("el", "Is it locked?", "Είναι κλειδωμένο;", "Είναι κλειδωμένο;"),
        ("en", "Είναι κλειδωμένο;", "Is it locked?", "Is it locked?"),
        ("el", "Is it locked?", "Είναι κλειδωμένο", "Είναι κλειδωμένο\u037e"),
        ("ar", "Is it locked?", "هل هو مقفل؟", "هل هو مقفل؟"),
        ("es", "Locked?", "bloqueado", "Bloqueado"),
        # Nothing to go by.
        ("en", "Gesperrt.", "", ""),
        ("en", "", "Locked", "Locked"),
        ("en", "…", "...", "…"),
        ("en", "Er kam.", ".", "."),
    ],
)
def test_a_translation_takes_over_the_form_of_its_source(
    language: str | None, source: str, translation: str, expected: str
) -> None:
    assert in_the_form_of(source, translation, language) == expected
    assert in_the_form_of(source, expected, language) == expected


def test_a_capital_in_the_middle_of_a_text_says_nothing() -> None:
    assert in_the_form_of("Ordner", "folder", "en", begins=False) == "folder"
    assert in_the_form_of("des Ordners", "Of the folder.", "en", begins=False) == "of the folder"


def test_texts_that_stand_for_codes_keep_their_letters() -> None:
    assert in_the_form_of("ACHTUNG BEI x", "Beware of x", "en", also={"x"}) == "BEWARE OF x"


@given(st.text(), st.text(), st.sampled_from(["en", "de", "zh", None]))
def test_any_text_can_be_given_a_form_once(source: str, translation: str, language: str | None) -> None:
    made = in_the_form_of(source, translation, language)
    assert made.strip() or not translation.strip()
    assert in_the_form_of(source, source, language) == source
