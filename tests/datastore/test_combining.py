"""Merged and split stores are those that building would make, without the model."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from knnmt.compression.pca import reduce
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore import combining, slices
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.combining import merge_stores, split_store
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError, DatastoreExistsError, DatastoreMismatchError, InputError, SettingError
from support.crafted import alter_record
from support.datastore_pairs import some_pairs


def entries_of(store: Datastore) -> list[tuple[Any, ...]]:
    """All that a store says: every entry that was not removed, the slow way."""
    found = [store.entry(number) for number in range(store.entries)]
    return [
        (entry.key.tolist(), entry.value, entry.position, entry.target_tokens.tolist(), entry.pair)
        for entry in found
        if not entry.removed
    ]


def files_of(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_ENTRIES", 60)


@pytest.fixture(scope="module")
def made(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, config = tmp_path_factory.mktemp("made"), BuildConfig(batch_tokens=70)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(slices, "SLICE_ENTRIES", 60)
        Datastore.build(made / "one", some_pairs(25, "a.tsv"), tiny, config)
        other = Datastore.build(made / "two", some_pairs(25, "b.tsv", start=15), tiny, config)
        other.remove(matching(origin="b.tsv#30"))
    return made


@pytest.fixture
def two(made: Path, tmp_path: Path, small_slices: None) -> list[Datastore]:
    """Stores of several segments each; some sentences of the second were removed, and some are in both."""
    return [Datastore.open(shutil.copytree(made / name, tmp_path / name)) for name in ("one", "two")]


def test_a_merged_store_is_what_building_both_makes(
    two: list[Datastore], tiny: TransformerEngine, tmp_path: Path
) -> None:
    merge_stores(two, tmp_path / "merged")
    merged = Datastore.open(tmp_path / "merged", tiny, verify=True)
    pairs = [*two[0].pairs(), *two[1].pairs()]
    assert list(merged.pairs()) == pairs
    built = Datastore.build(tmp_path / "built", pairs, tiny, BuildConfig(batch_tokens=70))
    assert [entry[1:] for entry in entries_of(merged)] == [entry[1:] for entry in entries_of(built)]
    found, expected = (np.array([entry[0] for entry in entries_of(store)]) for store in (merged, built))
    np.testing.assert_allclose(found, expected, atol=2e-3)  # which depend on the batch a little
    assert entries_of(merged) == entries_of(two[0]) + entries_of(two[1])
    assert merged.manifest.live_entries == merged.entries
    merged.add(some_pairs(2, start=90), tiny)
    assert list(merged.verify()) == []


def test_whole_segments_are_linked_and_what_is_linked_outlives_the_other_store(
    two: list[Datastore], tiny: TransformerEngine, tmp_path: Path
) -> None:
    merge_stores(two, tmp_path / "merged")
    merged = Datastore.open(tmp_path / "merged")
    linked = {(tmp_path / "merged/segments" / record.stored.file).stat().st_ino for record in merged.manifest.segments}
    of_one = {segment.path.stat().st_ino for segment in two[0].segments if segment.record.entries >= 30}
    assert of_one
    assert of_one <= linked
    before = entries_of(merged)
    two[0].remove(lambda pair: True)
    two[0].compact()
    assert entries_of(Datastore.open(tmp_path / "merged", verify=True)) == before


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EXDEV, "Invalid cross-device link")


def test_files_are_copied_where_they_cannot_be_linked(
    two: list[Datastore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge_stores(two, tmp_path / "linked")
    monkeypatch.setattr(os, "link", refuse)
    merge_stores(two, tmp_path / "copied")
    assert files_of(tmp_path / "copied") == files_of(tmp_path / "linked")
    victim = two[0].segments[0].path
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    with pytest.raises(DatastoreDamagedError, match="altered after it was written"):
        merge_stores([Datastore.open(tmp_path / "one")], tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_duplicates_stay_or_go_as_told(two: list[Datastore], tmp_path: Path) -> None:
    merge_stores(two, tmp_path / "merged", drop_duplicates=True)
    expected: dict[tuple[str, str], SegmentPair] = {}
    for store in two:
        for pair in store.pairs():
            expected.setdefault((pair.source, pair.target), pair)
    merged = Datastore.open(tmp_path / "merged", verify=True)
    assert list(merged.pairs()) == list(expected.values())
    assert len(expected) == 39  # and one was removed
    assert not any(len(segment.removed) for segment in merged.segments)


def test_lines_go_with_their_units(tiny: TransformerEngine, tmp_path: Path) -> None:
    unit = SegmentPair("Eins.\nZwei.\n", "One.\nTwo.\n", "a.po#1")
    one = Datastore.build(tmp_path / "one", [unit, *some_pairs(3)], tiny)
    again = SegmentPair(unit.source, unit.target, "b.po#1")
    other = Datastore.build(tmp_path / "two", [again, *some_pairs(1)], tiny, BuildConfig(for_fast=True))
    merge_stores([one, other], tmp_path / "merged", drop_duplicates=True)
    merged = Datastore.open(tmp_path / "merged", verify=True)
    assert list(merged.pairs()) == list(one.pairs())
    assert len(list(one.pairs())) == 6
    assert not merged.manifest.for_fast
    places = split_store(merged, tmp_path / "parts", pairs=2)
    assert [len(list(Datastore.open(place).units())) for place in places] == [2, 2]
    assert len(list(Datastore.open(places[0], verify=True).pairs())) == 4


def test_stores_that_do_not_fit_are_refused(
    two: list[Datastore], tiny: TransformerEngine, make_checkpoint: Any, tmp_path: Path
) -> None:
    from knnmt.engine.loading import load_engine

    other = Datastore.build(tmp_path / "wide", some_pairs(5), tiny, BuildConfig(key_dtype="float32"))
    with pytest.raises(DatastoreMismatchError, match=r"expected key_dtype 'float16', found 'float32'\. Build"):
        merge_stores([two[0], other], tmp_path / "merged")
    of_another = load_engine(make_checkpoint(decoder_ffn_dim=40), device="cpu")
    other = Datastore.build(tmp_path / "another", some_pairs(5), of_another)
    with pytest.raises(DatastoreMismatchError, match=r"another: cannot be merged with .*one: expected a store of the"):
        merge_stores([two[0], other], tmp_path / "merged")
    reduced = [reduce(store, tmp_path / f"reduced-{number}", 8)[0] for number, store in enumerate(two)]
    with pytest.raises(DatastoreMismatchError, match=r"transformed differently .* Merge the stores that"):
        merge_stores(reduced, tmp_path / "merged")
    merge_stores([reduced[0], reduced[0]], tmp_path / "twice")
    assert Datastore.open(tmp_path / "twice", tiny, verify=True).entries == 2 * reduced[0].entries
    with pytest.raises(DatastoreExistsError, match="already exists"):
        merge_stores(two, tmp_path / "twice")
    with pytest.raises(SettingError, match="name the stores"):
        merge_stores([], tmp_path / "merged")
    for store in two:
        store.remove(lambda pair: True)
    with pytest.raises(InputError, match="there are no sentences for it"):
        merge_stores(two, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("linking", [True, False])
def test_an_interrupted_merge_goes_on(
    two: list[Datastore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linking: bool
) -> None:
    """Killed after each file that is put in place; a call with other stores meanwhile does no harm."""
    if not linking:
        monkeypatch.setattr(os, "link", refuse)
    merge_stores(two, tmp_path / "whole")
    expected = files_of(tmp_path / "whole")
    count = len(Datastore.open(tmp_path / "whole").segments)
    for stop in range(1, count + 1):
        done = 0

        def progress(_sentences: int, _entries: int, stop: int = stop) -> None:
            nonlocal done
            done += 1
            if done == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            merge_stores(two, tmp_path / "merged", progress=progress)
        assert not (tmp_path / "merged").exists()
        if stop % 2:
            done = -1000
            with pytest.raises(KeyboardInterrupt):
                merge_stores(
                    two[::-1], tmp_path / "merged", progress=lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
                )
    merge_stores(two, tmp_path / "merged")
    assert files_of(tmp_path / "merged") == expected
    assert not (tmp_path / "merged.merging").exists()


def test_a_store_is_split_by_origin_and_by_size_and_merged_again(
    two: list[Datastore], tiny: TransformerEngine, tmp_path: Path
) -> None:
    merge_stores(two, tmp_path / "merged")
    merged = Datastore.open(tmp_path / "merged")
    merged.add([SegmentPair("ohne", "without", ""), SegmentPair("noch", "more", "x/A.tsv#1")], tiny)
    before = entries_of(merged)
    places = split_store(merged, tmp_path / "files", by_origin=True)
    assert [place.name for place in places] == ["a.store", "b.store", "none.store", "A-2.store"]
    parts = [Datastore.open(place, tiny, verify=True) for place in places]
    assert entries_of(parts[0]) == entries_of(two[0])
    assert entries_of(parts[1]) == entries_of(two[1])
    assert b"b.tsv" not in b"".join(files_of(places[0]).values())
    places = split_store(merged, tmp_path / "sizes", pairs=20)
    parts = [Datastore.open(place, tiny, verify=True) for place in places]
    assert [part.manifest.sentences for part in parts] == [20, 20, 11]
    assert [entry for part in parts for entry in entries_of(part)] == before
    merge_stores(parts, tmp_path / "again")
    assert entries_of(Datastore.open(tmp_path / "again")) == before
    with pytest.raises(DatastoreExistsError):
        split_store(merged, tmp_path / "files", by_origin=True)
    for asked in ({}, {"by_origin": True, "pairs": 2}):
        with pytest.raises(SettingError, match="choose how to split"):
            split_store(merged, tmp_path / "x", **asked)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="pairs must be at least 1, got 0"):
        split_store(merged, tmp_path / "x", pairs=0)


def test_segments_of_one_name_or_with_one_checksum_stay_what_they_are(
    two: list[Datastore], tiny: TransformerEngine, tmp_path: Path
) -> None:
    """A store may say that its files are those of another: none of its entries becomes one of the other."""
    expected = entries_of(two[0]) + entries_of(two[1])

    def claim(content: dict[str, Any]) -> None:
        for each, other in zip(content["segments"], two[0].manifest.segments, strict=True):
            (two[1].path / "segments" / each["stored"]["file"]).rename(two[1].path / "segments" / other.stored.file)
            each["stored"] |= {"file": other.stored.file, "sha256": other.stored.sha256}

    alter_record(two[1].path / "manifest.json", claim)
    claimed = Datastore.open(two[1].path)
    merge_stores([two[0], claimed], tmp_path / "merged")
    assert entries_of(Datastore.open(tmp_path / "merged")) == expected


@pytest.mark.parametrize("lie", [{"entries": 1 << 60}, {"sentences": 1 << 60}, {"entries": 0}, {"sentences": 0}])
def test_stores_with_sizes_that_cannot_be_are_not_merged(
    two: list[Datastore], tmp_path: Path, lie: dict[str, int]
) -> None:
    alter_record(two[0].path / "manifest.json", lambda content: content["segments"][0].update(lie))
    with pytest.raises(DatastoreDamagedError):
        merge_stores([Datastore.open(two[0].path), two[1]], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_no_origin_leads_out_of_the_directory_of_the_parts(tiny: TransformerEngine, tmp_path: Path) -> None:
    origins = [
        "../../out.tsv#1",
        "/etc/out.tsv#1",
        "..#1",
        ".#1",
        "..\\..\\out.tsv#1",
        "a/..#2",
        "x\0y.tsv#1",
        "~root#1",
        "C:out.tsv#3",
    ]
    pairs = [SegmentPair(f"ab {number}", "cd", origin) for number, origin in enumerate(origins)]
    store = Datastore.build(tmp_path / "in" / "s", pairs, tiny)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    places = split_store(store, tmp_path / "in" / "parts", by_origin=True)
    made = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert all(path.is_relative_to(tmp_path / "in" / "parts") for path in made)
    assert all(place.parent == tmp_path / "in" / "parts" and place.is_dir() for place in places)
    assert sum(Datastore.open(place).manifest.sentences for place in places) == len(pairs)


def test_an_interrupted_split_goes_on_and_too_many_stores_are_refused(
    two: list[Datastore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_store(two[0], tmp_path / "whole", pairs=6)
    for stop in (3, 9, 17):

        def progress(sentences: int, _entries: int, stop: int = stop) -> None:
            if sentences >= stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            split_store(two[0], tmp_path / "parts", pairs=6, progress=progress)
        assert not (tmp_path / "parts").exists()
    split_store(two[0], tmp_path / "parts", pairs=6)
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")
    assert not list(tmp_path.glob("*.splitting*"))
    monkeypatch.setattr(combining, "MAX_PARTS", 4)
    with pytest.raises(SettingError, match="more than 4 stores"):
        split_store(two[0], tmp_path / "many", pairs=2)
