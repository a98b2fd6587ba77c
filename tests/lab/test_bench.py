"""Speed, without ever asking how fast: the order of turns, the arithmetic, and processes that come and go."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt import Translator
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError, SystemStoppedError
from knnmt.evaluation import running
from knnmt.evaluation.systems import System
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval import open_store
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.translator.settings import TranslationSettings
from knnmt_lab.bench.process import Answer, SystemProcess, start
from knnmt_lab.bench.running import REST, STAGES, BenchConfig, Job, Turn, bench, summarise, take_turns
from knnmt_lab.bench.text import BenchText, describe_text
from knnmt_lab.bench.worker import load_translator
from support import warm
from support.datastore_pairs import some_pairs
from support.processes import end_soon

TEXTS = ["Satz 3 ja ja", "anders", "Satz 12"]


def answer(tokens: int = 10, seconds: float = 2.0, stages: dict[str, float] | None = None, **rest: object) -> Answer:
    filled: dict[str, object] = {"searches": (0, 0, 0, 0), "resident_mib": 7, **rest}
    return Answer([], tokens, seconds, stages or {}, **filled)  # type: ignore[arg-type]


class Recording:
    def __init__(self, name: str, log: list[tuple[str, int, tuple[str, ...]]]) -> None:
        self.name, self.log = name, log

    def ask(self, texts: Sequence[str], batch_size: int) -> Answer:
        self.log.append((self.name, batch_size, tuple(texts)))
        return answer()


def test_all_systems_take_turns_within_every_round() -> None:
    log: list[tuple[str, int, tuple[str, ...]]] = []
    systems = {name: Recording(name, log) for name in ("base", "a", "b")}
    jobs = [Job(name, size, TEXTS) for size in (1, 8) for name in systems]
    turns = list(take_turns(systems, jobs, rounds=2))
    assert log == [(name, size, tuple(TEXTS)) for _, size, name in product(range(3), (1, 8), ("base", "a", "b"))]
    assert [turn.round_number for turn in turns] == [0] * 6 + [1] * 6 + [2] * 6


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 50)), min_size=1, max_size=9))
def test_medians_are_those_of_the_rounds_that_count(rounds: list[tuple[int, float]]) -> None:
    job = Job("base", 8, TEXTS)
    warm_up = Turn(0, job, answer(10**6, 1e-3))
    (found,) = summarise([warm_up, *(Turn(number, job, answer(*each)) for number, each in enumerate(rounds, 1))])
    speeds = [tokens / seconds for tokens, seconds in rounds]
    assert found.speeds == tuple(speeds)
    assert found.median == pytest.approx(np.median(speeds))


def test_stages_searches_and_memory_are_put_together() -> None:
    job = Job("cached", 8, TEXTS)
    first = answer(
        10,
        2.0,
        {"encoder": 0.1, "decoder": 0.5, "output": 0.2, "beam": 0.3},
        searches=(40, 30, 10, 10),
        resident_mib=5,
    )
    second = answer(
        10, 3.0, {"search": 1.0, "retrieval": 0.4, "interpolation": 0.2}, searches=(60, 10, 10, 10), resident_mib=6
    )
    (found,) = summarise([Turn(1, job, first), Turn(2, job, second)])
    expected = [0.1, 0.7, 1.0, 0.4, 0.2, 5.0 - 2.4]  # the rest has the beams, and what no stage claims
    assert list(found.stage_milliseconds) == [*STAGES, REST]
    assert list(found.stage_milliseconds.values()) == pytest.approx([1000 * each / 20 for each in expected])
    assert found.saved == pytest.approx(1 - 40 / 100)
    assert found.saved_after_first_steps == pytest.approx(1 - 20 / 80)
    assert found.resident_mib == 6
    (alone,) = summarise([Turn(1, job, answer())])
    assert (alone.saved, alone.saved_after_first_steps) == (None, None)


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Datastore.build(tmp_path_factory.mktemp("bench") / "own.store", some_pairs(40), tiny).path


@pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
@pytest.mark.usefixtures("warm_systems")
def test_a_report_of_real_processes(store: Path, tiny_checkpoint: Path) -> None:
    asked = RetrievalSettings(interpolation_weight=0.5, temperature=9.0, cache=1000.0)
    systems = [System("base"), System("cached", store, settings=asked)]
    settings = TranslationSettings(beam=2)
    config = BenchConfig((1, 4), 2, settings, threads=1, model=str(tiny_checkpoint), device="cpu")
    turns: list[Turn] = []
    told: list[str] = []
    report = bench(systems, TEXTS, config, told.append, turns.append)
    known = f"warning: 1 of 3 sentences are in {store}, which favours its cache; use other sentences"
    assert told == [known, "3 sentences do not fill a batch of 4; take more"]
    order = [("base", 1), ("cached", 1), ("base", 4), ("cached", 4)]
    assert [(turn.job.system, turn.job.batch_size) for turn in turns] == order * 3
    assert [(each.system, each.batch_size) for each in report.measurements] == order
    translator = Translator(str(tiny_checkpoint), device="cpu", datastore=store, settings=asked)
    expected = translator.translate(TEXTS, beam=2, batch_size=4, settings="raw")
    assert turns[-1].answer.texts == [each.text for each in expected]
    assert turns[-1].answer.tokens == sum(len(each.tokens) for each in expected)
    assert set(report.machines) == {"base", "cached"}
    assert all(each.endswith(", 1 thread") for each in report.machines.values())
    assert report.signatures["cached"] == translator.signature(beam=2, settings="raw")
    cached, base = report.of("cached", 4), report.of("base", 4)
    assert cached.saved == pytest.approx(translator.statistics.saved())
    assert cached.saved_after_first_steps == pytest.approx(translator.statistics.saved(with_first_step=False))
    assert base.saved is None
    assert cached.stage_milliseconds["search"] > 0 == base.stage_milliseconds["search"]
    assert len(cached.speeds) == 2
    assert report.ratio(cached) == cached.median / base.median
    assert report.ratio(base) == 1


def test_a_text_is_known_by_its_sentences_and_looked_for_once_in_every_store(store: Path) -> None:
    systems = [System("base"), System("a", store), System("b", store, exact=True)]
    texts = ["Satz  12", "Satz 12", "Satz 1 ja", "neu"]  # white space is not compared
    found = describe_text("x.txt", texts, systems)
    digest = hashlib.sha256(b"Satz  12\nSatz 12\nSatz 1 ja\nneu\n").hexdigest()[:12]
    assert found == BenchText("x.txt", 4, digest, {str(store): 3})
    unknown = describe_text("", ["neu"], systems)
    assert unknown.known == {}
    assert unknown.warnings == []


def test_a_system_tells_what_would_make_its_search_faster(
    store: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_store, "StoreIndex", partial(StoreIndex, noticeable_entries=10))
    options = {"model": str(tiny_checkpoint), "device": "cpu", "settings": {"beam": 2}}
    _, about = load_translator(datastore=str(store), **options)  # type: ignore[arg-type]
    assert about["hint"] is None  # by segment
    options["settings"] = {"search": "whole"}
    _, about = load_translator(datastore=str(store), **options)  # type: ignore[arg-type]
    assert about["hint"] == f"searched exactly; `knnmt index {store}` makes it faster"
    _, about = load_translator(datastore=None, **options)  # type: ignore[arg-type]
    assert about["hint"] is None


def test_a_system_tells_what_it_computes_on(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "machine", lambda translator: f"a GPU for {translator.engine.name}")
    _, about = load_translator(None, {"beam": 2}, model=str(tiny_checkpoint), device="cpu")
    assert about["machine"].startswith("a GPU for ")


@pytest.mark.usefixtures("warm_systems")
def test_a_system_that_cannot_start_says_why(tmp_path: Path) -> None:
    config = BenchConfig((1,), rounds=1, threads=1)
    with pytest.raises(SystemStoppedError, match=r"system 'x' stopped, .* status 1: .*there is no datastore"):
        bench([System("x", tmp_path / "absent")], TEXTS, config)


SPEAKS_ONCE = "import sys; print('{}', flush=True); sys.stdin.readline(); print('oh no', file=sys.stderr); sys.exit(3)"


def test_a_system_that_dies_at_work_says_its_last_words() -> None:
    with SystemProcess("x", [sys.executable, "-c", SPEAKS_ONCE], threads=1) as process:
        assert process.about() == {}
        with pytest.raises(SystemStoppedError, match="system 'x' stopped, its process ended with status 3: oh no"):
            process.ask(TEXTS, 1)
        with pytest.raises(SystemStoppedError, match="status 3"):  # a second question finds nobody
            process.ask(["long"] * 100_000, 1)
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with (
        SystemProcess("x", [sys.executable, "-c", killed], threads=1) as process,
        pytest.raises(
            SystemStoppedError, match=r"was ended by SIGKILL; was there enough memory .*: it printed nothing"
        ),
    ):
        process.about()


@pytest.mark.usefixtures("warm_systems")
def test_a_process_is_gone_when_its_block_ends(tiny_checkpoint: Path) -> None:
    with start(
        System("base"), TranslationSettings(beam=1), threads=1, model=str(tiny_checkpoint), device="cpu"
    ) as process:
        number = process._process.pid
        assert process.about()["signature"].startswith("model:")
        os.kill(number, signal.SIGINT)  # Ctrl-C reaches it too, and is not for it
        assert len(process.ask(TEXTS, 2).texts) == 3
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


WORKS_FOREVER = """
import time
from knnmt_lab.bench.worker import serve
serve(lambda: (lambda texts, size: time.sleep(1000), {}))
"""
ASKS = """
import sys
from knnmt_lab.bench.process import SystemProcess
with SystemProcess("x", [sys.executable, "-c", sys.argv[1]], threads=1) as process:
    process.about()
    print(process._process.pid, flush=True)
    process.ask(["Satz"], 1)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_works_on_when_the_one_that_asks_has_gone(how: signal.Signals) -> None:
    command = [sys.executable, "-c", ASKS, WORKS_FOREVER]
    with warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        number = int(asking.stdout.readline())
        time.sleep(0.2)
        asking.send_signal(how)
        asking.communicate(timeout=60)
    assert end_soon(number)


