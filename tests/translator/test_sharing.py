"""What threads may do with one translator: translate at the same time, while others change and refresh its stores."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from knnmt import Translator
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.settings import RetrievalKeywords
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
TEXTS = ["Satz 7 ja", "Ein Satz", "Noch ein Satz 19 ja ja", "Nein"]
FIXED: RetrievalKeywords = {"k": 6, "interpolation_weight": 0.7, "temperature": 4.0}
READERS = 3


@pytest.fixture
def eager() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def said(translator: Translator, store: Path, **settings: Any) -> tuple[str, ...]:
    found = translator.translate(TEXTS, datastore=store, beam=2, max_tokens=16, **FIXED, **settings)
    return tuple(f"{each.text} {each.match and each.match.source}" for each in found)


@pytest.mark.usefixtures("eager")
def test_threads_translate_while_one_changes_the_store(
    tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "store"
    Datastore.build(place, some_pairs(40), tiny)
    translator = Translator(tiny_checkpoint, device="cpu", settings="raw")
    states = [shutil.copytree(place, tmp_path / "state0")]
    done = Event()
    refresh = StoreIndex.refresh

    def slowly(index: StoreIndex) -> bool:
        changed = refresh(index)
        time.sleep(0.02 if changed else 0)  # so that others go on between the two halves, were there two
        return changed

    monkeypatch.setattr(StoreIndex, "refresh", slowly)

    def write() -> None:
        store = Datastore.open(place)
        try:
            for turn in range(5):
                if turn % 4 == 3:
                    store.remove(lambda pair: int(pair.origin.partition("#")[2]) % 3 == 0)
                    states.append(shutil.copytree(place, tmp_path / f"removed{turn}"))
                    store.compact()
                else:
                    store.add(some_pairs(15, f"new{turn}.tsv", 100 + 50 * turn), tiny)
                states.append(shutil.copytree(place, tmp_path / f"state{turn + 1}"))
                translator.memories.refresh([place])
        finally:
            done.set()

    def read() -> list[tuple[str, ...]]:
        found = [said(translator, place)]
        while not done.is_set():
            found.append(said(translator, place))
        return found

    with ThreadPoolExecutor(READERS + 1) as threads:
        reading = [threads.submit(read) for _ in range(READERS)]
        threads.submit(write).result()
        found = [each.result() for each in reading]
    alone = Translator(tiny_checkpoint, device="cpu", settings="raw")
    expected = {said(alone, state) for state in states}
    assert len(expected) > 4
    assert {each for mine in found for each in mine} <= expected
    assert said(translator, place) == said(alone, place)


@pytest.mark.usefixtures("eager")
def test_threads_with_different_stores_and_settings(
    tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    stores = [Datastore.build(tmp_path / f"s{n}", some_pairs(20, start=30 * n), tiny).path for n in range(3)]
    settings: list[dict[str, Any]] = [{"match": True}, {"cache": 3.0}, {"evidence": True}]
    asked = [(store, each) for store in stores for each in settings]
    alone = Translator(tiny_checkpoint, device="cpu", settings="raw")
    expected = [said(alone, store, **each) for store, each in asked]
    shared = Translator(tiny_checkpoint, device="cpu", settings="raw")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda each: said(shared, each[0], **each[1]), 2 * asked))
    assert found == 2 * expected
    assert shared.statistics.rows == 2 * alone.statistics.rows
