"""Finding the stored source that a text is a form of, in a store that lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.sources import HeldSources
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine


def pairs(*sources: str) -> list[SegmentPair]:
    return [SegmentPair(source, "ab", f"made.tsv#{number}") for number, source in enumerate(sources)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab", "ab"),
        ("ab.", "ab"),
        ("AB", "ab"),
        ("cd", "cd!"),
        ("Cd", "Cd."),  # the same capitals come before the same mark
        ("cd.", "cd!"),
        ("cD!", "cd!"),
        (" ab  ", "ab"),
        ("abc", None),
        ("!", None),
        ("", None),
    ],
)
def test_the_most_alike_is_taken(tiny: TransformerEngine, tmp_path: Path, text: str, expected: str | None) -> None:
    store = Datastore.build(tmp_path / "s", pairs("ab", "cd!", "Cd.", "de"), tiny)
    assert HeldSources(store).form_of(text) == expected


def test_it_follows_the_store(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", pairs("ab", "cd"), tiny)
    forms = HeldSources(store)
    assert forms.form_of("ef.") is None
    store.add(pairs("ef", "EF"), tiny)
    assert forms.form_of("ef.") == "ef"
    store.remove(lambda pair: pair.source == "ef")
    assert forms.form_of("ef.") == "EF"
    store.compact()
    assert forms.form_of("ef.") == "EF"
    assert forms.form_of("cd,") == "cd"


def test_choices_by_source_are_those_of_reading_everything(tiny: TransformerEngine, tmp_path: Path) -> None:
    made = ["&Datei", "Datei", "datei.", "D&atei", "Andere Datei", "Da  tei", "R&D", "Datei_name", "A\nB", "A"]
    for accelerators in ("drop", "keep"):
        for text in [*made, "A B", "Dat&ei"]:
            store = Datastore.build(
                tmp_path / f"{accelerators}{len(list(tmp_path.iterdir()))}",
                pairs(*made),
                tiny,
                BuildConfig(accelerators=accelerators),
            )
            chosen = matching(source_text=text)
            expected = [pair for pair in store.units() if not chosen(pair)]
            same = [pair for pair in store.pairs() if pair.source.split() == text.split()]
            assert [pair for pair in store.pairs_among([text]) if pair.source.split() == text.split()] == same
            store.remove(chosen)
            assert list(store.units()) == expected
