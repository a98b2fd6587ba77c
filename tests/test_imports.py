"""Imports go one way: a package uses what stands left of it in the flow of data, and the small shared leaves."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "knnmt"
LABORATORY = PACKAGE.with_name("knnmt_lab")
FLOW = [
    "protection",
    "corpus",
    "engine",
    "documents",
    "datastore",
    "segments",
    "index",
    "compression",
    "retrieval",
    "distributed",
    "calibration",
    "decoding",
    "translator",
    "huggingface",
    "evaluation",
    "adapting",
    "service",
    "cli",
]
LEAVES = {
    "errors",
    "config",
    "extensions",
    "native",
    "output_files",
    "progress",
    "records",
    "regular_files",
    "settings",
    "threads",
    "timing",
    "version",
}
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Every import of a file, type checking aside or not."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path) -> set[str]:
    """First part of every `knnmt` module that a file imports anywhere."""
    parts = set()
    for node in imports(path):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "knnmt" else [module]
        else:
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


def modules_imported(path: Path) -> set[str]:
    """Every `knnmt` module that a file imports."""
    names = set()
    for node in imports(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.startswith(("knnmt.", "knnmt_lab."))}


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = PACKAGE.parent.rglob("*.py")
    paths = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in files}
    left = {name: modules_imported(path) & paths.keys() for name, path in paths.items() if path.stem != "__init__"}
    left = {name: uses & left.keys() for name, uses in left.items()}
    while free := {name for name, uses in left.items() if not uses}:
        left = {name: uses - free for name, uses in left.items() if name not in free}
    assert not left, f"in a circle, or above one: {sorted(left)}"


def test_the_laboratory_uses_the_package_and_not_the_other_way_round() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert not [path for path in files if "knnmt_lab" in path.read_text(encoding="utf-8")]
    assert any(imported(path) for path in LABORATORY.rglob("*.py"))


def test_no_file_is_a_drawer() -> None:
    assert not [path for place in (PACKAGE, LABORATORY) for path in place.rglob("*") if path.stem in DRAWERS]
