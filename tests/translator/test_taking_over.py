"""Matches that are taken over: which, how they are written, and what is never taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knnmt import Datastore, Request, SegmentPair, Translation, Translator
from knnmt.config import MatchConfig
from knnmt.corpus.sameness import plain
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import MatchWarning, SettingError
from knnmt.translator.taking_over import taken_over

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
MEMORY = [
    SegmentPair("Öffnen", "Open", "a.po#1", "menu"),
    SegmentPair("Öffnen", "Opening", "a.po#2", "noun"),
    SegmentPair("Schließen", "Shut", "a.po#3"),
    SegmentPair("Schließen", "Close", "b.po#1"),
    SegmentPair("Schließen", "Close", "b.po#2"),
    SegmentPair("&Datei", "&Dossier", "a.po#4"),
    SegmentPair("Speichern unter", "Keep thus", "a.po#5"),
    SegmentPair("Spalte _id", "pillar _id", "a.po#6"),
    SegmentPair("Erste Zeile.\nZweite Zeile.", "First verse.\nSecond verse.", "a.po#7"),
    SegmentPair("5\u00a0km weit", "5\u00a0km far", "a.po#8"),
    SegmentPair("%s gelöscht", "deleted", "a.po#9"),
    SegmentPair("Seite 3 von %1$s ist leer", "Page 3 of %1$s is bare", "a.po#10"),
]


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "s", MEMORY, tiny)


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path, store: Datastore) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", datastore=store, settings="raw")


def asked(translator: Translator, text: str, context: str = "", **options: Any) -> Translation:
    return translator.translate(
        Request(text, context=context), **{"exact_matches": "use", "beam": 1, "max_tokens": 5, **options}
    )


def alternatives(found: Translation) -> list[str]:
    return [each.text for each in found.alternatives]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("&Datei", "&Dossier"),
        ("Datei", "Dossier"),
        ("_Datei", "_Dossier"),
        (" Da&tei\n", " &Dossier\n"),
        ("Speichern &unter", "&Keep thus"),
        ("\tSpeichern  unter ", "\tKeep thus "),
        ("Spalte _id", "pillar _id"),
        ("Erste Zeile.\nZweite Zeile.", "First verse.\nSecond verse."),
        ("Erste Zeile. Zweite Zeile.", "First verse. Second verse."),
        ("Zweite Zeile.", "Second verse."),
        ("5 km weit", "5\u00a0km far"),
        ("Schliessen", None),
        ("schließen", None),
        ("Schließen.", None),
        ("O\u0308ffnen", "Opening"),
        ("", None),
    ],
)
@pytest.mark.parametrize("split", [False, True])
def test_the_memorys_own_target_comes_out(translator: Translator, text: str, expected: str | None, split: bool) -> None:
    found = asked(translator, text, split_sentences=split)
    assert found.source == text
    if expected is None:
        assert found.kind == ("with memory" if text else None)
        assert found.match is None
    else:
        assert found.text == expected
        assert found.kind == "exact match"
        assert found.match is not None
        assert (found.match.score, found.match.exact) == (100, True)
        assert any(found.match.origin == pair.origin for pair in MEMORY)
        assert found.score == 0
        assert not found.tokens


def test_of_several_targets_the_newest_comes_out_and_the_others_are_alternatives(translator: Translator) -> None:
    found = asked(translator, "Schließen")
    assert found.text == "Close"
    assert found.match is not None
    assert found.match.origin == "b.po#2"
    assert alternatives(found) == ["Shut"]
    assert [each.match and each.match.origin for each in found.alternatives] == ["a.po#3"]


def test_the_context_decides(translator: Translator) -> None:
    assert asked(translator, "Öffnen", "menu").text == "Open"
    assert asked(translator, "Öffnen", " menu ").text == "Open"
    assert alternatives(asked(translator, "Öffnen", "menu")) == []
    assert asked(translator, "Öffnen", "noun").text == "Opening"
    assert asked(translator, "Öffnen", "button").kind == "with memory"
    unsaid = asked(translator, "Öffnen")
    assert (unsaid.text, alternatives(unsaid)) == ("Opening", ["Open"])
    assert asked(translator, "Schließen", "menu").text == "Close"


def test_prefer_takes_what_nothing_speaks_against(translator: Translator) -> None:
    def kind(text: str, context: str = "") -> str | None:
        return asked(translator, text, context, exact_matches="prefer").kind

    assert kind("Datei") == "exact match"
    assert kind("Öffnen", "menu") == "exact match"
    assert kind("Öffnen") == "with memory"
    assert kind("Schließen") == "with memory"
    assert kind("Datei", "menu") == "with memory"
    assert kind("%s gelöscht") == "with memory"


def test_a_target_without_the_texts_placeholders_is_flagged(translator: Translator) -> None:
    with pytest.warns(MatchWarning, match="%s"):
        found = asked(translator, "%s gelöscht")
    assert found.text == "deleted"
    assert [each.kind for each in found.warnings] == [MatchWarning]


def test_python_decodes_unless_told(translator: Translator, store: Datastore) -> None:
    plain_call = translator.translate("Schließen", beam=1, max_tokens=5)
    assert plain_call.kind == "with memory"
    assert plain_call == asked(translator, "Schließen", exact_matches="ignore")
    alone = asked(translator, "Schließen", datastore=None)
    assert alone.kind == "model alone"
    ready = translator.retrieval()
    assert translator.translate("Schließen", retrieval=ready, exact_matches="use").text == "Close"


def test_texts_in_between_are_decoded_as_without_them(translator: Translator) -> None:
    texts = ["Schließen", "Etwas anderes", "", "&Datei", "Noch etwas"]
    found = translator.translate(texts, exact_matches="use", beam=2, max_tokens=6)
    decoded = translator.translate(texts, beam=2, max_tokens=6)
    assert [each.kind for each in found] == ["exact match", "with memory", None, "exact match", "with memory"]
    assert found[1] == decoded[1]
    assert found[4] == decoded[4]


def test_what_was_removed_is_never_taken_and_what_was_added_is_at_once(
    tiny_checkpoint: Path, tiny: TransformerEngine, tmp_path: Path
) -> None:
    store = Datastore.build(tmp_path / "s", MEMORY, tiny)
    translator = Translator(tiny_checkpoint, device="cpu", datastore=tmp_path / "s", settings="raw")
    other = Datastore.open(tmp_path / "s")
    assert asked(translator, "Schließen").text == "Close"
    other.add([SegmentPair("Schließen", "Seal", "c.po#1"), SegmentPair("Neu hier", "New here", "c.po#2")], tiny)
    assert asked(translator, "Neu hier").text == "New here"
    found = asked(translator, "Schließen")
    assert (found.text, alternatives(found)) == ("Seal", ["Close", "Shut"])
    other.remove(lambda pair: pair.origin in ("c.po#1", "b.po#2", "c.po#2"))
    found = asked(translator, "Schließen")
    assert (found.text, alternatives(found)) == ("Close", ["Shut"])
    assert asked(translator, "Neu hier").kind == "with memory"
    other.compact()
    assert asked(translator, "Schließen").text == "Close"
    other.remove(lambda pair: pair.source == "Schließen")
    assert asked(translator, "Schließen").kind == "with memory"
    assert store.path == other.path


# Fuzzy matches --------------------------------------------------------------------------------------------------------


def test_a_fuzzy_match_is_repaired_from_its_threshold_on(translator: Translator) -> None:
    found = asked(translator, "  Seite 12 von %2$s ist leer", match_threshold=60)
    assert found.kind == "repaired match"
    assert found.text == "  Page 12 of %2$s is bare"
    assert found.match is not None
    assert found.match.origin == "a.po#10"
    assert not found.match.exact
    below = asked(translator, "Seite 12 von %2$s ist leer", match_threshold=found.match.score + 1)
    assert below.kind == "with memory"
    assert asked(translator, "Seite 12 von %2$s ist voll", match_threshold=10).kind == "with memory"
    assert asked(translator, "Seite 1 von %1$s ist leer", match_threshold=60).kind == "with memory"


def test_a_fuzzy_match_does_not_stand_in_for_an_exact_one_that_is_not_taken(translator: Translator) -> None:
    assert asked(translator, "Öffnen", "button", match_threshold=50).kind == "with memory"


def test_settings_that_contradict_are_refused(translator: Translator) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"exact_matches": "always"}, "must be 'use', 'prefer' or 'ignore', got 'always'"),
        ({"exact_matches": "use", "match_threshold": 0}, "at least 1 and at most 100"),
        ({"exact_matches": "use", "match_threshold": 95.0}, "must be a whole number"),
        ({"match_threshold": 95}, "takes none"),
    ]
    for given_settings, words in wrong:
        with pytest.raises(SettingError, match=words):
            translator.translate("Ja", **given_settings)
    with pytest.raises(SettingError, match="a context must be a text"):
        Request("Ja", context=5)  # type: ignore[arg-type]


# A slow reference -----------------------------------------------------------------------------------------------------

_WORDS = st.sampled_from(["a", "a  b", "a b", "b", " a"])
_PAIRS = st.lists(st.tuples(_WORDS, st.sampled_from(["x", "y", "z"]), st.sampled_from(["", "c", "d"])), min_size=1)


@given(pairs=_PAIRS, text=_WORDS, context=st.sampled_from(["", "c", "d"]), gone=st.sets(st.integers(0, 5)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_choice_is_that_of_a_walk_through_all_pairs(
    tiny: TransformerEngine,
    tmp_path_factory: pytest.TempPathFactory,
    pairs: list[tuple[str, str, str]],
    text: str,
    context: str,
    gone: set[int],
) -> None:
    from knnmt.datastore.sources import HeldSources
    from knnmt.segments.matches import SourceMatcher

    made = [SegmentPair(source, target, f"m#{n}", of) for n, (source, target, of) in enumerate(pairs)]
    store = Datastore.build(tmp_path_factory.mktemp("walk") / "s", made, tiny)
    removed = {f"m#{number}" for number in gone}
    store.remove(lambda pair: pair.origin in removed)
    best: tuple[int, int] | None = None
    expected = None
    for number, pair in enumerate(made):
        if pair.origin in removed or plain(pair.source) != plain(text):
            continue
        if pair.context and context and pair.context != context:
            continue
        rank = (int(pair.context == context), number)
        if best is None or rank > best:
            best, expected = rank, pair
    found = taken_over(MatchConfig("use"), text, context, HeldSources(store), SourceMatcher(store), "en")
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.match is not None
        assert found.match.origin == expected.origin
        assert found.text.strip() == expected.target
        assert found.text.startswith(text[: len(text) - len(text.lstrip())])
        held = {
            pair.target
            for pair in made
            if pair.origin not in removed
            and plain(pair.source) == plain(text)
            and not (pair.context and context and pair.context != context)
        }
        assert {each.strip() for each in (found.text, *alternatives(found))} == held
        assert len(alternatives(found)) == len(held) - 1
