"""The figure of a tuning: the loss by k and T, and the cost of the cache, of shorter keys and of a faster search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from knnmt.evaluation.plotting import new_figure, save_figure
from knnmt.fitting.cache_tuning import CacheTradeOff
from knnmt.fitting.store_tuning import DimensionTradeOff, SearchTradeOff
from knnmt.fitting.tuning import Tuned


def draw_tuning(
    stem: Path,
    tuned: Tuned | None,
    caches: Sequence[CacheTradeOff],
    dims: Sequence[DimensionTradeOff],
    searches: Sequence[SearchTradeOff],
    limit: float,
) -> list[Path]:
    """Write STEM.png and STEM.svg, with a panel for each given result; `limit` is drawn if a loss has a limit."""
    panels = [each for each in (tuned, caches, dims, searches) if each]
    figure = new_figure(4.6 * max(1, len(panels)), 3.6)
    axes = iter(figure.subplots(1, max(1, len(panels)), squeeze=False)[0])
    if tuned is not None:
        _draw_settings(next(axes), tuned)
    for offs, across, label in (
        (caches, [100 * each.saved for each in caches], "searches saved, % (at τ)"),
        (dims, [float(each.dim) for each in dims], "dimensions of the keys"),
        (searches, [each.milliseconds for each in searches], "milliseconds for 40 queries"),
    ):
        if offs:
            panel = next(axes)
            panel.plot(across, [each.loss for each in offs], marker=".")
            panel.axhline(limit, color="grey", linewidth=0.8, linestyle="--")
            panel.set(xlabel=label, ylabel="loss in nats per token")
            if offs is caches:
                for each, place in zip(caches, across, strict=True):
                    above = {"xytext": (0, 5), "textcoords": "offset points", "rotation": 60, "fontsize": 7}
                    panel.annotate(f"{each.threshold:.2g}", (place, each.loss), ha="center", **above)
    return save_figure(figure, stem)


def _draw_settings(panel: Any, tuned: Tuned) -> None:
    for k, curve in tuned.curves.items():
        panel.plot([temperature for temperature, _ in curve], [loss for _, loss in curve], label=f"k {k}")
    panel.set(xscale="log", xlabel="temperature", ylabel="nats per token at the best fixed λ")
    panel.legend(fontsize=7)
