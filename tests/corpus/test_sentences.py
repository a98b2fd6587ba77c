from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.sentences import split_lines, split_long, split_sentences

# A bar stands where a text must be cut, and nowhere else.
MARKED = [
    "Guten Tag! |Wie geht es Ihnen? |Mir geht es gut.",
    "Das gilt z. B. für Hunde, Katzen usw. auch im Winter.",
    "Dr. Weber wohnt in der Goethestr. 5 in Ulm. |Sie ist Ärztin.",
    "Am 3. Oktober 1990 war es so weit. |Danach kam der 4. Oktober.",
    "Das war im Jahr 2020. |Heute ist alles anders.",
    "Ludwig XIV. regierte lange. |Sein Hof war prächtig.",
    "J. S. Bach kam aus Eisenach.",
    "Er fragte: „Kommst du?“ |Sie schwieg.",
    "„Komm jetzt!“, rief er.",
    "Wirklich?! |Ja.",
    "Er wartete… |Niemand kam.",
    "Na ja ... vielleicht morgen.",
    "Die Datei readme.txt liegt auf www.beispiel.de bereit.",
    "Es kostet 3.50 Euro. |Das ist viel.",
    "Siehe Abs. 2 Nr. 4 des Gesetzes. |Das genügt.",
    "Ende (vorläufig). |(Neuer Anfang.) |Schluss.",
    "Erste Zeile\n|Zweite Zeile",
    "今日は雨です。|明日は晴れます。",
    "  Vorne Platz.   |Hinten auch.  ",
    "Ein Satz ohne Punkt",
    "...",
    "",
]


@pytest.mark.parametrize("marked", MARKED)
def test_sentences_end_where_they_should(marked: str) -> None:
    assert split_sentences(marked.replace("|", "")) == [piece for piece in marked.split("|") if piece]


@given(st.text(alphabet='aB1.!?… \n\t„“"()z。é', max_size=60) | st.text(max_size=60))
def test_no_character_is_lost_and_no_piece_is_blank(text: str) -> None:
    for pieces in (split_sentences(text), split_lines(text)):
        assert "".join(pieces) == text
        assert all(piece.strip() for piece in pieces) or not text.strip()


@pytest.mark.parametrize(
    "marked",
    [
        "\nEine Zeile.\n|Noch eine:\r\n|  „Und mehr.“\n\n|Ende\n",
        "Ein Satz, der\nhier weitergeht\n\n|und ein neuer Absatz",
        "Farben\n|- rot\n|  * grün\n|1. blau\n|2) gelb",
        "Punkt. In der Mitte",
        "Zwei\nZeilen",
        "\n",
        "",
    ],
)
def test_lines_end_where_a_sentence_paragraph_or_item_does(marked: str) -> None:
    # The white space before a line is with the line before it.
    expected = [piece for piece in marked.replace("|  ", "  |").split("|") if piece]
    assert split_lines(marked.replace("|", "")) == expected


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("kurz", 10, ["kurz"]),
        ("Der erste Satz. Der zweite Satz.", 20, ["Der erste Satz. ", "Der zweite Satz."]),
        ("wir kamen, sahen und siegten; dann gingen wir", 35, ["wir kamen, sahen und siegten; ", "dann gingen wir"]),
        ("eins zwei drei, vier fünf sechs", 20, ["eins zwei drei, ", "vier fünf sechs"]),
        ("eins zwei drei vier", 10, ["eins zwei ", "drei vier"]),
        ("Donaudampfschiff", 8, ["Donaudam", "pfschiff"]),
    ],
)
def test_long_text_is_cut_at_the_best_place(text: str, limit: int, expected: list[str]) -> None:
    assert split_long(text, lambda piece: len(piece) <= limit) == expected


@given(st.text(alphabet="ab ,;.A", min_size=1, max_size=80), st.integers(1, 12))
def test_every_part_fits_and_nothing_is_lost(text: str, limit: int) -> None:
    parts = split_long(text, lambda piece: len(piece) <= limit)
    assert "".join(parts) == text
    assert all(len(part) <= limit for part in parts)


def test_a_very_long_line_is_cut_in_time_that_grows_with_its_length() -> None:
    """A quadratic search would take minutes here."""
    text = "Das ist ein Satz, Nr. 5 von vielen. " * 30_000
    assert len(split_sentences(text)) == 30_000
    assert len(split_lines(text.replace(". D", ".\n D"))) == 30_000
    assert len(split_lines(". " + " \n" * 100_000 + "x" + " " * 100_000 + "\n" * 100_000)) == 2
