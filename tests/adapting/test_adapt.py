"""Adapting: the steps give what they would by themselves, and no interruption loses or doubles anything."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from knnmt import Translator
from knnmt.adapting import adapt as adapting
from knnmt.adapting import tune as tuning
from knnmt.adapting.adapt import adapt
from knnmt.adapting.development import search_text
from knnmt.adapting.gain import Gain, measure_gain
from knnmt.adapting.holding_out import plan
from knnmt.adapting.tuning_by_likelihood import Tuned, tune_positions
from knnmt.calibration.certainty import Certainty
from knnmt.calibration.likelihood import Positions
from knnmt.config import DEFAULT_SEGMENTS, RetrievalConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.settings import read_settings
from knnmt.datastore.store import Datastore
from knnmt.datastore.unfinished import is_unfinished
from knnmt.errors import DatastoreExistsError, DatastoreLockedError, InputError, MissingDependencyError
from knnmt.index.saved import read_saved
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.profiles import default_profile, read_profiles
from support import warm
from support.datastore_pairs import some_pairs

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.TextWarning")
PAIRS = some_pairs(160)


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model ends no sentence early, so that its beams take long; and few pairs are enough to hold out."""
    monkeypatch.setattr(tuning, "CACHE_PAIRS", 1)
    for module in ("holding_out", "adapt"):
        monkeypatch.setattr(f"knnmt.adapting.{module}.MIN_HELD_OUT", 12)


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu")


def stop_at(line: int) -> tuple[list[str], Callable[[str], None]]:
    """A listener that is interrupted by its n-th line, and what it heard."""
    heard: list[str] = []

    def tell(text: str) -> None:
        heard.append(text)
        if len(heard) == line:
            raise KeyboardInterrupt

    return heard, tell


def timeless(line: str) -> str:
    """A line without the time that its step took."""
    return re.sub(r"\b[0-9]+ s\b", "0 s", line)


