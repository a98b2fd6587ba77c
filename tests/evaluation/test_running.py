from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from knnmt import Translation, Translator
from knnmt.config import CacheConfig, RetrievalConfig
from knnmt.datastore.store import Datastore
from knnmt.errors import NoTranslationWarning, SettingError
from knnmt.evaluation.running import Run, run_systems
from knnmt.evaluation.systems import System, parse_system
from knnmt.retrieval.combiner import DistanceCombiner
from knnmt.retrieval.retriever import Retrieval
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.translator.memories import Memories
from knnmt.translator.settings import TranslationSettings
from knnmt_lab.reproduction.random_gate import RandomGate
from support import warm
from support.datastore_pairs import some_pairs

# A random model does not always know when to stop.
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
SOURCES = [pair.source for pair in some_pairs(9, start=3)]
SETTINGS = TranslationSettings(beam=2, batch_size=4)
FIXED: dict[str, Any] = {"k": 4, "interpolation_weight": 0.6, "temperature": 10.0}

# Kills itself in the middle of the second system.
KILLED = """
import os, signal, sys
from pathlib import Path
from knnmt import Translator
from knnmt.evaluation.running import run_systems
from knnmt.translator.settings import TranslationSettings
from knnmt.evaluation.systems import System, parse_system
from knnmt.retrieval.settings import RetrievalSettings

def watch(translations, name, total):
    for number, translation in enumerate(translations):
        if name == "own" and number == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        yield translation

checkpoint, store, output, *sources = sys.argv[1:]
fixed = {"k": 4, "interpolation_weight": 0.6, "temperature": 10.0}
systems = [System("base"), System("own", Path(store), settings=RetrievalSettings(**fixed))]
translator = Translator(checkpoint, device="cpu", threads=1)
run_systems(translator, systems, sources, TranslationSettings(beam=2, batch_size=4), Path(output), watch)
"""


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu")


@pytest.fixture
def store(translator: Translator, tmp_path: Path) -> Path:
    return Datastore.build(tmp_path / "own.store", some_pairs(12), translator.engine).path


@pytest.fixture
def systems(store: Path) -> list[System]:
    cached = System("cached", store, settings=RetrievalSettings(**FIXED, cache=50.0))
    return [System("base"), System("own", store, settings=RetrievalSettings(**FIXED)), cached]


def texts(translator: Translator, **settings: Any) -> list[str]:
    return [each.text for each in translator.translate(SOURCES, beam=2, settings="raw", **settings)]


def test_every_system_translates_and_counts_by_itself(
    translator: Translator, systems: list[System], store: Path
) -> None:
    before = translator.memories, translator.statistics
    base, own, cached = run_systems(translator, systems, SOURCES, SETTINGS)
    assert (translator.memories, translator.statistics) == before
    assert translator.statistics.rows == 0

    assert base.hypotheses == texts(translator)
    assert own.hypotheses == texts(translator, datastore=store, **FIXED)
    assert base.hypotheses != own.hypotheses
    assert (base.figures.rows, base.figures.searches) == (0, 0)
    assert own.figures.rows == own.figures.searches > 0
    assert own.figures.saved == 0
    assert cached.figures.hits > 0
    assert cached.figures.saved == cached.figures.hits / cached.figures.rows
    again = translator.translate(SOURCES, beam=2, datastore=store, **FIXED, settings="raw")
    assert own.figures.tokens == sum(len(each.tokens) for each in again)
    assert own.figures.tokens_per_second == own.figures.tokens / own.figures.seconds
    assert base.signature == translator.signature(beam=2, settings="raw")
    assert "|k:4|lambda:0.6|T:10|cache:50|" in cached.signature


def test_a_system_may_search_every_key(translator: Translator, store: Path) -> None:
    (exact,) = run_systems(
        translator,
        [System("exact", store, exact=True, settings=RetrievalSettings(**FIXED, search="whole"))],
        SOURCES[:1],
        SETTINGS,
    )
    assert "|index:exact|" in exact.signature


def test_sentences_are_split_on_request_and_the_signature_says_so(translator: Translator) -> None:
    settings = replace(SETTINGS, split_sentences=True)
    run, raw = run_systems(
        translator, [System("base"), parse_system("raw=base,split-sentences=no")], ["Ja. Nein."], settings
    )
    expected = translator.translate("Ja. Nein.", beam=2, split_sentences=True, settings="raw")
    assert run.hypotheses == [expected.text]
    assert "|text:split|" in run.signature
    assert "|text:raw|" in raw.signature


def names_reused(runs: list[Run]) -> list[str]:
    return [run.name for run in runs if run.reused]


