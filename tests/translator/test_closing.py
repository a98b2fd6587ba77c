"""Stores that are not used for long are closed, and a translator gives back what it holds."""

from __future__ import annotations

import gc
import re
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from knnmt import Datastore, OpenStores, Request, Translator
from knnmt.datastore import arrays
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.retrieval.settings import RetrievalKeywords, RetrievalSettings
from knnmt.translator.memories import Memories
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
FIXED: RetrievalKeywords = {"k": 2, "interpolation_weight": 0.9, "temperature": 1.0}
TEXT = some_pairs(4)[3].source


@pytest.fixture(scope="module")
def stores(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("stores")
    first = Datastore.build(directory / "store0", some_pairs(8), tiny).path
    return [first, *(shutil.copytree(first, directory / f"store{number}") for number in range(1, 7))]


@pytest.fixture
def without_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is not needed goes at once, and not when the collector comes by. Small files are mapped, too."""
    monkeypatch.setattr(arrays, "_READ_WHOLE_BYTES", 0)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def few(checkpoint: Path, count: int = 3, size: int | None = None) -> Translator:
    return Translator(checkpoint, device="cpu", open_stores=OpenStores(count, size))


def said(translator: Translator, store: Path, text: str = TEXT) -> str:
    return translator.translate(text, datastore=store, beam=1, max_tokens=8, **FIXED).text


def opened(*translators: Translator) -> list[str]:
    """The open stores, the last used one at the end."""
    stores = [store for each in translators for store in each.memories.open_stores()]
    return [path.name for path, _ in sorted(stores, key=lambda store: store[1].used)]


def mapped() -> set[str]:
    """The stores whose files this process has mapped."""
    return set(re.findall(r"/(store\d)/", Path("/proc/self/maps").read_text(encoding="utf-8")))


@pytest.mark.usefixtures("without_collector")
def test_those_not_used_for_longest_are_closed(stores: list[Path], tiny_checkpoint: Path) -> None:
    translator = few(tiny_checkpoint)
    expected = said(translator, stores[0])
    first = weakref.ref(translator.memories.open(stores[0]).opened.snapshot)
    for store in (*stores[1:3], stores[0]):
        assert said(translator, store) == expected
    assert opened(translator) == ["store1", "store2", "store0"]
    for store in stores[3:5]:
        assert said(translator, store) == expected
    assert opened(translator) == ["store0", "store3", "store4"]
    assert mapped() == {"store0", "store3", "store4"}
    assert first() is not None
    assert said(translator, stores[5]) == expected
    assert first() is None
    assert said(translator, stores[0]) == expected
    assert opened(translator) == ["store4", "store5", "store0"]


def test_what_the_texts_at_hand_need_stays(stores: list[Path], tiny_checkpoint: Path) -> None:
    translator = few(tiny_checkpoint, 2)
    expected = said(translator, stores[0])
    requests = [Request(TEXT, store) for store in stores] * 2
    for _ in range(2):
        found = translator.translate(requests, beam=1, max_tokens=8, window=14, match=True, **FIXED)
        assert {each.text for each in found} == {expected}
        assert len(opened(translator)) == len(stores)
    said(translator, stores[3])
    assert opened(translator)[-1] == "store3"
    assert len(opened(translator)) == 2


def test_their_size_counts_too(stores: list[Path], tiny_checkpoint: Path) -> None:
    size = sum(stored.bytes for stored in Datastore.open(stores[0]).manifest.files())
    translator = few(tiny_checkpoint, 5, 2 * size)
    for store in stores[:4]:
        said(translator, store)
    assert opened(translator) == ["store2", "store3"]
    translator = few(tiny_checkpoint, 5, 0)
    for store in stores[:2]:
        said(translator, store)
    assert opened(translator) == ["store1"]


def test_the_stores_of_all_models_count_together(stores: list[Path], tiny_checkpoint: Path) -> None:
    size = sum(stored.bytes for stored in Datastore.open(stores[0]).manifest.files())
    for limits in ((2, None), (5, 2 * size)):
        first = few(tiny_checkpoint, *limits)
        models = [first, first.with_model(str(tiny_checkpoint)), first.for_languages(None, None)]
        for number, store in enumerate(stores[:6]):
            said(models[number % 3], store)
        assert opened(*models) == ["store4", "store5"]
        said(models[0], stores[0])
        assert opened(*models) == ["store5", "store0"]


def test_a_store_that_is_still_used_is_closed_in_safety(stores: list[Path], tiny_checkpoint: Path) -> None:
    translator = few(tiny_checkpoint, 1)
    expected = [said(translator, stores[0], pair.source) for pair in some_pairs(6)]
    asked = [pair.source for pair in some_pairs(6)]
    stream = translator.stream(
        asked, datastore=stores[0], window=2, batch_size=1, evidence=True, beam=1, max_tokens=8, **FIXED
    )
    found = []
    for translation in stream:
        found.append(translation.text)
        other = Thread(target=said, args=(translator, stores[1 + len(found) % 3]))
        other.start()
        other.join()
        assert stores[0].name not in opened(translator)
    assert found == expected


@pytest.mark.usefixtures("without_collector")
def test_a_closed_translator_has_given_all_back(stores: list[Path], tiny_checkpoint: Path) -> None:
    with Translator(tiny_checkpoint, device="cpu", datastore=stores[0]) as translator:
        said(translator, stores[1])
        held: list[weakref.ref[Any]] = [weakref.ref(translator.engine)]
        held.append(weakref.ref(translator.memories.open(stores[1]).opened))
        under_way = translator.stream([TEXT] * 4, window=1, max_tokens=4)
        assert next(under_way).text is not None
    with pytest.raises(SettingError, match="was closed: make another"):
        translator.translate(TEXT)
    with pytest.raises(SettingError, match="was closed: make another"):
        next(under_way)
    del under_way
    assert [each() for each in held] == [None, None]
    assert mapped() == set()
    translator.close()


def test_ways_to_retrieve_do_not_pile_up(stores: list[Path], tiny: TransformerEngine) -> None:
    memories = Memories(tiny, max_retrievals=3)
    asked = [RetrievalSettings(k=k) for k in range(1, 9)]
    kept = [memories.retrieval(stores[0], each) for each in asked]
    newest = zip(asked[-3:], kept[-3:], strict=True)
    assert all(memories.retrieval(stores[0], each) is found for each, found in newest)
    assert memories.retrieval(stores[0], asked[-4]) is not kept[-4]


def test_limits_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingError, match="count must be at least 1, got 0"):
        OpenStores(0)
    with pytest.raises(SettingError, match="size must be at least 0, got -1"):
        OpenStores(size=-1)
