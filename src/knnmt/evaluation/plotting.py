"""Figures drawn with matplotlib, which is optional, and written as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from knnmt.errors import MissingDependencyError
from knnmt.output_files import replacing


def new_figure(width: float = 6.4, height: float = 4.0) -> Any:
    """A figure without a window or a global state; `figure.subplots()` gives its axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("matplotlib", "drawing", "plots") from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, stem: Path) -> list[Path]:
    """Write STEM.png and STEM.svg, the same bytes for the same figure."""
    from matplotlib import rc_context

    written = [stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")]
    with replacing(written[0]) as file:
        figure.savefig(file, format="png", dpi=160)
    # Without the setting, the names of parts are random.
    with replacing(written[1]) as file, rc_context({"svg.hashsalt": "knnmt"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return written
