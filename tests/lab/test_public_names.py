"""The laboratory uses knnmt as any researcher does: by the names that `knnmt` and `knnmt.errors` export."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import knnmt
from support import ROOT

# What every user of knnmt knows from its guides.
COMMON = {"__version__", "KnnmtError", "KnnmtWarning", "ReadingConfig", "ReadingReport", "SegmentPair", "Translation"}
LABORATORY = ROOT / "src" / "knnmt_lab"


def imported_from_knnmt(path: Path) -> set[str]:
    """Every name that a file imports from knnmt, as "module.name"."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "knnmt":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "knnmt"}
    return found


def is_public(name: str) -> bool:
    module, _, last = name.rpartition(".")
    if module == "knnmt.errors":
        return isinstance(getattr(knnmt.errors, last), type)
    return module == "knnmt" and last in knnmt.__all__


def test_the_laboratory_imports_only_public_names() -> None:
    names = set().union(*map(imported_from_knnmt, LABORATORY.rglob("*.py")))
    assert "knnmt.OpenStore" in names
    assert {name for name in names if not is_public(name)} == set()


def test_the_table_for_experiments_has_them_all() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = page[page.index("### For experiments") : page.index("## Rules that always hold")]
    described = {word for code in re.findall(r"`([^`]+)`", table) for word in re.findall(r"\w+", code)}
    names = set().union(*map(imported_from_knnmt, LABORATORY.rglob("*.py")))
    used = {name.rpartition(".")[2] for name in names if name.startswith("knnmt.") and "errors" not in name}
    assert len(used) > 40
    assert used - described - COMMON == set()


def test_a_private_name_would_be_found(tmp_path: Path) -> None:
    file = tmp_path / "new.py"
    file.write_text(
        "from knnmt.errors import InputError, quoted\nimport knnmt.config\nfrom knnmt import adapt, timing\n"
    )
    names = imported_from_knnmt(file)
    assert {name for name in names if not is_public(name)} == {"knnmt.errors.quoted", "knnmt.config", "knnmt.timing"}


def test_commands_load_nothing_heavy_before_they_run() -> None:
    commands = "knnmt_lab.commands.bench, knnmt_lab.commands.reproduce, knnmt_lab.commands.train_combiner"
    code = f"import sys, {commands}; print({{'torch', 'numpy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
