"""How a store is searched unless a call says: as its profile says, else by segment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from knnmt import SegmentPair, Translator, build
from knnmt.adapting import tune as tuning
from knnmt.adapting.adapt import adapt
from knnmt.adapting.development import search_text
from knnmt.adapting.development_text import read_development
from knnmt.adapting.tune import tune as tune_store
from knnmt.adapting.tuning_by_likelihood import Tried, tune_positions
from knnmt.adapting.tuning_config import TuningConfig
from knnmt.calibration.estimates import Calibration
from knnmt.calibration.index_choice import prepare
from knnmt.compression.pca import reduce
from knnmt.config import DEFAULT_SEGMENTS, CacheConfig, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.errors import SettingError
from knnmt.index.saved import read_saved
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.profiles import Profile, default_profile, read_profiles, write_profiles
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.settings import settings_of
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
WHOLE = RetrievalConfig(4, 0.5, 20.0)
BY_SEGMENT = RetrievalConfig(4, 0.6, 30.0, segments=7)


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", settings="raw")


def config_of(translator: Translator, store: Path, **settings: Any) -> RetrievalConfig:
    return translator.memories.open(store).resolve(settings_of(RetrievalSettings, None, **settings))


def test_a_store_of_any_size_is_searched_by_segment_and_has_no_index(translator: Translator, tmp_path: Path) -> None:
    store = build(some_pairs(30), tmp_path / "built", model=translator.engine).store
    assert read_saved(store) is None
    assert Calibration.of(store.path) is None
    estimated = Calibration.of(store.path, by_segment=True)
    assert estimated is not None
    assert estimated.segments == DEFAULT_SEGMENTS
    assert config_of(translator, store.path) == estimated.config()
    assert f"|segments:{estimated.segments}|" in translator.signature(datastore=store)

    whole = config_of(translator, store.path, search="whole")
    assert whole == translator.memories.open(store).calibration.config()
    assert whole.segments is None
    assert config_of(translator, store.path, cache=3.0) == replace(whole, cache=CacheConfig(3.0))  # only whole has one

    short, _ = reduce(Datastore.open(store.path), tmp_path / "short", 8)
    assert config_of(translator, short.path) == estimated.config()  # it inherits what was estimated

    prepare(store, translator.engine)  # an index is for whoever asks for the whole store
    translator.memories.refresh([store])
    assert config_of(translator, store.path) == estimated.config()
    assert Calibration.of(store.path) is not None

    plain = Datastore.build(tmp_path / "plain", some_pairs(30), translator.engine)
    assert config_of(translator, plain.path).segments == DEFAULT_SEGMENTS  # estimated at opening
    short, _ = reduce(plain, tmp_path / "shorter", 8)
    with pytest.raises(SettingError, match="knnmt tune STORE --dev DEV"):
        config_of(translator, short.path)


def test_a_store_without_more_segments_is_searched_as_a_whole(translator: Translator, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(30), translator.engine).path
    sources = ["Satz 3", "Satz 29 und mehr", "etwas anderes"]
    config = RetrievalConfig(4, 0.6, 30.0, segments=30)
    by_segment = translator.translate(sources, datastore=store, profile=config)
    whole = translator.translate(sources, datastore=store, profile=replace(config, segments=None))
    assert [each.text for each in by_segment] == [each.text for each in whole]
    assert [each.score for each in by_segment] == [each.score for each in whole]


@pytest.mark.parametrize(
    ("default", "settings", "expected"),
    [
        ("segments", {}, BY_SEGMENT),
        ("segments", {"search": "whole"}, WHOLE),
        ("segments", {"cache": 2.0}, replace(WHOLE, cache=CacheConfig(2.0))),
        ("segments", {"segments": 9}, replace(BY_SEGMENT, segments=9)),
        ("segments", {"profile": "knn"}, WHOLE),
        ("knn", {}, WHOLE),
        ("knn", {"search": "segments"}, BY_SEGMENT),
        ("own", {}, replace(BY_SEGMENT, k=3)),
        ("own", {"search": "whole"}, WHOLE),
        ("own", {"search": "segments"}, replace(BY_SEGMENT, k=3)),
        (None, {"search": "segments"}, BY_SEGMENT),
    ],
)
def test_what_is_asked_for_finds_the_settings_tuned_for_it(
    translator: Translator, tmp_path: Path, default: str | None, settings: Any, expected: RetrievalConfig
) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(10), translator.engine).path
    configs = {
        "knn": WHOLE,
        "segments": BY_SEGMENT,
        "own": replace(BY_SEGMENT, k=3),
    }
    profiles = {name: Profile(config, "likelihood", 40, 2.0) for name, config in configs.items()}
    write_profiles(store, profiles, default)
    assert config_of(translator, store, **settings) == expected
    with pytest.raises(SettingError, match="search the whole store"):
        config_of(translator, store, profile="segments", cache=2.0)


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "CACHE_PAIRS", 2)


def test_adapting_tunes_search_by_segment_and_makes_no_index(translator: Translator, tmp_path: Path) -> None:
    heard: list[str] = []
    made = adapt(some_pairs(420), tmp_path / "s", model=translator, sample=2, on_message=heard.append)
    assert [line.split()[0] for line in heard] == ["held", "built", *heard[2].split()[:1], "adapted"]
    assert read_saved(made.store) is None
    profiles = read_profiles(made.store.path)
    assert set(profiles) == {"segments", "segments-fixed"}
    assert default_profile(made.store.path) in ("segments", None)
    if default_profile(made.store.path):
        assert config_of(translator, made.store.path) == profiles["segments"].config
    assert made.gain is not None

    again: list[str] = []

    def tell(line: str) -> None:
        again.append(line)
        if line.startswith("compared"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapt(some_pairs(420), tmp_path / "t", model=translator, sample=2, on_message=tell, verbose=True)
    resumed = adapt(some_pairs(420), tmp_path / "t", model=translator, sample=2)
    assert resumed.gain == made.gain
    assert read_profiles(resumed.store.path) == profiles


@pytest.mark.usefixtures("small_cache")
def test_tuning_is_by_segment_unless_it_is_told(translator: Translator, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(60), translator.engine)
    pairs = [SegmentPair(f"{each.source} neu", each.target, each.origin) for each in some_pairs(40, start=100)]
    dev = read_development(store, pairs)

    def by_itself(scope: int | None) -> Tried:
        return tune_positions(
            search_text(translator.engine, OpenStore(store), dev.tuning, scope=scope).positions(), scope=scope
        ).fading

    found = tune_store(store.path, pairs, model=translator)
    assert found.tuned.fading.fading == by_itself(DEFAULT_SEGMENTS).fading
    assert list(read_profiles(store.path)) == ["segments", "segments-fixed"]
    found = tune_store(store.path, pairs, TuningConfig(segments=5), model=translator)
    assert found.tuned.fading.fading == by_itself(5).fading
    assert list(read_profiles(store.path)) == ["segments", "segments-fixed"]
    found = tune_store(store.path, pairs, TuningConfig(whole=True), model=translator)
    assert found.tuned.fading.fading == by_itself(None).fading
    assert list(read_profiles(store.path)) == ["segments", "segments-fixed", "knn", "knn-fixed", "cache"]
    assert config_of(translator, store.path, search="whole") == read_profiles(store.path)["knn"].config
    assert config_of(translator, store.path, search="segments") == read_profiles(store.path)["segments"].config
