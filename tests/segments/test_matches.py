"""The closest source segment: scores, ties, a store that changes, and a reference that scores every segment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.corpus.match_tokens import tokens_of, word_hashes
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.manifest import Manifest, SegmentRecord, StoredFile
from knnmt.datastore.prepared import texts_of
from knnmt.datastore.segment import Segment, sentence_arrays
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import MissingDependencyError, SettingError
from knnmt.segments import matches
from knnmt.segments.matches import Match, SourceMatcher, likeness
from support import whole_segments
from support.datastore_pairs import some_pairs
from support.whole_segments import arrays_of_sources

MANIFEST = Manifest("model", "", "", "de", "en", 4, 10, "float16", "float32")


def segment(number: int, sources: Sequence[str]) -> Segment:
    """A segment in memory that holds sentences and no entries."""
    pairs = [SegmentPair(source, f"target of {source}", f"{number}#{place}") for place, source in enumerate(sources)]
    record = SegmentRecord(StoredFile(f"{number}.safetensors", 0, "0" * 64), len(pairs), 0)
    arrays = {**sentence_arrays(texts_of(pairs), [[]] * len(pairs)), **arrays_of_sources(sources, [[1]] * len(pairs))}
    return Segment(record, arrays, np.empty(0, np.int32), (), Path("nowhere"), 10)


def memory(*sources: str) -> Datastore:
    return Datastore(Path("nowhere"), MANIFEST, [segment(0, sources)])


def score(text: str, *sources: str) -> tuple[str, int] | None:
    """Source and score of the closest of some sources."""
    match = SourceMatcher(memory(*sources)).closest(text)
    return None if match is None else (match.source, match.score)


# Tokens and scores ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Straße, Größe!", "strasse|,|grösse|!"),
        ("Gro\u0308ße", "grösse"),
        ("Um 12:30 1.000,5 kg A4", "um|12:30|1.000,5|kg|a4"),
        ('Ein <b class="x">Satz</b><br/><1>', 'ein|<b class="x">|satz|</b>|<br/>|<1>'),
        ("x<5 und y>3", "x|<|5|und|y|>|3"),
        ("{0} von {name}, ${wert}", "{0}|von|{name}|,|${wert}"),
        ("%s %1$s %(n)d %.2f %lu %1. 5 % der", "%s|%1$s|%(n)d|%.2f|%lu|%1|.|5|%|der"),
        ("a&nbsp;b & c", "a|&nbsp;|b|&|c"),
        ("max_size …", "max_size|…"),
        ("日本語です。", "日|本|語|で|す|。"),
        ("हिन्दी में।", "हिन्दी|में|।"),
        ("привет мир", "привет|мир"),
        (" \n\t", ""),
    ],
)
def test_tokens(text: str, tokens: str) -> None:
    assert "|".join(tokens_of(text)) == tokens.casefold()


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("Die Datei ist offen.", "Die Datei ist offen.", 100),
        ("  Die Datei ist offen.\n", "Die Datei ist offen. ", 100),
        ("die datei IST offen.", "Die Datei ist offen.", 99),
        ("Die  Datei ist offen .", "Die Datei ist offen.", 99),
        (" Die  Datei\u00a0ist\noffen. ", "Die Datei ist offen.", 100),
        ("&Datei ist offen", "Datei ist offen", 100),
        ("Datei ist offen", "&Datei ist offen", 100),
        ("Datei _ist offen", "~Datei ist offen", 100),
        ("Abteilung R&D", "Abteilung RD", None),
        ("Die Datei ist offen!", "Die Datei ist offen.", 80),
        ("Die Datei ist offen", "Die Datei ist offen.", 80),
        ("Die Datei <b>offen</b>", "Die Datei <i>offen</i>", 60),
        ("Noch 3 Tage", "Noch 4 Tage", 66),
        ("eins zwei drei", "drei eins zwei", None),  # the words are the same; two edits of three tokens leave 33
        ("ja", "ja ja", 50),
        ("ja ja ja", "ja", None),
        ("ja", "nein", None),
        ("", "ja", None),
        (" ", "ja", None),
    ],
)
def test_scores(text: str, source: str, expected: int | None) -> None:
    assert score(text, source) == (None if expected is None else (source, expected))


def test_a_match_tells_where_it_comes_from() -> None:
    matcher = SourceMatcher(memory("Guten Tag", "Guten Abend"))
    assert matcher.closest("Guten Abend") == Match("Guten Abend", "target of Guten Abend", "0#1", 100, exact=True)
    assert matcher.closest("GUTEN ABEND") == Match("Guten Abend", "target of Guten Abend", "0#1", 99, exact=False)


def test_a_threshold() -> None:
    matcher = SourceMatcher(memory("eins zwei drei vier"))
    for text, reached in [("eins zwei drei vier", 100), ("Eins zwei drei vier", 99), ("eins zwei x vier", 75)]:
        match = matcher.closest(text, at_least=reached)
        assert match is not None
        assert match.score == reached
        assert reached == 100 or matcher.closest(text, at_least=reached + 1) is None
    assert matcher.closest("x y z vier", at_least=1) is not None
    for wrong in (0, 101):
        with pytest.raises(SettingError, match=f"from 1 to 100, got {wrong}"):
            matcher.closest("eins", at_least=wrong)


def test_an_exact_match_comes_first_then_the_score_then_the_newest() -> None:
    assert score("Ja bitte", "Ja bitte", "ja bitte", "Ja bitte!") == ("Ja bitte", 100)
    assert score("Ja bitte sehr", "ja bitte sehr", "Ja bitte") == ("ja bitte sehr", 99)
    assert score("Ja bitte sehr", "Ja bitte nein", "Ja bitte Herr", "Ja wohl") == ("Ja bitte Herr", 66)
    same = SourceMatcher(memory("Ja bitte", "Ja bitte", "Nein")).closest("Ja bitte")
    assert same is not None
    assert same.origin == "0#1"


def test_without_anything_to_match() -> None:
    assert SourceMatcher(Datastore(Path("nowhere"), MANIFEST, [])).closest("ja") is None
    assert SourceMatcher(memory()).closest("ja") is None
    assert score("ganz anderes hier", "ja", "nein") is None


def test_without_rapidfuzz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(MissingDependencyError, match=r"needs the package 'rapidfuzz'.*pip install 'knnmt\[matches\]'"):
        score("ja", "ja")


# A store that changes -------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, tiny: TransformerEngine) -> Datastore:
    return Datastore.build(tmp_path / "s", some_pairs(12), tiny)


def origin_of(match: Match | None) -> str | None:
    return None if match is None else match.origin


def test_changes_of_the_store_count_at_once(store: Datastore, tiny: TransformerEngine) -> None:
    matcher = SourceMatcher(store)
    text = "Satz 7 ja ja ja"
    assert origin_of(matcher.closest(text)) == "own.tsv#7"
    corrected = SegmentPair(text, "line seven", "corrected#1")
    store.add([corrected], tiny)
    assert matcher.closest(text) == Match(text, "line seven", "corrected#1", 100, exact=True)
    store.remove(matching(origin="corrected#1"))
    assert origin_of(matcher.closest(text)) == "own.tsv#7"
    store.replace(matching(origin="own.tsv#7"), [replace(corrected, origin="corrected#2")], tiny)
    assert origin_of(matcher.closest(text)) == "corrected#2"
    store.compact()
    assert origin_of(matcher.closest(text)) == "corrected#2"
    assert origin_of(matcher.closest("Satz 6 ja ja")) == "own.tsv#6"
    store.remove(lambda pair: True)
    assert matcher.closest(text, at_least=1) is None


def test_a_change_made_elsewhere_counts_once_the_store_shows_it(store: Datastore, tiny: TransformerEngine) -> None:
    matcher = SourceMatcher(store)
    assert matcher.closest("Ganz neu") is None
    Datastore.open(store.path).add([SegmentPair("Ganz neu", "brand new", "new#1")], tiny)
    assert matcher.closest("Ganz neu") is None
    store.refresh()
    assert origin_of(matcher.closest("Ganz neu")) == "new#1"


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that the matcher takes apart."""
    texts: list[str] = []

    def recording(text: str) -> list[str]:
        texts.append(text)
        return tokens_of(text)

    monkeypatch.setattr(matches, "tokens_of", recording)
    return texts


