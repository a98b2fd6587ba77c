"""Figures drawn with matplotlib, which is optional, and written as PNG and SVG."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from knnmt import write_output
from knnmt.errors import MissingDependencyError


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

    written = []
    # Without the salt, the names of the SVG's parts are random.
    for kind, options in (("png", {"dpi": 160}), ("svg", {"metadata": {"Date": None}})):
        content = BytesIO()
        with rc_context({"svg.hashsalt": "knnmt"}):
            figure.savefig(content, format=kind, **options)
        written.append(stem.with_name(f"{stem.name}.{kind}"))
        write_output(written[-1], content.getvalue())
    return written