@pytest.mark.usefixtures("warm_systems")
def test_what_a_system_prints_and_how_it_fails_do_not_stand_among_its_answers() -> None:
    fails = (
        "from knnmt_lab.bench.worker import serve\n"
        "serve(lambda: (lambda texts, size: print('aside') or 1 / 0, {'is': 'x'}))"
    )
    with SystemProcess("x", [sys.executable, "-c", fails], threads=1) as process:
        assert process.about() == {"is": "x"}
        with pytest.raises(SystemStoppedError, match=r"(?s)status 1: .*Traceback.*ZeroDivisionError"):
            process.ask(TEXTS, 1)


@pytest.mark.parametrize(
    "wrong", [{"batch_sizes": ()}, {"batch_sizes": (0, 8)}, {"batch_sizes": (8, 8)}, {"rounds": 0}]
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingError):
        BenchConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no process to cores")
def test_threads_are_as_many_as_there_are_cores_to_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 7})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert BenchConfig().threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert BenchConfig().threads == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")  # nested levels, which are none of ours
    assert BenchConfig().threads == 64


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(SettingError, match="at least one sentence"):
        bench([System("base")], ["", " "])
    with pytest.raises(SettingError, match="a different name"):
        bench([System("a"), System("a")], TEXTS)
    with pytest.raises(SettingError, match="expected systems"):
        bench([], TEXTS)