def test_what_is_done_is_taken_over_and_what_has_changed_is_not(
    translator: Translator, systems: list[System], store: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"

    def again(sources: list[str] = SOURCES[:2], settings: TranslationSettings = SETTINGS) -> list[Run]:
        return run_systems(translator, systems[:2], sources, settings, output)

    first = again()
    assert names_reused(first) == []
    assert (output / "own.txt").read_text(encoding="utf-8").split("\n") == [*first[1].hypotheses, ""]
    second = again()
    assert names_reused(second) == ["base", "own"]
    assert [(run.hypotheses, run.figures) for run in second] == [(run.hypotheses, run.figures) for run in first]

    (output / "own.txt").write_text("somebody's own words\n", encoding="utf-8")
    assert names_reused(again()) == ["base"]
    Datastore.open(store).add(some_pairs(1, start=40), translator.engine)
    assert names_reused(again()) == ["base"]
    (output / "base.run.json").write_text("{}", encoding="utf-8")
    assert names_reused(again()) == ["own"]
    assert names_reused(again(settings=replace(SETTINGS, batch_size=3))) == []
    assert names_reused(again(SOURCES[:1], replace(SETTINGS, batch_size=3))) == []


def test_an_evaluation_that_was_killed_goes_on(tiny_checkpoint: Path, store: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(tiny_checkpoint), str(store), str(output), *SOURCES]
    killed = warm.run(command, capture_output=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert sorted(path.name for path in output.iterdir()) == ["base.run.json", "base.txt"]
    recorded = json.loads((output / "base.run.json").read_text(encoding="utf-8"))["figures"]["seconds"]

    translator = Translator(str(tiny_checkpoint), device="cpu", threads=1)
    systems = [System("base"), System("own", store, settings=RetrievalSettings(**FIXED))]
    base, own = run_systems(translator, systems, SOURCES, SETTINGS, output)
    assert (base.reused, own.reused) == (True, False)
    assert base.figures.seconds == recorded
    assert base.hypotheses == texts(translator)
    assert own.hypotheses == texts(translator, datastore=store, **FIXED)


def test_one_sees_the_translations_as_they_come(translator: Translator) -> None:
    seen = []

    def watch(translations: Iterator[Translation], name: str, total: int) -> Iterator[Translation]:
        for translation in translations:
            seen.append((name, total, translation.source))
            yield translation

    run_systems(translator, [System("base")], SOURCES[:3], SETTINGS, on_translation=watch)
    assert seen == [("base", 3, source) for source in SOURCES[:3]]


@pytest.mark.parametrize("name", ["a/b", ".hidden", "a\\b"])
def test_a_name_that_no_file_can_have_is_refused(translator: Translator, name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no file can have this name"):
        run_systems(translator, [System(name)], SOURCES, SETTINGS, tmp_path / "out")


def test_hypotheses_of_which_one_failed_are_written_but_not_taken_over(
    overflowing_checkpoint: Path, tmp_path: Path
) -> None:
    translator = Translator(overflowing_checkpoint, device="cpu")
    for _ in range(2):
        with pytest.warns(NoTranslationWarning, match="no translation of 'aßc'"):
            (run,) = run_systems(translator, [System("base")], ["Satz 4", "aßc"], SETTINGS, tmp_path)
        assert not run.reused
        assert run.hypotheses[1] == ""
        assert (tmp_path / "base.txt").read_text(encoding="utf-8").splitlines() == run.hypotheses
    runs = [run_systems(translator, [System("base")], ["Satz 4"], SETTINGS, tmp_path)[0] for _ in range(2)]
    assert [each.reused for each in runs] == [False, True]


@pytest.mark.parametrize("name", ["gate", "combiner"])
def test_translations_of_another_gate_or_combiner_are_not_taken_over(
    translator: Translator, store: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System("own", store, settings=RetrievalSettings(**FIXED))
    plain = Memories.retrieval

    def run_with(part: Any) -> Run:
        made: list[Retrieval] = []

        def retrieval(memories: Memories, *given: Any) -> Retrieval:
            if not made:
                made.append(replace(plain(memories, *given), **{name: part}))
            return made[0]

        monkeypatch.setattr(Memories, "retrieval", retrieval)
        return run_systems(translator, [system], SOURCES[:2], SETTINGS, tmp_path / "out")[0]

    parts: dict[str, Sequence[Any]] = {
        "gate": (RandomGate(0.9), RandomGate(0.1)),
        "combiner": tuple(DistanceCombiner(RetrievalConfig(4, weight, 10.0), 0.1) for weight in (0.6, 0.1)),
    }
    first, other = parts[name]
    runs = [run_with(part) for part in (first, first, other, first)]
    assert [each.reused for each in runs] == [False, True, False, False]
    assert runs[0].signature == runs[1].signature != runs[2].signature
    unsigned = [run_with(lambda *given: first(*given)) for _ in range(2)]
    assert [each.reused for each in unsigned] == [False, False]
    field = "gated" if name == "gate" else name
    assert f"|{field}:unsigned|v:" in unsigned[0].signature
    assert not run_with(first).reused


def test_a_signature_says_what_a_store_holds_and_where_batches_matter(
    translator: Translator, store: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(store, tmp_path / "copies" / store.name))
    shared = RetrievalConfig(8, 0.5, 10.0, cache=CacheConfig(5.0, "batch"))

    def signatures(batch_size: int) -> list[str]:
        systems = [
            System("a", store, settings=RetrievalSettings(**FIXED)),
            System("b", copy, settings=RetrievalSettings(**FIXED)),
        ]
        systems.append(System("c", store, settings=RetrievalSettings(profile=shared)))
        return [
            run.signature
            for run in run_systems(translator, systems, SOURCES[:1], TranslationSettings(beam=2, batch_size=batch_size))
        ]

    first, same, batched = signatures(4)
    assert first == same
    assert batched.endswith("|batch:4")
    assert signatures(3) == [first, first, f"{batched[:-1]}3"]
    changed = Datastore.open(copy)
    gone = next(iter(changed.pairs()))
    changed.remove(lambda pair: pair == gone)
    changed.add([replace(gone, target=gone.target[::-1])], translator.engine)  # of as many tokens, which are letters
    assert changed.manifest.live_entries == Datastore.open(store).manifest.live_entries
    first, other, _ = signatures(4)
    assert first != other
    assert first.partition("|content:")[0] == other.partition("|content:")[0]
