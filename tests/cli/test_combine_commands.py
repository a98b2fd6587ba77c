"""Merging and splitting from the command line and in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import knnmt
from knnmt import BuildConfig, Datastore, RetrievalSettings, Translator
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import NotADatastoreError, SettingError
from support.commands import fails, succeeds_silently
from support.datastore_pairs import some_pairs
from support.made_stores import made_store, random_keys, random_values


def test_stores_are_merged_and_split_and_say_so(tmp_path: Path) -> None:
    merged, parts = tmp_path / "merged.store", tmp_path / "parts"
    made = made_store(tmp_path / "made.store", random_keys(16, 8), random_values(16)).path
    said = succeeds_silently("merge", made, made, "-o", merged, "--no-estimate")
    assert said == f"merged     {merged}: 8 sentences, 32 entries\n"
    assert succeeds_silently("verify", merged).startswith("sound: ")
    said = succeeds_silently("merge", made, made, "-o", tmp_path / "once.store", "--no-estimate", "--drop-duplicates")
    assert said.splitlines()[0] == "left out   4 sentences of duplicate units"
    said = succeeds_silently("split", merged, "--pairs", "3", "-o", parts, "--no-estimate")
    assert [line.split(": ")[1].split(",")[0] for line in said.splitlines()] == ["3 sentences"] * 2 + ["2 sentences"]
    assert sorted(path.name for path in parts.iterdir()) == ["00000.store", "00001.store", "00002.store"]
    succeeds_silently("split", merged, "--by", "origin", "-o", tmp_path / "files", "--no-estimate")
    assert "already exists" in fails("split", merged, "--pairs", "3", "-o", parts)
    assert "--by must be origin, got 'size'" in fails("split", merged, "--by", "size", "-o", tmp_path / "x")
    assert "choose how to split" in fails("split", merged, "-o", tmp_path / "x")
    assert "there is no datastore" in fails("merge", made, tmp_path / "absent", "-o", tmp_path / "x")
    (tmp_path / "half.store.merging").mkdir()
    with pytest.raises(NotADatastoreError, match="There is an unfinished merge"):
        Datastore.open(tmp_path / "half.store")


@pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
def test_a_merged_store_translates_as_one_that_was_built_from_both(
    tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    config = BuildConfig(key_dtype="float32")
    stores = [tmp_path / "one", tmp_path / "two"]
    memories = [some_pairs(30, "a.tsv"), some_pairs(30, "b.tsv", start=25)]
    for path, pairs in zip(stores, memories, strict=True):
        Datastore.build(path, pairs, tiny, config)
    merged = knnmt.merge(stores, tmp_path / "merged", model=tiny)
    built = Datastore.build(tmp_path / "built", [*memories[0], *memories[1]], tiny, config)
    assert list(merged.pairs()) == list(built.pairs())
    assert (merged.path / "settings.json").exists()
    translator = Translator(tiny_checkpoint, device="cpu", exact_matches="ignore", protect=False)
    sources = [pair.source for pair in memories[1]] + ["Satz 1 und Satz 50 ja"]
    for segments in (None, 5):
        settings = RetrievalSettings(k=4, temperature=5.0, interpolation_weight=0.6, segments=segments)
        found, expected = (
            list(translator.stream(sources, datastore=store.path, settings=settings)) for store in (merged, built)
        )
        assert [each.text for each in found] == [each.text for each in expected]
        assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-4)
    parts = knnmt.split(merged.path, tmp_path / "parts", by="origin", estimate=False)
    assert [[pair.origin for pair in part.pairs()] for part in parts] == [
        [pair.origin for pair in pairs] for pairs in memories
    ]
    with pytest.raises(SettingError, match="expected a list of stores"):
        knnmt.merge(str(stores[0]), tmp_path / "x")
    with pytest.raises(SettingError, match="--by must be origin, got 'size'"):
        knnmt.split(merged.path, tmp_path / "x", by="size")  # type: ignore[arg-type]