def test_every_step_gives_what_it_gives_by_itself(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knnmt.calibration.certainty.MIN_PAIRS", 3)
    planned = plan(lambda: PAIRS)
    copied = planned.reported[0].target  # one that the memory also has under another source
    pairs = [*PAIRS, SegmentPair("etwas anderes", copied, "own.tsv#copied")]
    planned = plan(lambda: pairs)
    heard: list[str] = []
    made = adapt(planned, tmp_path / "own.store", model=translator, sample=3, on_message=heard.append, verbose=True)
    said = "\n".join(heard)
    assert str(made) == said

    first = Datastore.build(tmp_path / "first", planned.built_first(), translator.engine)
    opened = OpenStore(first)
    scope = DEFAULT_SEGMENTS
    tuned = tune_positions(search_text(translator.engine, opened, planned.tuning, scope=scope).positions(), scope=scope)
    profiles = read_profiles(made.store.path)
    assert list(profiles) == ["segments", "segments-fixed"]
    assert default_profile(made.store.path) == "segments"
    assert profiles["segments"].config == tuned.fading.fading
    assert profiles["segments-fixed"].config == tuned.fixed.fixed
    assert {each.pairs for each in profiles.values()} == {len(planned.tuning)}

    fresh = [pair for pair in planned.reported if pair.target != copied]
    positions = search_text(translator.engine, opened, fresh, scope=scope).positions()
    gain = made.gain
    assert gain is not None
    assert (gain.pairs, gain.known, gain.translated) == (len(fresh), 1, 3)
    assert gain.base_loss == pytest.approx(positions.loss(None))
    assert gain.loss == pytest.approx(positions.loss(tuned.fading.fading))
    assert gain.loss < gain.base_loss
    assert f"on {len(fresh)} pairs new to it (1 known by source or target not counted)" in said
    assert read_settings(made.store.path)["gain"]["loss"] == gain.loss

    assert list(made.store.pairs()) == [*planned.built_first(), *planned.held_out]
    assert Counter(made.store.pairs()) == Counter(pairs)
    assert list(made.store.verify()) == []
    assert read_saved(made.store) is None
    assert [path.name for path in tmp_path.iterdir() if path.name != "first"] == ["own.store"]
    labels = [line[:11].strip() for line in heard if line[:11].strip()]
    assert labels == [
        "held out",
        "built",
        "tuned",
        "compared",
        {True: "better", False: "no gain"}[gain.is_better],
        "perplexity",
        "chrF",
        "certainty",
        "added",
        "adapted",
    ]
    certainty = Certainty.read(made.store.path)
    assert certainty is not None
    assert (certainty.pairs, certainty.config) == (3, tuned.fading.fading)
    found = translator.translate("Satz 3", datastore=made.store.path)
    assert found.certainty == certainty.of(found.log_probability)


def counting(step: Callable[..., Any], done: Counter[str]) -> Callable[..., Any]:
    def counted(*given: Any, **named: Any) -> Any:
        done[step.__name__] += 1
        return step(*given, **named)

    return counted


def test_interrupted_after_any_step_the_same_call_goes_on(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(lambda: PAIRS)
    done: Counter[str] = Counter()
    for module, name in (
        (adapting, "write_store"),
        (tuning, "pass_over"),
        (adapting, "measure_gain"),
    ):
        monkeypatch.setattr(module, name, counting(getattr(module, name), done))
    heard: list[str] = []
    whole = adapt(planned, tmp_path / "whole", model=translator, sample=1, on_message=heard.append)
    assert "built      " in heard[1]
    done.clear()
    for line in range(1, len(heard)):  # after the last one, nothing is left to do
        before, tell = stop_at(line + (line > 1))  # from the second run on, the first line says that it goes on
        with pytest.raises(KeyboardInterrupt):
            adapt(planned, tmp_path / "s", model=translator, sample=1, on_message=tell)
        assert is_unfinished(tmp_path / "s") == (tmp_path / "s").exists() == (line > 1)
        assert [*map(timeless, before[line > 1 :])] == [timeless(each.replace("whole", "s")) for each in heard[:line]]
        if line > 1:  # what is built can be used
            assert translator.translate("Satz 3", datastore=tmp_path / "s", max_tokens=2).text
            with pytest.raises(DatastoreExistsError, match="`knnmt adapt` has not finished it"):
                adapt(PAIRS[:100], tmp_path / "s", model=translator)
    made = adapt(planned, tmp_path / "s", model=translator, sample=1)
    assert not is_unfinished(made.store.path)
    assert done == {"write_store": 1, "pass_over": 2, "measure_gain": 1}  # both halves
    assert list(made.store.pairs()) == list(whole.store.pairs())
    assert read_profiles(made.store.path) == read_profiles(whole.store.path)
    assert made.gain == whole.gain
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "whole"]


def test_settings_that_are_no_better_than_the_estimated_ones_are_not_the_default(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def badly(positions: Positions, before: RetrievalConfig, **_: object) -> Tuned:
        found = tune_positions(positions, before=before)
        bad = replace(found.fading.fading, interpolation_weight=0.01)
        return replace(found, tried=tuple(replace(each, fading=bad) for each in found.tried))

    monkeypatch.setattr(tuning, "tune_positions", badly)
    heard: list[str] = []
    tell, planned = heard.append, plan(lambda: PAIRS)
    made = adapt(planned, tmp_path / "own.store", model=translator, sample=0, on_message=tell, verbose=True).store.path
    assert default_profile(made) is None
    estimated = translator.memories.open(made).resolve()
    assert read_profiles(made)["segments"].config == estimated
    (tuned,) = [line for line in heard if line.startswith("tuned")]
    assert tuned.startswith(
        "tuned      not used: tuned settings are not better on both parts of the text, so the estimated ones stay: k "
    )
    (compared,) = [line for line in heard if line.startswith("compared")]
    before, after = (float(compared.split()[place]) for place in (2, 4))
    assert before < after


def test_with_development_text_all_of_the_memory_is_built_at_once(translator: Translator, tmp_path: Path) -> None:
    pairs = some_pairs(60)
    planned = plan(lambda: pairs, [*some_pairs(60, start=300), *some_pairs(8)])
    heard: list[str] = []
    made = adapt(planned, tmp_path / "s", model=translator, sample=0, on_message=heard.append)
    assert list(made.store.pairs()) == pairs
    assert made.gain is not None
    assert made.gain.pairs + made.gain.known == len(planned.reported)
    known = [pair for pair in planned.tuning if pair in pairs]
    assert read_profiles(made.store.path)["segments"].pairs == len(planned.tuning) - len(known)
    assert not [line for line in heard if line.startswith(("held out", "added", "BLEU"))]


def test_too_little_text_is_said_and_the_store_made(translator: Translator, tmp_path: Path) -> None:
    for name, planned in {
        "few": plan(lambda: some_pairs(50)),
        "known": plan(lambda: some_pairs(50), some_pairs(50)),
    }.items():
        heard: list[str] = []
        made = adapt(planned, tmp_path / name, model=translator, on_message=heard.append)
        assert made.gain is None
        assert list(made.store.pairs()) == some_pairs(50)
        assert not read_profiles(made.store.path)
        why = {"few": "there is too little text", "known": "the store holds nearly all of the text to measure on"}[name]
        assert [line for line in heard if line.startswith(f"unmeasured {why}; 400 pairs in the memory, or 40 ")]


def test_without_sacrebleu_there_is_perplexity_and_advice(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_language: str) -> None:
        raise MissingDependencyError("sacrebleu", "scoring translations", "evaluate")

    monkeypatch.setattr(adapting, "require_sacrebleu", missing)
    heard: list[str] = []
    made = adapt(plan(lambda: PAIRS), tmp_path / "s", model=translator, on_message=heard.append)
    assert made.gain is not None
    assert made.gain.translated == 0
    assert [line for line in heard if line.startswith("BLEU")] == [
        "BLEU       not measured: scoring translations needs the package 'sacrebleu', which is not installed: "
        "pip install 'knnmt[evaluate]'"
    ]


def test_what_is_in_the_way_and_who_else_is_at_it(translator: Translator, tmp_path: Path) -> None:
    store = tmp_path / "s[1]"
    with pytest.raises(InputError, match="no usable pair was read"):
        adapt(plan(list), store, model=translator)
    assert not list(tmp_path.iterdir())
    planned = plan(lambda: PAIRS[:130])
    with pytest.raises(KeyboardInterrupt):
        adapt(planned, store, model=translator, on_message=stop_at(1)[1])
    (work,) = tmp_path.iterdir()
    with writer_lock(work), pytest.raises(DatastoreLockedError, match="another process is writing"):
        adapt(planned, store, model=translator)
    heard: list[str] = []
    adapt(plan(lambda: some_pairs(31)), store, model=translator, on_message=heard.append)
    assert heard[0].startswith(f"noted      {work} is left from another text")
    assert work.exists()
    with pytest.raises(DatastoreExistsError, match="Add to it with"):
        adapt(planned, store, model=translator)


def test_a_store_that_makes_things_worse_is_called_so_first() -> None:
    better = Gain(100, 0, 2.0, 1.5, 50, 30.1, 40.3, 50.0, 60.0, base_interval=2.0, interval=3.0, p_value=0.001)
    worse = replace(better, bleu=24.6, chrf=44.0)
    by_loss = Gain(100, 0, 1.5, 2.0)
    verdicts = {
        "better": [better, replace(better, chrf=49.0), replace(by_loss, loss=1.0)],
        "worse": [worse, by_loss, replace(worse, p_value=0.3, loss=2.5)],
        "no gain": [replace(better, p_value=0.05), replace(worse, chrf=50.1), replace(worse, p_value=0.3)],
    }
    for word, gains in verdicts.items():
        for gain in gains:
            assert gain.verdict[0].startswith(f"{word:<11}")
            assert (gain.is_better, gain.is_worse) == (word == "better", word == "worse")
            assert len(gain.verdict) == (3 if gain.is_worse else 1)
            assert gain.is_bad == gain.is_worse
    unrelated = replace(better, base_bleu=0.4, bleu=0.5)
    assert unrelated.is_bad
    assert unrelated.verdict[0].startswith("unrelated  BLEU 0.5 ± 3.0 with the store")
    assert len(unrelated.verdict) == 3
    assert not replace(unrelated, translated=49).is_bad
    expected = "BLEU 24.6 ± 3.0 with the store, 30.1 ± 2.0 without it, on 50 sentences that it does not hold"
    assert worse.verdict[0] == f"worse      {expected}"


def test_nothing_is_gained_on_text_that_a_store_holds(translator: Translator, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "s", some_pairs(10), translator.engine)
    assert measure_gain(translator, store.path, some_pairs(10), 5) is None
    translator.memories.close(store)


# Real processes ------------------------------------------------------------------------------------------------------

ADAPT = """
import sys
from pathlib import Path
from support.datastore_pairs import some_pairs
from knnmt import Translator
from knnmt.datastore import slices
from knnmt.adapting import adapt as adapting
from knnmt.adapting import tune as tuning
from knnmt.adapting.holding_out import plan
slices.SLICE_ENTRIES = 600
tuning.CACHE_PAIRS = 1
translator = Translator(sys.argv[1], device="cpu")
planned, tell = plan(lambda: some_pairs(420)), lambda line: print(line, flush=True)
adapting.adapt(planned, Path(sys.argv[2]), model=translator, sample=1, on_message=tell, verbose=True)
"""


def start(checkpoint: Path, store: Path) -> warm.Popen:
    command = [sys.executable, "-W", "ignore", "-c", ADAPT, str(checkpoint), str(store)]
    return warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_and_go_on(checkpoint: Path, store: Path, stages: list[str], seed: int) -> None:
    """Kill a run soon after it has told of each stage, then let one end."""
    generator = random.Random(seed)
    for stage in stages:
        process = start(checkpoint, store)
        assert process.stdout is not None
        assert any(line.startswith(stage) for line in process.stdout)
        time.sleep(generator.uniform(0, 0.1))
        process.kill()
        process.communicate()
        if store.exists() and not is_unfinished(store):
            break  # it was faster
    else:
        out, err = start(checkpoint, store).communicate()
        assert "adapted" in out, err
        assert out.startswith("continued")
    made = Datastore.open(store)
    assert Counter(made.pairs()) == Counter(some_pairs(420))
    assert list(made.verify()) == []
    assert default_profile(store) == "segments"
    assert read_settings(store)["gain"]["translated"] == 1


@pytest.mark.soak
def test_a_run_that_is_killed_leaves_no_store_or_a_whole_one(tmp_path: Path, tiny_checkpoint: Path) -> None:
    kill_and_go_on(tiny_checkpoint, tmp_path / "s", ["held out", "tuned", "perplexity"], seed=3)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_what_a_kill_at_the_very_end_left_is_cleared(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = plan(lambda: some_pairs(12))
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        adapt(pairs, tmp_path / "s", model=translator)
    (left,) = tmp_path.glob("s.adapting-*")
    (left / "store.building").mkdir()  # somebody's work
    for there in (True, False):
        with pytest.raises(DatastoreExistsError):
            adapt(pairs, tmp_path / "s", model=translator)
        assert left.exists() == there
        if there:
            (left / "store.building").rmdir()


def test_segments_that_a_kill_left_after_the_addition_do_not_stay(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, add = plan(lambda: PAIRS), Datastore.add

    def killed_afterwards(*given: Any) -> None:
        add(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Datastore, "add", killed_afterwards)
        with pytest.raises(KeyboardInterrupt):
            adapt(planned, tmp_path / "s", model=translator, sample=1)
    (tmp_path / "s" / "segments" / "00099-left.safetensors").touch()
    made = adapt(planned, tmp_path / "s", model=translator, sample=1).store
    named = {stored.file for stored in made.manifest.files()}
    assert {path.name for path in (made.path / "segments").iterdir()} == named


@pytest.mark.soak
def test_a_run_that_is_killed_at_every_stage(tmp_path: Path, tiny_checkpoint: Path) -> None:
    stages = ["held out", "held out", "built", "built", "tuned", "tuned", "perplexity", "chrF"]
    for seed in range(4):
        kill_and_go_on(tiny_checkpoint, tmp_path / f"s{seed}", stages, seed)
