"""How a store is searched unless a call says: as its profile says, else by its size; by segment it needs no index."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from knnmt import SegmentPair, Translator
from knnmt.compression.pca import reduce
from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.datastore.store import Datastore as PlainDatastore
from knnmt.errors import SettingError
from knnmt.evaluation import tuning_steps
from knnmt.evaluation.adapting import adapt
from knnmt.evaluation.tuning import tune as tune_store
from knnmt.fitting.calibration import Calibration
from knnmt.fitting.development import search_text
from knnmt.fitting.development_text import read_development
from knnmt.fitting.index_preparation import make_ready, prepare
from knnmt.fitting.ready_store import Datastore
from knnmt.fitting.search_choice import choose_search
from knnmt.fitting.tuning import tune_positions
from knnmt.fitting.tuning_config import TuningConfig
from knnmt.index.saved import read_saved
from knnmt.retrieval import open_store
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


def test_a_large_store_is_searched_by_segment_and_needs_no_index(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_store, "FROM_SENTENCES", 30)
    store = Datastore.build(tmp_path / "large", some_pairs(30), translator.engine)
    assert read_saved(store) is None
    assert Calibration.of(store.path) is None
    estimated = Calibration.of(store.path, by_segment=True)
    assert estimated is not None
    assert config_of(translator, store.path) == estimated.config()
    assert config_of(translator, store.path).segments == 128
    assert "|segments:128|" in translator.signature(datastore=store)
    assert translator.translate("Satz 3", datastore=store).text

    whole = config_of(translator, store.path, search="whole")
    assert whole == translator.memories.open(store).calibration.config()
    assert whole.segments is None
    assert translator.translate("Satz 3", datastore=store, search="whole").text
    assert config_of(translator, store.path, cache=3.0) == replace(whole, cache=CacheConfig(3.0))  # only whole has one

    short, _ = reduce(PlainDatastore.open(store.path), tmp_path / "short", 8)
    assert config_of(translator, short.path) == estimated.config()  # it inherits what was estimated

    prepare(store, translator.engine)  # whoever makes an index wants it used
    translator.memories.refresh([store])
    assert config_of(translator, store.path).segments is None

    short, _ = reduce(PlainDatastore.open(store.path), tmp_path / "shorter", 8)
    assert config_of(translator, short.path) == config_of(translator, store.path)  # nothing is known by segment

    small = Datastore.build(tmp_path / "small", some_pairs(29), translator.engine)
    assert read_saved(small) is not None
    assert config_of(translator, small.path).segments is None
    asked = config_of(translator, small.path, search="segments")
    assert asked == translator.memories.open(small).estimates.by_segment.config()
    assert make_ready(small, translator.engine) is not None


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
        ("own-segments", {}, replace(BY_SEGMENT, k=3)),
        ("own-segments", {"search": "whole"}, replace(WHOLE, k=3)),
        ("own", {"search": "segments"}, replace(BY_SEGMENT, k=3)),
        (None, {"search": "segments"}, BY_SEGMENT),
    ],
)
def test_what_is_asked_for_finds_the_settings_tuned_for_it(
    translator: Translator, tmp_path: Path, default: str | None, settings: Any, expected: RetrievalConfig
) -> None:
    store = PlainDatastore.build(tmp_path / "s", some_pairs(10), translator.engine).path
    configs = {
        "knn": WHOLE,
        "segments": BY_SEGMENT,
        "own": replace(WHOLE, k=3),
        "own-segments": replace(BY_SEGMENT, k=3),
    }
    profiles = {name: Profile(config, "likelihood", 40, 2.0) for name, config in configs.items()}
    write_profiles(store, profiles, default)
    assert config_of(translator, store, **settings) == expected
    with pytest.raises(SettingError, match="search the whole store"):
        config_of(translator, store, profile="segments", cache=2.0)


@pytest.fixture
def small_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model's text says little, so that anything loses hardly more."""
    monkeypatch.setattr(tuning_steps, "CACHE_PAIRS", 2)
    monkeypatch.setattr(tuning_steps, "choose_search", partial(choose_search, most_lost=9.0, counts=(5,)))


@pytest.mark.usefixtures("small_choices")
def test_adapting_makes_no_index_where_segments_are_chosen(translator: Translator, tmp_path: Path) -> None:
    heard: list[str] = []
    made = adapt(some_pairs(420), tmp_path / "s", model=translator, sample=2, tell=heard.append)
    assert [line.split()[0] for line in heard] == [
        *("held", "built", "search", "tuned", "compared", "perplexity", "BLEU", "put")
    ]
    assert heard[2].startswith("search     by 5 segments; loss ")
    assert read_saved(made.store) is None
    profiles = read_profiles(made.store.path)
    assert list(profiles) == ["knn", "segments"]
    assert default_profile(made.store.path) == "segments"
    assert config_of(translator, made.store.path) == profiles["segments"].config
    assert profiles["segments"].config.segments == 5
    assert config_of(translator, made.store.path, search="whole") == profiles["knn"].config
    assert profiles["knn"].config.segments is None
    assert made.gain is not None
    for way in ("whole", "segments"):
        assert translator.translate("Satz 3", datastore=made.store, search=way).text

    again: list[str] = []

    def tell(line: str) -> None:
        again.append(line)
        if line.startswith("compared"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapt(some_pairs(420), tmp_path / "t", model=translator, sample=2, tell=tell)
    resumed = adapt(some_pairs(420), tmp_path / "t", model=translator, sample=2)
    assert resumed.gain == made.gain
    assert read_profiles(resumed.store.path) == profiles


@pytest.mark.usefixtures("small_choices")
def test_tuning_decides_how_to_search_unless_it_is_told(translator: Translator, tmp_path: Path) -> None:
    store = PlainDatastore.build(tmp_path / "s", some_pairs(60), translator.engine).path
    pairs = [SegmentPair(f"{each.source} neu", each.target, each.origin) for each in some_pairs(40, start=100)]
    heard: list[str] = []
    found = tune_store(store, pairs, model=translator, tell=heard.append)
    assert found.default == default_profile(store) == "segments"
    assert [line for line in heard if line.startswith("search      by 5 segments; loss")]
    assert list(found.losses) == ["alone", "before", "segments"]
    assert list(read_profiles(store)) == ["knn", "segments"]

    found = tune_store(store, pairs, TuningConfig(whole=True), model=translator)
    assert found.default == default_profile(store) == "knn"
    assert list(read_profiles(store)) == ["knn", "segments", "knn-fixed", "cache"]
    assert config_of(translator, store).segments is None

    found = tune_store(store, pairs, TuningConfig(profile="own", confirm=True, sample=3), model=translator)
    assert set(found.profiles) == {"own", "own-segments"}  # BLEU has the last word, also on how to search
    assert found.default == next(iter(found.profiles))
    dev = read_development(PlainDatastore.open(store), pairs)
    opened = OpenStore(PlainDatastore.open(store))
    by_itself = tune_positions(search_text(translator.engine, opened, dev.tuning, way=5).positions(), way=5)
    assert found.tuned.fading == by_itself.fading
