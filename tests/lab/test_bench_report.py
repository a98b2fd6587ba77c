"""Reports of speed: the same numbers give the same text, figures and bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from knnmt_lab.bench.plots import ablation_figure, save_plots, speed_figure
from knnmt_lab.bench.report import as_json, as_markdown, as_text
from knnmt_lab.bench.running import REST, STAGES, BenchConfig, BenchReport, Measurement
from knnmt_lab.bench.text import BenchText

TEXT = """\
A fine CPU, 1 thread, beam 5, 64 sentences of fragen.txt (sha256 0123456789ab), 3 rounds, load before 0.3

Warning: 2 of 64 sentences are in x/own.store, which favours its cache; use other sentences.

Tokens per second (median, slowest and fastest round); searches saved (of all, and without first steps):

system  batch  tokens/s         range  / base      saved    MiB
base        1       400    380 to 410    1.00          -    396
cached      1       210    190 to 250    0.53  40% (42%)  1,350
base        8     1,000  990 to 1,100    1.00          -      -
cached      8       620    600 to 640    0.62    40% (-)      -

Where the time went, in milliseconds per token:

system  batch  encoder  decoder  search  retrieval  interpolation  the rest
base        1    0.300    1.800   0.000      0.000          0.000     0.400
cached      1    0.300    1.800   1.500      0.250          0.100     0.812
base        8    0.100    0.600   0.000      0.000          0.000     0.300
cached      8    0.100    0.600   0.500      0.100          0.050     0.263

base: model:m|v:0
cached: model:m|store:s|v:0
"""


def stages(*milliseconds: float) -> dict[str, float]:
    return dict(zip([*STAGES, REST], milliseconds, strict=True))


@pytest.fixture
def report() -> BenchReport:
    measurements = (
        Measurement("base", 1, (380.0, 410.0, 400.0), stages(0.3, 1.8, 0, 0, 0, 0.4), None, None, 396),
        Measurement("cached", 1, (250.0, 190.0, 210.0), stages(0.3, 1.8, 1.5, 0.25, 0.1, 0.8119), 0.4, 0.42, 1350),
        Measurement("base", 8, (990.0, 1100.0, 1000.0), stages(0.1, 0.6, 0, 0, 0, 0.3), None, None, None),
        Measurement("cached", 8, (620.0, 600.0, 640.0), stages(0.1, 0.6, 0.5, 0.1, 0.05, 0.2629), 0.4, None, None),
    )
    config = BenchConfig((1, 8), rounds=3, threads=1)
    signatures = {"base": "model:m|v:0", "cached": "model:m|store:s|v:0"}
    text = BenchText("fragen.txt", 64, "0123456789ab", {"x/own.store": 2})
    machines = dict.fromkeys(signatures, "A fine CPU, 1 thread")
    return BenchReport(machines, 0.3, text, config, signatures, measurements, version="0")


def test_the_text_is_this(report: BenchReport) -> None:
    assert as_text(report) == TEXT


def test_machines_that_differ_are_named_for_each_system(report: BenchReport) -> None:
    differing = replace(report, machines={"base": "A fine CPU, 1 thread", "cached": "A fine GPU"})
    assert as_text(differing).startswith("base: A fine CPU, 1 thread; cached: A fine GPU, beam 5, ")


def test_markdown_has_the_same_cells(report: BenchReport) -> None:
    written = as_markdown(report)
    rows = [line.strip("| ").split(" | ") for line in written.splitlines() if line.startswith("| ")]
    cells = [line.split() for line in TEXT.splitlines() if line.startswith(("system", "base  ", "cached  "))]
    assert [" ".join(row).split() for row in rows] == cells
    assert written.count("|---|---:") == 2
    assert written.splitlines()[2:5] == TEXT.splitlines()[:3]  # conditions and warning
    assert "- cached: model:m|store:s|v:0\n" in written


def test_json_has_every_round_and_what_follows_from_them(report: BenchReport) -> None:
    told = json.loads(as_json(report))
    assert told["config"]["batch_sizes"] == [1, 8]
    assert told["text"] == {
        "name": "fragen.txt",
        "sentences": 64,
        "sha256": "0123456789ab",
        "known": {"x/own.store": 2},
    }
    cached = told["measurements"][1]
    assert cached["speeds"] == [250.0, 190.0, 210.0]
    assert (cached["median"], cached["ratio"]) == (210.0, 0.525)
    assert cached["stage_milliseconds"]["search"] == 1.5


def test_figures_show_medians_ranges_and_ratios(report: BenchReport) -> None:
    pytest.importorskip("matplotlib")
    (axes,) = speed_figure(report).axes
    assert axes.get_yscale() == "log"
    base, cached = axes.containers
    assert list(base.lines[0].get_ydata()) == [400, 1000]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "8"]
    (bars,) = cached.lines[2]
    assert [sorted(segment[:, 1]) for segment in bars.get_segments()] == [[190, 250], [600, 640]]
    low, high = axes.get_ylim()
    assert low <= 190
    assert high >= 1100
    (axes,) = ablation_figure(report).axes
    assert [[bar.get_width() for bar in bars] for bars in axes.containers] == [[0.525], [0.62]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cached"]


def test_the_same_figures_are_the_same_bytes(report: BenchReport, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "again").mkdir()
    first, again = save_plots(report, tmp_path), save_plots(report, tmp_path / "again")
    assert [path.name for path in first] == ["speed.png", "speed.svg", "ablation.png", "ablation.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_one_system_at_one_batch_size_can_be_drawn(report: BenchReport, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    alone = BenchReport(
        {"base": ""}, None, BenchText("", 1, ""), BenchConfig((1,)), {"base": ""}, report.measurements[:1]
    )
    assert len(save_plots(alone, tmp_path)) == 4
