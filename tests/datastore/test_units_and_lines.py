"""What a store keeps of units and what the model sees of them: accelerators, lines, white space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from knnmt.calibration.held_out import sample
from knnmt.compression.pca import reduce
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.overlap import known, unseen
from knnmt.datastore.sources import HeldSources
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.index.entries import Entries

BREAKS = SegmentPair("Eins.\nZwei.\n", "One.\nTwo.\n", "a.po#9")
UNITS = [
    SegmentPair("&Datei", "&File", "a.po#1"),
    SegmentPair("Speichern _unter", "Save _as", "a.po#5"),
    BREAKS,
    SegmentPair("Spalte _id ", " column\u00a0_id", "a.po#14"),
]
SHORT = [SegmentPair("Ja", "Yes", "b.tsv#1")]


@pytest.fixture
def store(tmp_path: Path, tiny: TransformerEngine) -> Datastore:
    return Datastore.build(tmp_path / "s", UNITS, tiny)


def targets_of(store: Datastore) -> list[list[int]]:
    """The token ids of every target."""
    return [segment.target_tokens(n).tolist() for segment in store.segments for n in range(segment.record.sentences)]


def test_the_store_keeps_texts_as_they_came_and_the_model_sees_them_plain(
    store: Datastore, tmp_path: Path, tiny: TransformerEngine
) -> None:
    assert list(store.units()) == UNITS
    seen = [("Datei", "File"), ("Speichern unter", "Save as"), ("Eins. Zwei.", "One. Two."), ("Eins.", "One.")]
    seen += [("Zwei.", "Two."), ("Spalte _id", "column _id")]
    plain = Datastore.build(tmp_path / "plain", [SegmentPair(*sides, "x#1") for sides in seen], tiny)
    assert targets_of(store) == targets_of(plain)
    np.testing.assert_array_equal(store.segments[0].arrays["keys"], plain.segments[0].arrays["keys"])


@pytest.mark.parametrize("again", [False, True])
def test_what_is_exported_is_what_was_read(
    store: Datastore, tmp_path: Path, tiny: TransformerEngine, again: bool
) -> None:
    for number in range(1 + again):
        assert store.export(tmp_path / "out.tmx") == 0
        read = list(read_files([tmp_path / "out.tmx"], ReadingConfig(), ReadingReport()))
        assert read == UNITS
        store = Datastore.build(tmp_path / f"again{number}", read, tiny)
    assert store.export(tmp_path / "out.tsv") == 1  # a line break is what TSV cannot hold


def test_lines_go_with_their_unit_and_stay_with_it(store: Datastore, tiny: TransformerEngine) -> None:
    assert [pair.source for pair in store.pairs()][2:5] == ["Eins.\nZwei.\n", "Eins.", "Zwei."]
    assert {pair.origin for pair in list(store.pairs())[2:5]} == {"a.po#9"}
    store.add(SHORT, tiny)
    store.add([SegmentPair("Drei:\nVier", "Three:\nFour", "a.po#20")], tiny)
    store.remove(matching(source_text="Ja"))
    store.compact()
    assert list(store.verify()) == []
    assert list(store.units())[-1].origin == "a.po#20"
    change = store.remove(matching(source_text="Eins. Zwei."))
    assert change.removed_sentences == 3
    assert [pair.source for pair in store.pairs()][2:] == ["Spalte _id ", "Drei:\nVier", "Drei:", "Vier"]
    store.compact()
    assert list(store.verify()) == []
    assert store.remove(matching(origin="a.po#20")).removed_sentences == 3


def test_segments_with_lines_and_without_are_joined(tmp_path: Path, tiny: TransformerEngine) -> None:
    store = Datastore.build(tmp_path / "s", SHORT, tiny)
    store.add([BREAKS], tiny)
    store.compact()
    assert len(store.segments) == 1
    assert list(store.units()) == [*SHORT, BREAKS]
    assert list(store.verify()) == []
    smaller, _ = reduce(store, tmp_path / "r", 4)
    assert list(smaller.units()) == [*SHORT, BREAKS]
    assert "Zwei." in HeldSources(smaller)


def test_damaged_lines_are_found(store: Datastore) -> None:
    arrays = store.segments[0].arrays
    arrays["lines"] = np.array([1, 0, 0, 1, 1, 0], np.uint8)
    problems = [problem.partition(": ")[2] for problem in store.verify()]
    assert problems == ["the lines do not follow units"]


def test_a_line_is_no_text_of_its_own_to_estimate_from(store: Datastore) -> None:
    """Or a unit would find itself in its lines, which new text does not."""
    queries = sample(Entries(store))
    of_unit = {
        int(text) for text, sentence in zip(queries.texts, queries.sentences.tolist(), strict=True) if 2 <= sentence < 5
    }
    assert len(of_unit) == 1


def test_accelerators_can_be_kept_and_what_is_added_follows(tmp_path: Path, tiny: TransformerEngine) -> None:
    kept = Datastore.build(tmp_path / "kept", UNITS[:1], tiny, BuildConfig(accelerators="keep"))
    assert kept.manifest.accelerators == "keep"
    kept.add(UNITS[1:2], tiny)
    assert targets_of(kept) == tiny.tokenizer.encode_targets(["&File", "Save _as"])
    with pytest.raises(SettingError, match="accelerators must be 'drop' or 'keep', got 'no'"):
        BuildConfig(accelerators="no")  # type: ignore[arg-type]


def test_text_that_a_store_holds_is_known_without_its_accelerator(store: Datastore) -> None:
    asked = [SegmentPair("Datei", "File", ""), SegmentPair("_Datei", "Data", ""), SegmentPair("Zwei", "Two", "")]
    found = known(asked, store.pairs())
    assert (set(found.sources), set(found.pairs)) == ({0, 1}, {0})
    assert unseen(store, asked) == asked[2:]
    assert matching(source_text="Speichern  unter")(UNITS[1])
    assert matching(source_text="Speichern _unter")(UNITS[1])


# Finding sources ------------------------------------------------------------------------------------------------------


def test_sources_are_found_as_the_store_changes(store: Datastore, tiny: TransformerEngine) -> None:
    sources = HeldSources(store)
    assert sources.pairs_of("Datei") == UNITS[:1]
    assert sources.pairs_of(" Eins.\u00a0 Zwei.") == [BREAKS]
    assert "Zwei." in sources
    assert "&Datei" not in sources
    assert "Spalte _id" in sources
    newer = SegmentPair("Datei", "Document", "b#1")
    store.add([newer], tiny)
    assert sources.pairs_of("Datei") == [newer, UNITS[0]]
    store.remove(matching(origin="a.po#1"))
    assert sources.pairs_of("Datei") == [newer]
    store.compact()
    assert sources.pairs_of("Datei") == [newer]
    assert "Zwei." in sources
