"""Placeholders of every form are found, language is not, and numbers are compared by their digits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.protection.placeholder_syntax import PLAIN
from knnmt.protection.placeholders import Kind, Needs, find, joined_exact, runs, writings

FORMS = [example for kind in PLAIN.kinds for example in kind.examples.split()]
WORDS = r"und die Datei R&D und/oder z.B. 50%ige a<b km/h Straße Backslash\ { — (x)".split()  # noqa: SIM905
LANGUAGE = ["Guten Morgen!", "und/oder", "R&D & mehr", "50 % der Fälle", "100%ig", "a < b", "z. B.", "#1"]
NUMBERS = [
    ("1.234,56", ["1234", "56"]),
    ("1,234.56", ["1234", "56"]),
    ("1234,56", ["1234", "56"]),
    ("31.12.2024", ["31", "12", "2024"]),
    ("1.234.567", ["1234567"]),
    ("12:30", ["12", "30"]),
    ("1\u202f234", ["1234"]),
    ("7", ["7"]),
]


def exact(text: str) -> list[str]:
    return [each.text for each in find(text) if each.kind is Kind.EXACT]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_found_alone_and_in_a_sentence(form: str) -> None:
    for text in (form, f"Die Datei {form} fehlt", f"({form})", f"„{form}“", f"Datei: {form}.", f"{form}, {form}"):
        assert set(exact(text)) == {form}, text
    assert exact(f"{form}, {form}") == [form, form]


@pytest.mark.parametrize("text", LANGUAGE)
def test_language_is_no_placeholder(text: str) -> None:
    assert exact(text) == []


@given(st.lists(st.sampled_from(FORMS + WORDS), max_size=12))
def test_what_was_put_in_is_found_in_order(words: list[str]) -> None:
    """The obvious reference: the words that are placeholders, in the order they were written."""
    assert exact(" ".join(words)) == [word for word in words if word in FORMS]


@given(st.text(alphabet="ab1. %s{}$\\n&;/:@<>()-", max_size=40))
def test_what_is_found_stands_there_and_overlaps_nothing(text: str) -> None:
    end = 0
    for each in find(text):
        assert each.start >= end
        assert each.end > each.start
        assert text[each.start : each.end] == each.text
        end = each.end
    digits = sum(letter.isdigit() for letter in text)
    assert sum(letter.isdigit() for each in find(text) for letter in each.text) == digits  # none is overlooked


def test_other_texts_are_found_where_they_are_named() -> None:
    assert [each.text for each in find("Fig. 3 und X1 %s", {"X1", "Fig. 3"})] == ["Fig. 3", "X1", "%s"]


@pytest.mark.parametrize(("number", "found"), NUMBERS)
def test_digits_of_a_number(number: str, found: list[str]) -> None:
    assert runs(number) == found
    assert all(runs(way) == found for way in writings(number))


@pytest.mark.parametrize("form", ["%s", "%(name)d", "$HOME", "${x}", "%%", "%1$s"])
def test_a_placeholder_after_a_number_is_no_sign(form: str) -> None:
    assert exact(f"5 {form}") == [form]


def test_signs_beside_numbers() -> None:
    text = "Er kostet 5 €, also $5 oder 10 % von 3‰."
    assert [each.text for each in find(text) if each.kind is Kind.SIGN] == ["€", "$", "%", "‰"]


@pytest.mark.parametrize(
    ("source", "target", "unmet"),
    [
        ("Datei %s", "File %s", []),
        ("Datei %s", "File", ["%s"]),
        ("Datei %s", "File %s %s", ["%s"]),
        ("Datei", "File %s", ["%s"]),
        ("{0} von {1}", "{1} of {0}", []),
        ("{0} von {1}", "{1} of {1}", ["{0}", "{1}"]),
        ("um 14 Uhr", "at 2 pm", ["14"]),
        ("1.234,56 €", "€1,234.56", []),
        ("1.234,56 €", "1,234.56 euros", ["€"]),
        ("1234", "1,234", []),
        ("zwei", "2", []),
        ("2 und 2", "2 and 2", []),
        ("2 und 2", "2 and two", ["2"]),
    ],
)
def test_what_a_translation_lacks(source: str, target: str, unmet: list[str]) -> None:
    assert Counter(Needs.of(find(source)).unmet_in(target)) == Counter(unmet)


def test_placeholders_that_touch_each_other_stay_together() -> None:
    needs = Needs.of(find("%d%% von %s"))
    assert needs.unmet_in("%s: %d%%") == []
    assert needs.unmet_in("%d of %s%%") == ["%d%%"]
    assert Needs.of(find("%d und %s")).unmet_in("%d%s") == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (r"„%APPDATA%\Knnmt“ fehlt", r"%APPDATA%\Knnmt"),
        (r"in %TEMP%\Neue.txt.", r"%TEMP%\Neue.txt"),
        ("in ${HOME}/Dokumente/neu", "${HOME}/Dokumente/neu"),
        ("kostet {preis}/Monat", "{preis}"),
        (r"%DATE%\nNeue Zeile", r"%DATE%\n"),
    ],
)
def test_a_path_goes_on_after_a_variable_of_the_environment(text: str, kept: str) -> None:
    """But a name in small letters may be a number: {preis}/Monat."""
    assert [each.text for each in joined_exact(find(text))] == [kept]
