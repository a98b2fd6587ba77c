"""Producing and reporting: all of it on a random model, killed and gone on with, refused where it must be."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from knnmt.adapting.gate_training import GateConfig
from knnmt.adapting.tuning_by_bleu import PAPER_WEIGHTS
from knnmt.errors import InputError, SettingError, StorageError
from knnmt.evaluation.scoring import Score
from knnmt_lab.reproduction.harm import harm_table
from knnmt_lab.reproduction.plan import all_rows
from knnmt_lab.reproduction.plots import save_plots
from knnmt_lab.reproduction.producing import alone_in, produce
from knnmt_lab.reproduction.report import write_report
from knnmt_lab.reproduction.results import read_results
from knnmt_lab.reproduction.tables import Tables
from knnmt_lab.reproduction.texts import read_reported
from support import ROOT, warm
from support.index_stores import faiss_or_skip
from support.light_core import FOUR_PACKAGES
from support.made_domains import ROWS, asked, write_domains
from support.made_once import made_once

faiss_or_skip()
sacrebleu = pytest.importorskip("sacrebleu")
_BY_SEGMENT = "by segment, 512 as by default"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, short_checkpoint: Path) -> tuple[Path, Path, list[str]]:
    """The data, the output, and what was told."""

    def make(directory: Path) -> None:
        told: list[str] = []
        data = write_domains(directory / "data", test=True)
        with pytest.MonkeyPatch.context() as patched:  # on less text, and gates that learn little
            patched.setattr("knnmt_lab.reproduction.choosing.GateConfig", partial(GateConfig, epochs=2))
            patched.setattr("knnmt_lab.reproduction.tuning.BLEU_PAIRS", 2)
            assert produce(asked(data, directory / "out", short_checkpoint), told.append) == 0
        (directory / "told.json").write_text(json.dumps(told), encoding="utf-8")

    directory = made_once(tmp_path_factory, "produced", make)
    return directory / "data", directory / "out", read(directory / "told.json")


def test_every_row_has_what_a_report_needs(made: tuple[Path, Path, list[str]]) -> None:
    _, output, told = made
    assert told[-1].startswith(f"[{len(told)}/{len(told)}] plain/speed-2: ")
    for domain in ("plain", "marked"):
        for row in (*ROWS, "A/gate-50"):
            record = read(output / domain / f"{row}.json")
            assert len(record["hypotheses"]) == 3
            assert record["machine"]
            assert record["versions"]["knnmt"]
            assert f"|v:{record['versions']['knnmt']}" in record["signature"]
            assert record["searches"]["searches"] <= record["searches"]["rows"]
        published, ours = (read(output / domain / f"{block}/knn.json") for block in "AB")
        assert "|index:ivfpq/32|" in published["signature"]
        assert "|index:pq4/" in ours["signature"]
        rows = ("A/knn", "A/cache-6", "A/chance-50", "A/own-gate-50", "B/knn")
        sizes = [read(output / domain / f"{row}.json")["batch_size"] for row in rows]
        assert sizes == [32, 8, 8, 32, 32]  # the paper's where sentences of a batch share something
        assert published["settings"]["fading"] is None
        assert ours["settings"]["fading"] is not None
        combined = read(output / domain / "B/pca+cache+pruning.json")
        assert combined["dim"] == 16
        assert combined["entries"] < ours["entries"]
        fixed = read(output / domain / "B/knn-fixed.json")
        assert fixed["settings"]["fading"] is None
        assert fixed["settings"]["interpolation_weight"] in PAPER_WEIGHTS
        assert "|index:pq4/" in fixed["signature"]
        by_segment, plain = (read(output / domain / f"{row}.json") for row in ("segments", "sk-mt"))
        assert by_segment["settings"]["segments"] == 512
        assert by_segment["settings"]["fading"] is not None
        assert "|segments:512|" in by_segment["signature"]
        assert plain["settings"]["segments"] == 16
        assert "|segments:16|" in plain["signature"]
        assert f"|combiner:sk-mt/bm25/{plain['settings']['temperature']:.4g}|" in plain["signature"]
        by_chance = read(output / domain / "A/chance-50.json")
        counted = read(output / domain / "A/gate-50.json")["searches"]
        rate = counted["searches"] / counted["rows"]
        assert f"chance-of-steps/{rate:.4f}/1+as-published/1/" in by_chance["signature"]
        by_bleu = read(output / domain / "A/tuned-full-bleu.json")
        assert len(by_bleu["grid"]) == 16
        assert by_bleu["bleu"] == max(each["bleu"] for each in by_bleu["grid"])
        uncounted, merged = (read(output / domain / f"B/pruning-2{end}.json") for end in ("-uncounted", ""))
        assert uncounted["settings"] == {**merged["settings"], "use_counts": False}
        assert merged["settings"]["use_counts"]
        assert read(output / domain / "A/cache-8.json")["borrowed"].keys() <= {str(each) for each in range(1000)}
        timed = read(output / domain / "speed-2.json")["systems"]
        assert list(timed) == [
            *("base", "segments", "A/knn", "A/cache-6", "B/knn", "B/knn-fixed", "A/knn-probes"),
            "B/pca+cache+pruning",
        ]
        probes = read(output / domain / "A/probes.json")
        faithful = read(output / domain / "A/knn-probes.json")
        assert f"|index:ivfpq/{probes['probes']}|" in faithful["signature"]
        assert f"|index:ivfpq/{probes['probes']}|" in timed["A/knn-probes"]["signature"]
        assert faithful["settings"]["k"] == fixed["settings"]["k"]
        other = read(output / domain / "B/other-half.json")["other half"]
        assert set(other) == {"B/knn", "B/knn-fixed"}
        tuning = read(output / domain / "text.json")["tuning"]
        assert {len(each) for each in other.values()} == {
            len(tuning)
        }  # a short text has no pairs beyond those tuned on
        variants = read(output / domain / "A/gate-choice.json")["variants"]
        assert len(variants) == 9
        assert [each["half"] for each in variants] == sorted(each["half"] for each in variants)
    assert read(output / "plain/text.json")["reported_from"] == "test"


def test_text_of_the_other_domain_shows_the_harm(made: tuple[Path, Path, list[str]]) -> None:
    data, output, _ = made
    texts = {}
    for domain, other in (("plain", "marked"), ("marked", "plain")):
        texts[domain] = read(output / domain / "other-2/text.json")["others"]
        assert list(texts[domain]) == [other]
        reported = read_reported(data / other, ("de", "en"), 2)[0]
        assert texts[domain][other] == [[pair.source, pair.target] for pair in reported]
        assert not (output / domain / "other-2/sk-mt.json").exists()
    results = read_results(output)
    lines = harm_table(output, results, Tables(results, all_rows(32)))
    assert lines is not None
    assert [line[0] for line in lines[1:]] == ["B: kNN-MT, fixed λ", "B: kNN-MT", _BY_SEGMENT]
    for line, row in zip(lines[1:], ("B/knn-fixed", "B/knn", "segments"), strict=True):
        differences = []
        for domain in results.domains:
            (pairs,) = texts[domain].values()
            bleu = [
                sacrebleu.corpus_bleu(
                    read(output / domain / f"other-2/{name}.json")["hypotheses"], [[target for _, target in pairs]]
                ).score
                for name in (row, "base")
            ]
            differences.append(bleu[0] - bleu[1])
        expected = [*differences, sum(differences) / 2]
        assert [cell.split(" ± ")[0] for cell in line[1:]] == [f"{each:+.2f}" for each in expected]


def test_the_report_is_made_elsewhere_and_has_no_text(
    made: tuple[Path, Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, output, _ = made
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(output, elsewhere, ignore=shutil.ignore_patterns("stores"))
    report = write_report(elsewhere).read_text(encoding="utf-8")
    monkeypatch.setattr("knnmt_lab.reproduction.results.score", None)  # the scores were kept
    monkeypatch.setattr(
        "knnmt_lab.reproduction.report.save_plots", lambda *_: ["speed", "ablation", "searches", "pruning"]
    )
    assert write_report(elsewhere).read_text(encoding="utf-8") == report
    assert "Satz" not in report
    assert "| **A, as published** |" in report
    assert "), de to en; knnmt " in report.splitlines()[2]
    assert "- **B, ours**: two-stage search" in report
    assert "COMET" not in report  # a table without rows
    assert "| counting what was merged, k = 2 | " in report
    assert " ± " in report
    assert "## Harm: BLEU of other domains' text" in report
    assert "pruning k = 5" not in report  # neither we nor the paper have a number of it for these domains
    assert "## Choices on the half that is not reported, BLEU" in report
    assert "| fixed λ instead of λ that fades | " in report
    assert "| confidence, entropy; 0.2 | " in report
    assert "## Probes of IVFPQ" in report
    assert "(34.98)" not in report  # the paper's average is of domains that these are not
    for name in ("speed", "ablation", "searches"):
        assert f"![{name}]({name}.png)" in report
        assert (elsewhere / f"{name}.svg").exists()
    scored = []
    for domain in ("marked", "plain"):
        hypotheses = read(elsewhere / domain / "A/knn.json")["hypotheses"]
        references = [target for _, target in read(elsewhere / domain / "text.json")["reported"]]
        scored.append(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert f"| kNN-MT | {scored[0]:.2f} | {scored[1]:.2f} | {sum(scored) / 2:.2f} |" in report


def test_speed_of_some_domains_is_drawn(made: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    _, output, _ = made
    results = replace(read_results(output), rows={})
    del results.speeds["marked", 2]
    assert save_plots(results, Tables(results, all_rows(32)), tmp_path) == ["speed"]


class Counting:
    """COMET that says how many segments it saw."""

    signature = "model:counting"

    def __init__(self) -> None:
        self.asked = 0

    def score(self, sources: list[str], hypotheses: list[str], references: list[str]) -> Score:
        assert len(sources) == len(hypotheses) == len(references)
        self.asked += 1
        return Score(len(sources) / 8, self.signature)


def test_comet_scores_the_main_rows_once(
    made: tuple[Path, Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knnmt_lab.reproduction.report.save_plots", lambda *_: [])  # they take longest
    _, output, _ = made
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(output, elsewhere, ignore=shutil.ignore_patterns("stores"))
    for asked_for in (20, 0):  # of two domains base, fast, two by segment, three rows a block; then from what was kept
        comet = Counting()
        report = write_report(elsewhere, comet=comet).read_text(encoding="utf-8")  # type: ignore[arg-type]
        assert comet.asked == asked_for
        assert "| Base MT | 0.3750 | 0.3750 | 0.3750 |" in report
        assert "- COMET: `model:counting`" in report


def test_a_second_call_does_only_what_is_missing(
    made: tuple[Path, Path, list[str]], short_checkpoint: Path, tmp_path: Path
) -> None:
    data, output, told = made
    copy = tmp_path / "copy"
    shutil.copytree(output, copy)
    before = read(copy / "plain/A/knn.json")
    (copy / "plain/A/knn.json").unlink()
    again: list[str] = []
    assert produce(asked(data, copy, short_checkpoint), again.append) == 0
    assert len(again) == 2
    assert "plain/A/knn: " in again[1]
    assert read(copy / "plain/A/knn.json")["hypotheses"] == before["hypotheses"]
    (copy / "plain/A/knn.json").unlink()
    shutil.rmtree(copy / "stores")  # results without their stores: only those of the missing row are made again
    again.clear()
    assert produce(asked(data, copy, short_checkpoint), again.append) == 0
    assert [line.split()[1] for line in again[1:]] == ["plain/store:", "plain/index", "plain/A/knn:"]
    assert len(told) > 30


def test_time_that_is_up_leaves_the_rest(
    made: tuple[Path, Path, list[str]], short_checkpoint: Path, tmp_path: Path
) -> None:
    data, _, told = made
    said: list[str] = []
    left = produce(asked(data, tmp_path / "out", short_checkpoint, minutes=0.0), said.append)
    assert 0 < left <= len(told)
    assert said == [f"time is up: {left} stages remain, starting with marked/text; rerun the command to resume"]
    assert not list(tmp_path.glob("out/*/text.json"))


def test_a_stage_that_fails_is_told_of_and_others_go_on(
    made: tuple[Path, Path, list[str]], short_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise ArithmeticError("no settings")

    monkeypatch.setattr("knnmt_lab.reproduction.steps.tuned_by_segment", fails)
    how: dict[str, Any] = {"domains": ("plain",), "systems": ("sk-mt", "base"), "speed": False}
    with pytest.raises(ArithmeticError):
        produce(asked(made[0], tmp_path / "ends", short_checkpoint, **how))
    told: list[str] = []
    assert produce(asked(made[0], tmp_path / "goes-on", short_checkpoint, keep_going=True, **how), told.append) == 2
    failed = [line for line in told if " failed:" in line]
    assert [line.split()[0] for line in failed] == ["plain/tuned-sk-mt", "plain/sk-mt"]
    assert "ArithmeticError: no settings" in failed[0]
    assert (tmp_path / "goes-on/plain/base.json").exists()


def test_what_differs_is_refused(made: tuple[Path, Path, list[str]], short_checkpoint: Path, tmp_path: Path) -> None:
    data, output, _ = made
    with pytest.raises(SettingError, match=r"sentences was 3, now 4; block B searches was index, now exact"):
        produce(asked(data, output, short_checkpoint, sentences=4, exact=True))
    changed = tmp_path / "data"
    shutil.copytree(data, changed)
    (changed / "plain" / "train.tsv").write_text("a\tb\n", encoding="utf-8")
    with pytest.raises(SettingError, match="has results of another text"):
        produce(asked(changed, output, short_checkpoint))
    with pytest.raises(InputError, match="has no domain 'poems'; it has marked, plain"):
        produce(asked(data, output, short_checkpoint, domains=("poems",)))
    with pytest.raises(InputError, match="has no results yet"):
        write_report(tmp_path)
    with pytest.raises(SettingError, match="blocks must be chosen from A and B, got C"):
        asked(data, output, short_checkpoint, blocks=("C",))
    with pytest.raises(SettingError, match="there is nothing to do"):
        asked(data, output, short_checkpoint, quality=False, speed=False)


def test_speed_is_measured_again_with_rows_that_were_added_and_refused_where_that_cannot_be(
    made: tuple[Path, Path, list[str]], short_checkpoint: Path, tmp_path: Path
) -> None:
    data, output, _ = made
    copy = tmp_path / "copy"
    shutil.copytree(output, copy)
    again: list[str] = []
    added = {"domains": ("plain",), "systems": (*ROWS, "B/cache-4")}
    assert produce(asked(data, copy, short_checkpoint, **added), again.append) == 0
    assert [line.split()[1] for line in again[1:]] == ["plain/B/cache-4:", "plain/B/other-half:", "plain/speed-2:"]
    assert {"base", "A/knn", "B/cache-4"} <= set(read(copy / "plain/speed-2.json")["systems"])
    assert produce(asked(data, copy, short_checkpoint, domains=("plain",)), again.append) == 0  # fewer: nothing to do
    assert len(again) == 5
    longer = {"domains": ("plain",), "systems": (*ROWS, "B/cache-4"), "rounds": 2}
    assert produce(asked(data, copy, short_checkpoint, **longer), again.append) == 0  # more rounds: all again
    assert [line.split()[1] for line in again[6:]] == ["plain/speed-2:"]
    assert {len(each["rounds"]) for each in read(copy / "plain/speed-2.json")["systems"].values()} == {2}
    with pytest.raises(SettingError, match=r"speed of 2 sentences in 1 rounds, now 3 in 2\. Request the same"):
        produce(asked(data, copy, short_checkpoint, speed_sentences=3, rounds=2))
    with pytest.raises(
        SettingError, match=r"the speed of base, segments, A/knn, A/cache-6, .* too, which must take turns"
    ):
        produce(asked(data, copy, short_checkpoint, systems=("A/pca+cache",)))


def test_stores_of_another_reproduction_are_refused(
    made: tuple[Path, Path, list[str]], short_checkpoint: Path, tmp_path: Path
) -> None:
    data, output, _ = made
    with pytest.raises(
        SettingError, match=r"stores/marked: has stores that were made differently \(other train_pairs\)"
    ):
        produce(asked(data, tmp_path / "out", short_checkpoint, stores=output / "stores", train_pairs=20))


def test_without_faiss_the_way_out_is_named(
    made: tuple[Path, Path, list[str]], short_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knnmt_lab.reproduction.producing.find_spec", {}.get)
    with pytest.raises(SettingError, match="or run without it: --blocks B --exact"):
        produce(asked(made[0], tmp_path / "out", short_checkpoint))
    assert not (tmp_path / "out").exists()


LIGHT = (
    FOUR_PACKAGES
    + """
