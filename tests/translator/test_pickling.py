"""Translators and stores go to worker processes by their places and settings."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import pytest

from knnmt import Request, Translator, errors
from knnmt.config import RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import KnnmtError, KnnmtWarning, MissingDependencyError, NotADatastoreError
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
TEXTS = ["Satz 7 ja", "Ein Satz", "Noch ein Satz 19 ja ja", "Nein"]
PROFILE = RetrievalConfig(k=6, interpolation_weight=0.7, temperature=4.0)


@pytest.fixture
def store(tiny: TransformerEngine, tmp_path: Path) -> Datastore:
    return Datastore.build(tmp_path / "store", some_pairs(30), tiny)


def again(given: object) -> object:
    return pickle.loads(pickle.dumps(given))


def test_a_store_is_opened_again_where_it_lies(
    store: Datastore, tiny: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(Datastore.open("store"))
    monkeypatch.chdir("/")
    assert len(pickled) < 500  # its place, none of its content
    store.add(some_pairs(2, "new"), tiny)
    found = pickle.loads(pickled)
    assert list(found.pairs()) == some_pairs(30) + some_pairs(2, "new")
    assert found.path == store.path
    (store.path / "manifest.json").unlink()
    with pytest.raises(NotADatastoreError):
        pickle.loads(pickled)


@pytest.mark.parametrize("by_path", [True, False])
def test_a_translator_is_loaded_again_with_its_settings(
    by_path: bool, store: Datastore, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.path.parent)
    given = "store" if by_path else store
    translator = Translator(
        tiny_checkpoint, device="cpu", dtype="int8", exact=True, datastore=given, profile=PROFILE, settings="raw"
    )
    expected = [each.text for each in translator.translate(TEXTS, max_tokens=16)]
    signature = translator.signature()
    assert "|dtype:int8|" in signature
    pickled = pickle.dumps(translator)
    monkeypatch.chdir("/")
    copied = pickle.loads(pickled)
    assert copied.engine is not translator.engine
    assert [each.text for each in copied.translate(TEXTS, max_tokens=16)] == expected
    assert copied.signature() == signature


def test_requests_and_translations_travel(store: Datastore, tiny_checkpoint: Path) -> None:
    translator = Translator(tiny_checkpoint, device="cpu", settings="raw")
    request = again(Request("Satz 7 ja", store, k=3))
    assert isinstance(request, Request)
    found = translator.translate(request, profile=PROFILE, evidence=True, match=True, max_tokens=16)
    assert again(found) == found


def every_class(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(each for below in root.__subclasses__() for each in every_class(below))]


def test_every_error_travels() -> None:
    """One that cannot be unpickled would hang the pool whose worker raised it."""
    made = [
        each("why")
        for each in every_class(KnnmtError) + every_class(KnnmtWarning)
        if each.__module__ == errors.__name__ and each is not MissingDependencyError
    ]
    assert len(made) > 15
    for error in [*made, MissingDependencyError("faiss-cpu", "an index", "faiss")]:
        found = again(error)
        assert type(found) is type(error)
        assert (str(found), vars(found)) == (str(error), vars(error))


# A real pool ----------------------------------------------------------------------------------------------------------

_translator: Translator | None = None


def take(translator: Translator) -> None:
    global _translator
    _translator = translator


def translated(text: str) -> str:
    assert _translator is not None
    if not text:
        raise MissingDependencyError("faiss-cpu", "an index", "faiss")
    return _translator.translate(text, max_tokens=16).text


def counted(store: Datastore) -> int:
    return len(list(store.pairs()))


def test_a_pool_of_processes_translates(store: Datastore, tiny_checkpoint: Path) -> None:
    translator = Translator(tiny_checkpoint, device="cpu", threads=1, datastore=store, profile=PROFILE, settings="raw")
    expected = [translator.translate(text, max_tokens=16).text for text in TEXTS]
    with multiprocessing.get_context("spawn").Pool(1, take, (translator,)) as pool:
        assert pool.map_async(translated, TEXTS, chunksize=1).get(120) == expected
        assert pool.map_async(counted, [store, store]).get(60) == [30, 30]
        with pytest.raises(MissingDependencyError, match="knnmt\\[faiss\\]"):
            pool.map_async(translated, [""]).get(60)
