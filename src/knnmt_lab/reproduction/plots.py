"""The paper's two figures, speed by batch size and the ablation, and two more: BLEU against searches and entries.

The colours are Okabe and Ito's, as in `knnmt_lab.bench.plots`; marks show the same in grey.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from knnmt_lab.figures import new_figure, save_figure
from knnmt_lab.reproduction.plan import ALPHAS, MORE_TAUS, PRUNING_KS, SHARES, SUREST, TAUS
from knnmt_lab.reproduction.results import Results
from knnmt_lab.reproduction.tables import Tables

_COLOURS = ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666"]
_MARKS = "osD^vPX*<"
_SHADES = ["#08519c", "#6baed6", "#c6dbef", "#969696"]
_AT_SHARES = (("gate as published", "gate"), ("our gate", "own-gate"), ("chance", "chance"))
_AT_THRESHOLDS = (("our gate", "adaptive"), ("chance", "random"))
_CACHES = (
    ("cache, hits kept", ""),
    ("cache, misses only", "-misses"),
    ("cache of a sentence, misses only", "-sentence"),
)
_BAR = 0.8  # of the room between two systems
_MARGIN = 1.4  # beside the smallest and the largest batch, of which there may be only one
_ASIDE = 0.04  # doublings of the batch size between neighbouring systems, so that no mark hides another


def save_plots(results: Results, tables: Tables, directory: Path) -> list[str]:
    """Write the figures that have results, as PNG and SVG. Return their names without endings."""
    figures = {
        "speed": _speed(results, tables) if results.timed else None,
        "ablation": _ablation(results, tables) if _averaged(results) else None,
        "searches": _searches(results),
        "pruning": _pruning(results),
    }
    for name, figure in figures.items():
        if figure is not None:
            save_figure(figure, directory / name)
    return [name for name, figure in figures.items() if figure is not None]


def _speed(results: Results, tables: Tables) -> Any:
    """Tokens per second (log axis) against batch size, one panel for each domain, bars from the slowest to the fastest
    round.
    """
    domains = [each for each in results.domains if any(domain == each for domain, _ in results.speeds)]
    columns = 2 if len(domains) > 1 else 1
    rows = math.ceil(len(domains) / columns)
    figure = new_figure(4.2 * columns + 2.6, 3.2 * rows)
    from matplotlib.ticker import LogLocator, ScalarFormatter

    panels = figure.subplots(rows, columns, squeeze=False).flat
    for domain, axes in zip(domains, panels, strict=False):
        for number, name in enumerate(results.timed):
            found = [(size, speeds) for size in results.batch_sizes if (speeds := results.speed(domain, size, name))]
            medians = [statistics.median(speeds) for _, speeds in found]
            aside = 2 ** (_ASIDE * (number - (len(results.timed) - 1) / 2))
            axes.errorbar(
                [size * aside for size, _ in found],
                medians,
                yerr=[
                    [median - min(speeds) for median, (_, speeds) in zip(medians, found, strict=True)],
                    [max(speeds) - median for median, (_, speeds) in zip(medians, found, strict=True)],
                ],
                label=tables.titled(name) if domain == domains[0] else None,
                linestyle="--" if name.startswith("B/") else "-",
                **_style(number),
            )
        axes.set_title(domain)
        axes.set_xscale("log", base=2)
        axes.set_xlim(results.batch_sizes[0] / _MARGIN, results.batch_sizes[-1] * _MARGIN)
        axes.set_xticks(results.batch_sizes, [str(size) for size in results.batch_sizes])
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.minorticks_off()
        axes.set_xlabel("batch size (sentences)")
        axes.set_ylabel("tokens/s")
        _plain(axes)
    for axes in list(panels):
        axes.set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    return figure


def _averaged(results: Results) -> list[str]:
    return [name for name in results.timed if all(results.average_speed(size, name) for size in results.batch_sizes)]


def _ablation(results: Results, tables: Tables) -> Any:
    """Tokens per second averaged over domains, one row for each system, one bar for each batch size."""
    names, sizes = _averaged(results), results.batch_sizes
    figure = new_figure(7.2, 1.1 + 0.2 * len(names) * max(2, len(sizes)))
    axes = figure.subplots()
    height = _BAR / len(sizes)
    for number, size in enumerate(sizes):
        bars = axes.barh(
            [place - _BAR / 2 + (number + 0.5) * height for place in range(len(names))],
            [results.average_speed(size, name) for name in names],
            height=height * 0.92,
            label=f"batch {size}",
            color=_SHADES[number % len(_SHADES)],
            edgecolor="#222222",
            linewidth=0.6,
        )
        axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=7)
    axes.set_yticks(range(len(names)), [tables.titled(name) for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.set_xlabel("tokens/s, mean of the domains")
    _plain(axes, "x")
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def _searches(results: Results) -> Any:
    """BLEU against the share of the steps that search, averaged over domains: gates, chance, caches."""
    taus = {kind: sorted({*TAUS, *MORE_TAUS.get(kind, ())}) for kind in ("", "-misses", "-sentence")}
    lines = [
        *((f"A: {told}", [f"A/{kind}-{share}" for share in SHARES]) for told, kind in _AT_SHARES),
        *((f"B: {told}", [f"B/{kind}-{alpha}" for alpha in ALPHAS]) for told, kind in _AT_THRESHOLDS),
        *((f"A: {told}", [f"A/cache-{tau}{kind}" for tau in taus[kind]]) for told, kind in _CACHES),
        ("B: cache of a sentence, misses only", [f"B/cache-{tau}" for tau in TAUS]),
    ]
    figure = new_figure(7.2, 4.2)
    axes = figure.subplots()
    drawn = 0
    for number, (label, names) in enumerate(lines):
        # A cache's line ends where every step searches, but not a gate's, which has its own λ.
        drawn += _curve(axes, results, label, [*names, *([f"{label[0]}/knn"] if "cache" in label else [])], number)
    return _labelled(figure, axes, "steps that search (%)", "BLEU, mean of the domains") if drawn else None


def _curve(axes: Any, results: Results, label: str, names: Sequence[str], number: int) -> bool:
    """One line, from the fewest searches to the most; nothing unless it has at least two points."""
    points = sorted(
        (searched, bleu)
        for name in names
        if (searched := results.average(lambda each: each.searched(), name)) is not None
        and (bleu := results.average_bleu(name)) is not None
    )
    if len(points) > 1:
        axes.plot(*zip(*points, strict=True), label=label, linestyle="--" if label[0] == "B" else "-", **_style(number))
    return len(points) > 1


def _pruning(results: Results) -> Any:
    """BLEU against the share of the entries that are kept, one line for each domain and way of leaving some out."""
    figure = new_figure(7.2, 4.2)
    axes = figure.subplots()
    drawn = 0
    merged = [f"pruning-{k}" for k in PRUNING_KS]
    ways = (("A", "A: ", "-", merged), ("B", "B: ", "--", merged), ("B", "B, surest left out: ", ":", SUREST))
    for number, domain in enumerate(results.domains):
        for block, told, line, names in ways:
            found = [results.of(domain, f"{block}/{name}") for name in ("knn", *names)]
            there = [each for each in found if each is not None]
            if found[0] is not None and len(there) > 1:
                whole = found[0].record["entries"]
                axes.plot(
                    [100 * each.record["entries"] / whole for each in there],
                    [each.scores.bleu.value - found[0].scores.bleu.value for each in there],
                    label=f"{told}{domain}",
                    linestyle=line,
                    **_style(number),
                )
                drawn += 1
    return _labelled(figure, axes, "entries kept (%)", "BLEU against all entries") if drawn else None


def _labelled(figure: Any, axes: Any, across: str, up: str) -> Any:
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    _plain(axes)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    return figure


def _style(number: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "marker": _MARKS[number % len(_MARKS)],
        "markersize": 4.5,
        "linewidth": 1.2,
    }


def _plain(axes: Any, grid: str = "y") -> None:
    axes.grid(axis=grid, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
