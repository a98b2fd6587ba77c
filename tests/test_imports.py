"""Imports go one way: a package uses what stands left of it in the flow of data, and the small shared leaves."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "knnmt"
FLOW = [
    "corpus",
    "engine",
    "datastore",
    "index",
    "compression",
    "retrieval",
    "fitting",
    "decoding",
    "translator",
    "huggingface",
    "evaluation",
    "reproduction",
    "serve",
    "cli",
]
LEAVES = {"errors", "config", "native", "records", "regular_files", "threads", "timing", "version"}
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


def imported(path: Path) -> set[str]:
    """First part of every `knnmt` module that a file imports anywhere, type checking aside or not."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "knnmt" else [module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        parts |= {name.split(".")[1] for name in names if name.startswith("knnmt.")}
    return parts


def test_modules_import_only_from_their_left() -> None:
    seen = set()
    for path in PACKAGE.rglob("*.py"):
        home = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if home in {"__init__", "__main__"}:
            continue
        uses = imported(path) - {home}
        if home in LEAVES:
            assert uses <= LEAVES, f"{path} is a leaf and imports {uses - LEAVES}"
        else:
            left = set(FLOW[: FLOW.index(home)])
            assert uses <= left | LEAVES, f"{path} imports {uses - left - LEAVES}, which stands to its right"
            seen.add(home)
    assert {"corpus", "engine", "decoding", "translator", "cli"} <= seen


def test_no_file_is_a_drawer() -> None:
    assert not [path for path in PACKAGE.rglob("*") if path.stem in DRAWERS]
