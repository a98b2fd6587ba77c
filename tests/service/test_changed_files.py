"""A file of an open store that another program cuts or overwrites: the service lives, and says which domain has it."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Literal

import pytest
from test_process import ask, served, when_it_listens

from knnmt import Datastore, Translator
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore import guarded_file
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.manifest import MANIFEST, SEGMENTS
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreChangedError, DatastoreDamagedError
from knnmt.retrieval.settings import RetrievalSettings
from support.datastore_pairs import some_pairs

pytestmark = [
    pytest.mark.skipif(guarded_file._library() is None, reason="guard.cpp was not compiled"),
    pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning"),
]
TEXT = "Satz 7 wie 8"
PAIRS = [SegmentPair(f"Satz {n} {'ja ' * (n % 9)}da", f"line {n} {'y ' * (n % 9)}", f"m#{n}") for n in range(1200)]


@pytest.fixture(scope="module")
def large(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a file that is mapped, because it has more than a mebibyte."""
    made = Datastore.build(tmp_path_factory.mktemp("large") / "s", PAIRS, tiny, BuildConfig("de", "en")).path
    assert file_of(made).stat().st_size > 1 << 20
    return made


def file_of(store: Path) -> Path:
    return max((store / SEGMENTS).iterdir(), key=lambda path: path.stat().st_size)


def copy_of(store: Path, place: Path) -> Path:
    return Path(shutil.copytree(store, place))


def test_a_translator_names_the_store_whose_file_was_cut(tiny_checkpoint: Path, large: Path, tmp_path: Path) -> None:
    cut, other = copy_of(large, tmp_path / "cut"), copy_of(large, tmp_path / "other")
    with Translator(tiny_checkpoint, device="cpu") as translator:

        def translate(store: Path) -> str:
            return translator.translate(TEXT, datastore=store, beam=1, search="whole").text

        before = translate(other)
        assert translate(cut) == before
        complete = file_of(cut).read_bytes()
        os.truncate(file_of(cut), 5000)
        with pytest.raises(DatastoreDamagedError, match=r"cut/segments/.* bytes.*knnmt verify \S+cut"):
            translate(cut)
        assert translate(other) == before
        file_of(cut).write_bytes(complete)
        assert translate(cut) == before


@pytest.mark.parametrize("search", ["whole", "segments"])
@pytest.mark.parametrize("size", [5000, None])
def test_a_file_that_changes_during_a_translation_is_an_error(
    tiny_checkpoint: Path, large: Path, tmp_path: Path, search: Literal["whole", "segments"], size: int | None
) -> None:
    """The retrieval keeps the state of the store that it began with. Without a size, the file keeps its own."""
    store = copy_of(large, tmp_path / "s")
    with Translator(tiny_checkpoint, device="cpu") as translator:
        retrieval = translator.memories.retrieval(store, RetrievalSettings(search=search))
        expected = translator.translate(TEXT, datastore=store, beam=2, search=search).text
        assert translator.translate(TEXT, retrieval=retrieval, beam=2).text == expected
        file_of(store).write_bytes(bytes(size or file_of(store).stat().st_size))
        with pytest.raises(DatastoreChangedError, match=r"s/segments/.*: another program changed it.*knnmt verify"):
            translator.translate(TEXT, retrieval=retrieval, beam=2)


def test_nothing_is_written_from_a_file_that_changed(tiny: TransformerEngine, large: Path, tmp_path: Path) -> None:
    store = Datastore.open(copy_of(large, tmp_path / "s"), guarded=True)
    os.truncate(file_of(store.path), 5000)
    before = (store.path / MANIFEST).read_bytes()
    with pytest.raises(DatastoreChangedError, match=r"it had .* bytes and has 5,000"):
        store.add(some_pairs(3), tiny)
    assert (store.path / MANIFEST).read_bytes() == before


def test_where_nothing_was_compiled_files_are_read(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_file, "_library", lambda: None)
    store = Datastore.open(large, guarded=True)
    assert not any(isinstance(content, mmap.mmap) for segment in store.segments for _, content in segment.files)
    assert list(store.units()) == PAIRS


def test_other_bus_errors_still_end_the_process(large: Path) -> None:
    lines = [
        "import os, signal, sys",
        "from knnmt.datastore.store import Datastore",
        "store = Datastore.open(sys.argv[1], guarded=True)",
        "os.kill(os.getpid(), signal.SIGBUS)",
    ]
    assert subprocess.run([sys.executable, "-c", "\n".join(lines), str(large)]).returncode == -signal.SIGBUS


def test_a_service_outlives_files_that_are_cut(tiny_checkpoint: Path, large: Path, tmp_path: Path) -> None:
    """Another program cuts, fills and restores the file of one domain, while both domains are asked."""
    cut = copy_of(large, tmp_path / "cut")
    complete = file_of(cut).read_bytes()
    done = Event()

    def change() -> None:
        for size in (0, 5000, 1 << 20, len(complete) - 1):
            for _ in range(3):
                os.truncate(file_of(cut), size)
                file_of(cut).write_bytes(complete)
        os.truncate(file_of(cut), 4096)
        done.set()

    def translate(domain: str, number: int, **more: object) -> tuple[int, str]:
        """The status, and the translation or the error."""
        asked = {"texts": [f"Satz {number} wie {number}"], "beam": 1, "retrieval": {"search": "whole"}, **more}
        status, answer = ask(port, "POST", f"/d/{domain}/v1/translate", asked)
        if status != 200:
            return status, answer["message"]
        [found] = answer["translations"]
        return (503, found["error"]) if "error" in found else (200, found["text"])

    with served(tiny_checkpoint, large, "--store", f"cut={cut}") as (process, port), ThreadPoolExecutor(2) as others:
        when_it_listens(port)
        assert translate("cut", 0) == translate("small", 0)
        changing, number = others.submit(change), 0
        while not done.is_set():
            number += 1
            status, expected = translate("small", number)
            assert status == 200
            status, found = translate("cut", number)
            assert (status, found) == (200, expected) or (status == 503 and "cut/segments/" in found), found
        changing.result()
        for path, body in (
            ("v1/translate", {"texts": ["neu"], "retrieval": {"search": "whole"}}),
            ("v1/match", {"texts": ["Satz 7"]}),
            ("v1/explain", {"texts": ["Satz 7"]}),
        ):
            status, answer = ask(port, "POST", f"/d/cut/{path}", body)
            assert "knnmt verify cut" in json.dumps(answer), answer
            assert ask(port, "POST", f"/d/small/{path}", body)[0] == 200
        status, answer = ask(port, "PUT", "/v1/domains/cut/segments", {"segments": [{"source": "a", "target": "b"}]})
        assert (status, answer["code"]) == (503, "damaged"), answer
        file_of(cut).write_bytes(complete)
        assert translate("cut", 0) == translate("small", 0)
        assert process.poll() is None