from knnmt_lab.reproduction.__main__ import main
main(sys.argv[1:])
"""
)


# At the first file that is opened after that one is there.
KILLED_AFTER_KNN = """
import os, signal, sys
def hear(event, given):
    if event == "open" and os.path.exists(sys.argv[4] + "/plain/B/knn.json"):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hear)
"""


@pytest.mark.soak
def test_a_killed_run_goes_on_and_ends_as_if_nothing_had_been(
    made: tuple[Path, Path, list[str]], short_checkpoint: Path, tmp_path: Path
) -> None:
    """With the light core alone, too: exact search, and no package of the command line."""
    data, _, _ = made
    output = tmp_path / "killed"
    command = ["--data", data, "--output", output, "--model", short_checkpoint]
    command += ["--domains", "plain", "--blocks", "B", "--exact", "--sentences", "3", "--no-speed", "--device", "cpu"]
    command += ["--systems", "base", "B/knn", "B/random-0.5"]

    def run(script: str, start: Callable[..., subprocess.CompletedProcess[str]]) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        line = [sys.executable, "-c", script, *map(str, command)]
        return start(line, capture_output=True, text=True, env=environment, timeout=300)

    first = run(KILLED_AFTER_KNN + LIGHT, warm.run)
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert (output / "plain/B/knn.json").exists()
    assert not (output / "plain/B/random-0.5.json").exists()
    second = run(LIGHT, subprocess.run)
    assert (second.returncode, second.stderr) == (0, "")
    assert " stages were done before" in second.stdout.splitlines()[0]
    whole = tmp_path / "whole"
    chosen = ("base", "B/knn", "B/random-0.5")
    config = asked(
        data, whole, short_checkpoint, domains=("plain",), blocks=("B",), exact=True, speed=False, systems=chosen
    )
    assert produce(config, lambda _: None) == 0
    for path in sorted(whole.glob("plain/**/*.json")):
        one, other = read(path), read(output / path.relative_to(whole))
        assert one.get("hypotheses") == other.get("hypotheses")
        assert one.get("settings") == other.get("settings")


def test_two_processes_do_not_work_in_the_same_place(tmp_path: Path) -> None:
    with alone_in(tmp_path), pytest.raises(StorageError, match="another process is working there"), alone_in(tmp_path):
        pass
    with alone_in(tmp_path):  # it is free again
        pass
