"""The paper's two figures of speed: tokens per second against batch size, and the ablation of the combinations.

The colours are Okabe and Ito's, which people with any kind of colour vision can distinguish; marks, strokes and hatches
show the same in grey.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from knnmt_lab.bench.running import BenchReport
from knnmt_lab.figures import new_figure, save_figure

_COLOURS = ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
_MARKS = "osD^vPX*"  # one more than colours, so that the eighth system does not repeat both
_STROKES = ["-", "--", "-.", ":"]
_SHADES = ["#08519c", "#6baed6", "#c6dbef", "#969696", "#d9d9d9"]  # dark to light, for batch sizes
_HATCHES = ["", "///", "...", "xx", "++"]
_BAR = 0.8  # of the room between two systems
_ASIDE = 0.05  # the shift between systems in doublings of the batch size, so that no mark hides another


def speed_figure(report: BenchReport) -> Any:
    """Tokens per second (log axis) by batch size, a line per system; bars from the slowest to the fastest round."""
    figure = new_figure(7.2, 4.2)
    axes = figure.subplots()
    sizes, count = report.config.batch_sizes, len(report.systems)
    for number, system in enumerate(report.systems):
        found = [report.of(system, size) for size in sorted(sizes)]
        medians = [each.median for each in found]
        aside = 2 ** (_ASIDE * (number - (count - 1) / 2))
        axes.errorbar(
            [each.batch_size * aside for each in found],
            medians,
            yerr=[
                [median - min(each.speeds) for median, each in zip(medians, found, strict=True)],
                [max(each.speeds) - median for median, each in zip(medians, found, strict=True)],
            ],
            label=system,
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKS[number % len(_MARKS)],
            linestyle=_STROKES[number % len(_STROKES)],
            markersize=5,
            linewidth=1.4,
            elinewidth=0.9,
            capsize=2.5,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_yscale("log")
    axes.set_yticks(*_round_numbers(report))
    axes.minorticks_off()
    axes.set_xlabel("batch size (sentences)")
    axes.set_ylabel("speed (tokens/s)")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    _open_frame(axes)
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def ablation_figure(report: BenchReport) -> Any:
    """The speed of the other systems relative to the first; one row per combination, one bar per batch size."""
    sizes, first, others = report.config.batch_sizes, report.systems[0], report.systems[1:] or report.systems
    figure = new_figure(7.2, 1.1 + 0.22 * len(others) * max(2, len(sizes)))
    axes = figure.subplots()
    height = _BAR / len(sizes)
    for number, size in enumerate(sizes):
        bars = axes.barh(
            [place - _BAR / 2 + (number + 0.5) * height for place in range(len(others))],
            [report.ratio(report.of(system, size)) for system in others],
            height=height * 0.92,
            label=f"batch {size}",
            color=_SHADES[number % len(_SHADES)],
            hatch=_HATCHES[number % len(_HATCHES)],
            edgecolor="#222222",
            linewidth=0.6,
        )
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.axvline(1, color="black", linewidth=0.9, linestyle="--", zorder=0)
    axes.set_title(first, x=1, transform=axes.get_xaxis_transform(), fontsize="medium")
    axes.set_yticks(range(len(others)), others)
    axes.set_ylim(len(others) - 0.45, -0.55)
    axes.set_xlim(0, 1.1 * max(1.0, *(report.ratio(each) for each in report.measurements)))
    axes.set_xlabel(f"median speed / median speed of {first}")
    axes.tick_params(axis="y", length=0)
    _open_frame(axes)
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def save_plots(report: BenchReport, directory: Path) -> list[Path]:
    """Write `speed` and `ablation`, as PNG and SVG."""
    return [
        *save_figure(speed_figure(report), directory / "speed"),
        *save_figure(ablation_figure(report), directory / "ablation"),
    ]


def _round_numbers(report: BenchReport) -> tuple[list[float], list[str]]:
    """Ticks of a log axis, from below all speeds to above them: round numbers, more of them if the span is small."""
    lowest = min(min(each.speeds) for each in report.measurements)
    highest = max(max(each.speeds) for each in report.measurements)
    digits = (1, 1.5, 2, 3, 4, 5, 7) if highest < 12 * lowest else (1, 2, 5)
    every = [digit * 10.0**power for power in range(-2, 8) for digit in digits]
    ticks = [
        tick
        for tick, before, after in zip(every[1:], every, every[2:], strict=False)
        if after > lowest and before < highest
    ]
    return ticks, [f"{tick:,.7g}" for tick in ticks]


def _open_frame(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