def test_no_text_of_a_store_is_read_but_of_what_may_win(
    store: Datastore, tiny: TransformerEngine, tokenized: list[str]
) -> None:
    matcher = SourceMatcher(store)
    matcher.closest("nichts")
    store.add([SegmentPair("Ganz neu", "brand new", "new#1")], tiny)
    store.remove(matching(origin="own.tsv#2"))
    matcher.closest("Ganz und gar")
    assert tokenized == ["nichts", "Ganz und gar"]


def test_segments_that_cannot_win_are_not_scored(tokenized: list[str]) -> None:
    too_old, chosen, too_different = "ja oder nein", "ja und nein", "ja ja ja ja"  # one token of three, three, four
    matcher = SourceMatcher(memory(too_old, chosen, too_different))
    matcher.closest("nichts")
    tokenized.clear()
    match = matcher.closest("ja bitte sehr", at_least=33)
    assert match is not None
    assert match.source == chosen
    assert tokenized == ["ja bitte sehr", chosen]


# Every segment scored -------------------------------------------------------------------------------------------------


def edits(first: list[str], second: list[str]) -> int:
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, 1):
        above, row = row, [i]
        for j, other in enumerate(second, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (one != other)))
    return row[-1]


def brute_force(store: Datastore, text: str, at_least: int) -> Match | None:
    return next(iter(all_matches(store, text, at_least)), None)


