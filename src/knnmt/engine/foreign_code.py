"""Refuses code that is part of a checkpoint: it is never run."""

from __future__ import annotations

import json
from pathlib import Path

from knnmt.errors import UnsupportedModelError
from knnmt.records import parse_json
from knnmt.regular_files import read_regular


def require_no_custom_search(directory: Path) -> None:
    """Refuse a checkpoint's own search code: some versions of `transformers` run it from a directory without asking."""
    path = directory / "custom_generate" / "generate.py"
    if path.exists():
        raise _refusal(directory, str(path.relative_to(directory)))


def explain_refusal(directory: Path, error: Exception) -> None:
    """Raise a clear error if a checkpoint failed to load and names code in its `auto_map`."""
    for name in ("config.json", "tokenizer_config.json"):
        try:
            named = parse_json(read_regular(directory / name, links=True))["auto_map"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        raise _refusal(directory, f"{name} names {json.dumps(named)}") from error


def _refusal(directory: Path, found: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{directory}: the checkpoint contains code ({found}), and knnmt never runs the code of a checkpoint. Use "
        f"a model that the installed transformers supports without it."
    )
