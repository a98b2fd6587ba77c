from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

import knnmt
from support import ROOT


def test_what_is_public_is_what_can_be_imported() -> None:
    assert sorted(knnmt.__all__) == dir(knnmt)
    for name in knnmt.__all__:
        assert getattr(knnmt, name) is not None
    with pytest.raises(AttributeError, match=r"no attribute 'Tranlator'; it has .*Translator"):
        knnmt.Tranlator  # type: ignore[attr-defined]  # noqa: B018


def test_a_type_checker_sees_the_same_names() -> None:
    code = "from knnmt import *\nprint(sorted(set(globals()) - {'__builtins__', '__name__', '__doc__'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    stub = (ROOT / "src/knnmt/__init__.pyi").read_text(encoding="utf-8")
    exported = [mine for name, mine in re.findall(r"\b(\w+) as (\w+)\b", stub) if name == mine]
    assert set(ast.literal_eval(done.stdout)) >= set(exported)
    assert sorted(exported) == dir(knnmt) == sorted(set(exported))


def test_pages_and_examples_import_nothing_deeper() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.py")]
    imported = re.compile(r"^ *(?:from|import) (knnmt[\w.]*)", re.MULTILINE)
    modules = [module for page in pages for module in imported.findall(page.read_text(encoding="utf-8"))]
    assert len(modules) > 10
    assert set(modules) == {"knnmt", "knnmt.errors"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, knnmt; print({'torch', 'numpy', 'typer', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