def all_matches(store: Datastore, text: str, at_least: int) -> list[Match]:
    found = []
    for number, pair in enumerate(store.pairs()):
        exact = pair.source.strip() == text.strip() != ""
        first, second = tokens_of(text), tokens_of(pair.source)
        longer = max(len(first), len(second), 1)
        points = 100 if exact else min(99, 100 * (longer - edits(first, second)) // longer)
        if first and points >= at_least:
            found.append((points, number, Match(pair.source, pair.target, pair.origin, points, exact)))
    return [match for _, _, match in sorted(found, key=lambda each: each[:2], reverse=True)]


words = st.sampled_from(["ja", "Ja", "nein", "und", "oder", "1", "2", ",", ".", "<b>"])
sentences = st.lists(words, max_size=7).map(" ".join)
blocks = st.lists(sentences, max_size=8)


def test_segments_that_were_joined_have_their_words(tiny: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(6), tiny)
    matcher = SourceMatcher(store)
    for number in range(100, 112):
        store.add([SegmentPair(f"Wort {number} kommt", f"word {number}", f"live#{number}")], tiny)
        store.remove(matching(origin=f"live#{number - 3}"))
        for text in ("Satz 3 ja ja ja", f"Wort {number} kommt", f"Wort {max(100, number - 2)} kommt"):
            found = matcher.closest(text)
            assert found is not None
            assert found.exact
        assert matcher.closest(f"Wort {number - 3} kommt", at_least=100) is None
    assert len(store.segments) < 5
    store.compact()
    for pair in store.pairs():
        assert matcher.closest(pair.source) == brute_force(store, pair.source, 50)


def coarse(text: str) -> list[int]:
    """Hashes that many words share."""
    return [number % 3 for number in word_hashes(text)]


@pytest.mark.parametrize("hashes", [word_hashes, coarse])
@given(data=st.data(), rounds=st.lists(blocks, min_size=1, max_size=6), at_least=st.integers(1, 100))
def test_the_search_agrees_with_scoring_every_segment(
    hashes: Callable[[str], list[int]], data: st.DataObject, rounds: list[list[str]], at_least: int
) -> None:
    """Also where words share hashes: the bound is then higher than it need be, and never too low."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (whole_segments, matches):
            patch.setattr(module, "word_hashes", hashes)
        assert_agreement(data, rounds, at_least)


def assert_agreement(data: st.DataObject, rounds: list[list[str]], at_least: int) -> None:
    store = memory()
    matcher = SourceMatcher(store)
    for number, added in enumerate(rounds, 1):
        segments = [*store.segments, segment(number, added)]
        touched = data.draw(st.integers(0, number))
        gone = data.draw(st.sets(st.integers(0, max(0, segments[touched].record.sentences - 1)), max_size=3))
        if segments[touched].record.sentences:
            removed = np.union1d(segments[touched].removed, np.array(sorted(gone), np.int32)).astype(np.int32)
            segments[touched] = replace(segments[touched], removed=removed)
        store._show(store.manifest, segments, None)
        text = data.draw(sentences)
        assert matcher.closest(text, at_least) == brute_force(store, text, at_least)
        most = data.draw(st.integers(1, 4))
        assert matcher.matches(text, at_least, most) == all_matches(store, text, at_least)[:most]


def test_likeness_is_the_score_of_a_match_not_rounded() -> None:
    assert likeness("Die Datei fehlt.", "die datei fehlt.") == 100
    assert likeness("Eine rote Datei", "Eine Datei") == pytest.approx(100 * 2 / 3)
    assert likeness("", "") == 100
    assert likeness("", "Datei") == 0
