"""The stores that a translator has open, and the settings that a call retrieves with."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from knnmt import Request, SegmentPair, Translator
from knnmt.calibration.estimates import Calibration
from knnmt.calibration.index_choice import prepare
from knnmt.compression.pca import reduce
from knnmt.config import CacheConfig, Fading, RetrievalConfig
from knnmt.datastore.settings import read_settings
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import (
    DatastoreDamagedError,
    DatastoreMismatchError,
    NotADatastoreError,
    SettingError,
    SlowSearchWarning,
)
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval import open_store
from knnmt.retrieval.profiles import Profile, write_profiles
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.settings import settings_of
from knnmt.translator import memories
from knnmt.translator.memories import Memories
from support.checkpoints import MakeCheckpoint
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")


@pytest.fixture(scope="module")
def prepared(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Datastore.build(tmp_path_factory.mktemp("prepared") / "s", some_pairs(25), tiny)
    prepare(made, tiny)
    return made.path


@pytest.fixture
def store(prepared: Path, tmp_path: Path) -> Datastore:
    return Datastore.open(shutil.copytree(prepared, tmp_path / "s"))


@pytest.fixture
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", settings="raw")


def config_of(translator: Translator, store: Datastore, **settings: Any) -> RetrievalConfig:
    return translator.memories.open(store).resolve(settings_of(RetrievalSettings, None, **settings))


def test_a_store_without_settings_is_calibrated_when_it_is_opened(translator: Translator, store: Datastore) -> None:
    (store.path / "settings.json").unlink()
    memory = translator.memories.open(store)
    estimated = memory.estimates.by_segment
    assert estimated.queries > 100
    assert not (store.path / "settings.json").exists()  # reading a store does not write to it
    config = config_of(translator, store)
    assert config == estimated.config()
    assert config.fading is not None
    assert config.cache is None


def test_settings_saved_with_a_store_are_used(
    translator: Translator, tiny: TransformerEngine, store: Datastore
) -> None:
    saved = Calibration.of(store.path)
    assert saved is not None
    assert translator.memories.open(store).calibration == saved
    (store.path / "settings.json").write_text("{", encoding="utf-8")
    with pytest.raises(DatastoreDamagedError, match="expected settings in JSON"):
        Memories(tiny).open(store)


def test_a_store_of_one_sentence_has_nothing_to_compare_with(
    translator: Translator, tiny: TransformerEngine, tmp_path: Path
) -> None:
    single = Datastore.build(tmp_path / "one", some_pairs(1), tiny)
    assert translator.memories.open(single).calibration == Calibration.unknown()
    assert translator.translate("Satz 0 ", datastore=single).tokens


FADING = Fading(5.0, 0.5, 6.0, 0.4)
PROFILES = {
    "knn": Profile(RetrievalConfig(3, 0.8, 11.0, FADING), "likelihood", 40, 2.5),
    "sure": Profile(RetrievalConfig(2, 0.9, 7.0, cache=CacheConfig(4.0)), "bleu", 40, 2.6),
}


def test_a_call_comes_before_the_translator_the_translator_before_the_profile_and_that_before_the_estimate(
    tiny_checkpoint: Path, store: Datastore
) -> None:
    write_profiles(store.path, PROFILES, default="knn")
    translator = Translator(
        tiny_checkpoint, device="cpu", datastore=store, temperature=12.0, forms=False, settings="raw"
    )
    estimated = translator.memories.open(store).estimates.by_segment

    def signed(**settings: Any) -> str:
        return translator.signature(**settings)

    tuned = f"lambda:0.8{FADING.signature()}"
    assert f"|k:3|{tuned}|T:12|forms:no|cache:no|" in signed()
    assert f"|k:5|{tuned}|T:13|forms:no|cache:no|" in signed(k=5, temperature=13.0)
    assert "|k:2|lambda:0.9|T:12|forms:no|cache:4|" in signed(profile="sure")
    assert "|k:7|lambda:0.9|T:12|forms:no|cache:no|" in signed(profile="sure", k=7, cache=None)
    whole = f"|k:{estimated.k}|lambda:{estimated.fading_weight:.4g}{estimated.fading.signature()}|T:12|"
    assert whole in signed(profile="estimated")
    with pytest.raises(SettingError, match="no profile 'unsure'; it has knn, sure, estimated"):
        signed(profile="unsure")
    with pytest.raises(SettingError, match="no profile 'unsure'"):
        translator.translate("Satz", profile="unsure")


def test_settings_given_in_a_call_change_those_of_a_profile(translator: Translator, store: Datastore) -> None:
    write_profiles(store.path, PROFILES, default="knn")
    estimated = translator.memories.open(store).calibration
    knn, sure = PROFILES["knn"].config, PROFILES["sure"].config
    assert config_of(translator, store) == knn
    assert config_of(translator, store, profile="sure") == sure
    assert config_of(translator, store, interpolation_weight=0.3) == replace(knn, interpolation_weight=0.3, fading=None)
    assert config_of(translator, store, interpolation_weight=0.3, fading=True) == replace(knn, interpolation_weight=0.3)
    fixed = config_of(translator, store, fading=False)
    assert fixed == replace(knn, interpolation_weight=estimated.interpolation_weight, fading=None)
    faded = config_of(translator, store, profile="sure", fading=True)
    assert faded == replace(sure, interpolation_weight=estimated.fading_weight, fading=estimated.fading)
    paper = replace(sure, cache=CacheConfig(4.0, "batch", keep_hits=True))
    assert config_of(translator, store, profile=paper, cache=5).cache == CacheConfig(5, "batch", keep_hits=True)
    assert config_of(translator, store, profile="sure", cache=5).cache == CacheConfig(5)
    assert config_of(translator, store, profile=replace(knn, k=4), temperature=2.0) == replace(
        knn, k=4, temperature=2.0
    )


def test_a_profile_needs_no_estimate(translator: Translator, tiny: TransformerEngine, tmp_path: Path) -> None:
    Datastore.build(tmp_path / "whole", some_pairs(20), tiny)
    made, _ = reduce(Datastore.open(tmp_path / "whole"), tmp_path / "short", 8)
    with pytest.raises(SettingError, match="Tune it"):
        config_of(translator, made)
    write_profiles(made.path, PROFILES, default="knn")
    assert config_of(translator, made) == PROFILES["knn"].config
    assert config_of(translator, made, interpolation_weight=0.1).fading is None
    for settings in ({"fading": False}, {"profile": "sure", "fading": True}, {"profile": "estimated"}):
        with pytest.raises(SettingError, match="Tune it"):
            config_of(translator, made, **settings)


def test_a_weight_that_is_given_is_fixed_unless_asked_to_fade(translator: Translator, store: Datastore) -> None:
    estimated = translator.memories.open(store).estimates.by_segment
    fixed = config_of(translator, store, interpolation_weight=0.3)
    assert (fixed.interpolation_weight, fixed.fading, fixed.temperature) == (0.3, None, estimated.temperature)
    fading = config_of(translator, store, interpolation_weight=0.3, fading=True)
    assert (fading.interpolation_weight, fading.fading) == (0.3, estimated.fading)
    kept = config_of(translator, store, fading=False)
    assert (kept.interpolation_weight, kept.fading) == (estimated.interpolation_weight, None)
    assert config_of(translator, store, interpolation_weight=None, fading=None) == estimated.config()


def test_a_cache_is_given_as_a_distance_or_as_a_quantile(translator: Translator, store: Datastore) -> None:
    distances = translator.memories.open(store).calibration.nearest_distances
    assert config_of(translator, store, cache=6).cache == CacheConfig(6)
    assert config_of(translator, store, cache="6.5").cache == CacheConfig(6.5)
    whole = config_of(translator, store, cache="20%").cache
    assert whole is not None
    assert whole == CacheConfig(whole.threshold)
    assert whole.threshold == pytest.approx(distances[4])
    for quantile, distance in (("0%", distances[0]), ("100%", distances[20]), ("2.5%", sum(distances[:2]) / 2)):
        found = config_of(translator, store, cache=quantile).cache
        assert found is not None
        assert found.threshold == pytest.approx(distance)


def test_a_quantile_of_distances_that_nobody_knows_is_refused(
    translator: Translator, tiny: TransformerEngine, tmp_path: Path
) -> None:
    single = Datastore.build(tmp_path / "one", some_pairs(1), tiny)
    with pytest.raises(SettingError, match=r"cache '20%' .* not estimated .* Give a distance like 6, .*knnmt tune"):
        config_of(translator, single, cache="20%")
    assert config_of(translator, single, cache="6").cache == CacheConfig(6)


def test_settings_are_read_when_they_change_and_not_for_every_request(
    translator: Translator, store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_profiles(store.path, PROFILES, default="knn")
    reads: list[Path] = []

    def counted(path: Path) -> dict[str, Any]:
        reads.append(path)
        return read_settings(path)

    for module in ("retrieval.profiles", "calibration.estimates"):
        monkeypatch.setattr(f"knnmt.{module}.read_settings", counted)
    translator.memories.open(store)
    opened = len(reads)
    for k in (2, 3, 4):
        assert translator.memories.retrieval(store, RetrievalSettings(k=k)).config == replace(
            PROFILES["knn"].config, k=k
        )
        translator.memories.refresh([store])
    assert len(reads) == opened
    write_profiles(store.path, {"new": PROFILES["sure"]})
    os.utime(store.path / "settings.json")  # clocks of file systems are coarse
    assert translator.memories.retrieval(store, RetrievalSettings(profile="new")).config == PROFILES["sure"].config


def test_a_store_that_has_only_profiles_is_estimated_again_when_it_grows(
    translator: Translator, tiny: TransformerEngine, store: Datastore
) -> None:
    (store.path / "settings.json").unlink()
    write_profiles(store.path, PROFILES)
    before = translator.memories.open(store).calibration
    Datastore.open(store.path).add(some_pairs(20, start=100), tiny)
    translator.memories.refresh([store])
    after = translator.memories.open(store).calibration
    assert after.queries > before.queries
    after.save(store.path)
    translator.memories.refresh([store])
    Datastore.open(store.path).add(some_pairs(5, start=200), tiny)
    translator.memories.refresh([store])
    assert translator.memories.open(store).calibration == after  # what was saved stays


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "k must be at least 1 and at most 4,096, got 0"),
        ({"interpolation_weight": 1.0}, "interpolation_weight must be at least 0 and below 1, got 1.0"),
        ({"interpolation_weight": -0.1}, "interpolation_weight must be at least 0 and below 1"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"cache": -1}, "threshold must be a number of at least 0, got -1"),
        ({"cache": "viel"}, "cache must be a distance like 6, or a quantile like '20%' .* got 'viel'"),
        ({"cache": "120%"}, "between 0% and 100%, got '120%'"),
        ({"cache": "-5%"}, "between 0% and 100%, got '-5%'"),
        ({"cache": "nan"}, "got 'nan'"),
        ({"search": "world"}, "search must be 'whole' or 'segments', got 'world'"),
        ({"profile": "fast"}, "no profile 'fast'; it has estimated"),
        (
            {"interpolation_wieght": 0.5},
            "there is no setting 'interpolation_wieght'; the settings are k, ",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(
    translator: Translator, tiny_checkpoint: Path, store: Datastore, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        translator.stream(iter(["Satz"]), datastore=store, **settings)
    with pytest.raises(SettingError, match=message):
        Translator(tiny_checkpoint, device="cpu", datastore=store, **settings, settings="raw")


def test_misspelt_settings_are_refused_without_a_store_too(translator: Translator) -> None:
    with pytest.raises(SettingError, match="there is no setting 'beams'"):
        translator.translate("Satz", beams=3)  # type: ignore[call-overload]


def test_settings_of_a_request_are_checked(translator: Translator, store: Datastore) -> None:
    with pytest.raises(SettingError, match="k must be at least 1"):
        translator.translate([Request("Satz", store, k=0)])


def test_what_is_no_store_of_this_model_is_refused(
    translator: Translator, make_checkpoint: MakeCheckpoint, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    other = Translator(make_checkpoint(d_model=16), device="cpu").engine
    foreign = Datastore.build(tmp_path / "other", some_pairs(3), other)
    with pytest.raises(DatastoreMismatchError):
        translator.translate("Satz", datastore=foreign)
    with pytest.raises(DatastoreMismatchError):
        Translator(tiny_checkpoint, device="cpu", datastore=foreign, settings="raw")
    with pytest.raises(NotADatastoreError, match="absent"):
        Translator(tiny_checkpoint, device="cpu", datastore=tmp_path / "absent", settings="raw")


def test_a_store_is_opened_once_by_whatever_name_and_closed_on_request(
    translator: Translator, store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = translator.memories.open(store)
    assert translator.memories.open(str(store.path)) is memory
    monkeypatch.chdir(store.path.parent)
    assert translator.memories.open("s") is memory
    assert translator.memories.open(Path("./s/../s")) is memory
    same = translator.memories.retrieval(store, RetrievalSettings(k=3))
    assert translator.memories.retrieval("s", RetrievalSettings(k=3)) is same
    assert translator.memories.retrieval("s", RetrievalSettings(k=4)) is not same
    before = translator.translate("Satz 3", datastore=store, k=3)
    translator.memories.close(store)
    assert translator.memories.open(store) is not memory
    assert translator.memories.retrieval(store, RetrievalSettings(k=3)) is not same
    assert translator.translate("Satz 3", datastore=store, k=3) == before
    translator.memories.close("never opened")


def test_the_closest_segment_is_named_on_request(translator: Translator, store: Datastore) -> None:
    exact, fuzzy, none = translator.translate(
        ["Satz 3 ja ja ja ", "Satz 77 ja ja ja", "Ganz etwas anderes, wirklich"], datastore=store, match=True
    )
    assert exact.match is not None
    assert (exact.match.exact, exact.match.score, exact.match.origin) == (True, 100, "own.tsv#3")
    assert exact.match.target == "line 3 yes yes yes"
    assert fuzzy.match is not None
    assert not fuzzy.match.exact
    assert fuzzy.match.score == 80  # one of five words
    assert none.match is None
    assert translator.translate("Satz 3 ja ja ja ", datastore=store).match is None
    assert translator.translate("Satz 3 ja ja ja ", match=True).match is None
    mixed = translator.translate([Request("Satz 3 ja ja ja "), Request("Satz 3 ja ja ja ", store)], match=True)
    assert [each.match is None for each in mixed] == [True, False]


def test_the_closest_segment_follows_the_store(
    translator: Translator, tiny: TransformerEngine, store: Datastore
) -> None:
    text = "Neue Zeile im Text"
    assert translator.translate(text, datastore=store, match=True).match is None
    Datastore.open(store.path).add([SegmentPair(text, "new line", "fix#1")], tiny)
    found = translator.translate(text, datastore=store, match=True).match
    assert found is not None
    assert (found.origin, found.score) == ("fix#1", 100)


def test_several_stores_stay_open_side_by_side(
    translator: Translator, tiny: TransformerEngine, store: Datastore, tmp_path: Path
) -> None:
    stores = [store, *(Datastore.build(tmp_path / f"s{n}", some_pairs(8, start=50 * n), tiny) for n in (1, 2))]
    texts = [f"Satz {n}" for n in (3, 52, 103)]
    together = translator.translate(
        [Request(text, each) for text, each in zip(texts, stores, strict=True)], interpolation_weight=0.7
    )
    for text, each, found in zip(texts, stores, together, strict=True):
        alone = translator.translate(text, datastore=each, interpolation_weight=0.7)
        assert found.text == alone.text
        assert found.score == pytest.approx(alone.score, abs=1e-4)


def test_a_store_may_have_any_name(tiny_checkpoint: Path, tiny: TransformerEngine, tmp_path: Path) -> None:
    Datastore.build(tmp_path / "default", some_pairs(20), tiny)
    request = Request("Satz 3 ja", str(tmp_path / "default"))
    found = Translator(tiny_checkpoint, device="cpu", settings="raw").translate(request, evidence=True)
    assert all(token.evidence for token in found.tokens)


def test_a_slow_search_is_warned_of_once_a_process(
    tiny_checkpoint: Path, store: Datastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Datastore.open(shutil.copytree(store.path, tmp_path / "other"))
    monkeypatch.setattr(memories, "warned", set())
    monkeypatch.setattr(open_store, "StoreIndex", partial(StoreIndex, noticeable_entries=10))
    monkeypatch.setitem(sys.modules, "faiss", None)
    with warnings.catch_warnings():  # none where nobody asked for anything faster
        warnings.simplefilter("error")
        Translator(tiny_checkpoint, device="cpu", datastore=store, search="whole", exact=True, settings="raw")
        Translator(tiny_checkpoint, device="cpu", datastore=store, settings="raw")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        translator = Translator(tiny_checkpoint, device="cpu", datastore=store, search="whole", settings="raw")
        translator.translate(["Satz 3"], max_tokens=3)
        translator.translate(["Satz 3"], max_tokens=3, datastore=other, k=2)
        Translator(tiny_checkpoint, device="cpu", datastore=other, search="whole", settings="raw")
    (said,) = [str(each.message) for each in caught if each.category is SlowSearchWarning]
    assert said.startswith(f"{store.path}: every key is compared in every step, because FAISS is not installed: `pip ")
    assert f"`knnmt index {store.path}`" in said
