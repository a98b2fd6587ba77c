from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from knnmt.protection.placeholders import Needs, find
from knnmt.translator.repairing import repaired


@pytest.mark.parametrize(
    ("text", "source", "target", "expected"),
    [
        ("Seite 7", "Seite 3", "Page 3", "Page 7"),
        ("%d Zeilen", "%s Zeilen", "%s lines", "%d lines"),
        ("Von {a} bis {b}", "Von {x} bis {y}", "To {y} from {x}", "To {b} from {a}"),
        ("Von 5 bis 9", "Von 3 bis 5", "From 3 to 5", "From 5 to 9"),
        ("2.345,67 €", "1.234,56 €", "€1,234.56", "€2,345.67"),
        ("345,67 €", "1.234,56 €", "€1,234.56", None),  # how the target would group it is not known
        ("345,67 €", "1.234,56 €", "€1.234,56", "€345,67"),
        ("MP4-Datei", "MP3-Datei", "MP3 file", "MP4 file"),
        ("Seite 4.", "Seite 3.", "3rd page.", None),
        ("1 Zeichen", "2 Zeichen", "2 characters", None),
        ("0 Zeichen", "2 Zeichen", "2 characters", None),
        ("7 Zeichen", "2 Zeichen", "2 characters", "7 characters"),
        ("1,5 Zeichen", "2,5 Zeichen", "2.5 characters", "1.5 characters"),
        ("Die 3 Seiten", "Die 2 Seiten", "Both pages", None),
        ("Die 3 Seiten", "Die 2 Seiten", "Both 2 of 2 pages", None),
        ("Die 3 Seiten", "Die 2 seiten", "The 2 pages", None),
        ("Die 3 Blätter", "Die 2 Seiten", "The 2 pages", None),
        ("2 von 3", "2 von 2", "2 of 2", None),  # which is which is not known
        ("3 von 3", "2 von 2", "2 of 2", "3 of 3"),
        ("%s", "%s %s", "%s %s", None),
        ("Am 13.06.2025", "Am 12.05.2024", "On 05/12/2024", None),
        (
            "Siehe https://b.example/x.",
            "Siehe https://a.example/.",
            "See https://a.example/.",
            "See https://b.example/x.",
        ),
        ("Öffne  {b}", "Öffne {a}", "Open {a}", "Open {b}"),
    ],
)
def test_what_differs_is_put_in_where_there_is_no_doubt(
    text: str, source: str, target: str, expected: str | None
) -> None:
    assert repaired(text, source, target, "en") == expected


def test_languages_with_several_plurals_are_not_repaired_across_them() -> None:
    assert repaired("5 Zeichen", "2 Zeichen", "2 znaki", "pl") is None
    assert repaired("5 Zeichen", "2 Zeichen", "2 znaki", "pl-PL") is None
    assert repaired("122 Zeichen", "22 Zeichen", "22 znaki", "pl") == "122 znaki"


_ITEMS = st.sampled_from(["%s", "%1$s", "{0}", "{name}", "7", "12", "3,5", "2024", "&amp;", "$HOME"])


@given(
    old=st.lists(_ITEMS, min_size=1, max_size=4),
    new=st.lists(_ITEMS, min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_what_comes_out_has_what_the_text_has_and_the_targets_words(
    old: list[str], new: list[str], order: object
) -> None:
    """The slow reference: words between stand-ins, each put in where the other stood."""
    assume(len(old) == len(new))
    text, source = (" und ".join(each) for each in (new, old))
    places = list(range(len(old)))
    order.shuffle(places)  # type: ignore[attr-defined]
    target = " and ".join(old[place] for place in places)
    found = repaired(text, source, target, "en")
    if found is not None:
        assert found == " and ".join(new[place] for place in places) or len(set(old)) < len(old)
        assert not Needs.of(find(text)).unmet_in(found)
        assert len(found.split(" and ")) == len(old)
    else:
        kinds = [[each.kind for each in find(side)] for side in (text, source)]
        ambiguous = len(set(zip(old, new, strict=True))) > len(set(old))
        whole_and_parts = any(("," in one) != ("," in other) for one, other in zip(old, new, strict=True))
        assert kinds[0] != kinds[1] or ambiguous or whole_and_parts


def test_a_number_of_thousands_of_digits_is_put_in() -> None:
    """Python refuses to read it as a number."""
    assert repaired(f"Seite {'7' * 5000}", "Seite 3", "Page 3", "en") == f"Page {'7' * 5000}"
