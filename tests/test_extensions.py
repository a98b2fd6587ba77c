"""Code of one's own is found by the name that somebody typed, and what is wrong with a name is said."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from knnmt import extensions
from knnmt.errors import SettingError
from knnmt.extensions import COMBINERS, named, names_code

MODULE = "own_code_of_a_test"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    (tmp_path / f"{MODULE}.py").write_text("class Outer:\n    inner = 5\n", encoding="utf-8")
    return tmp_path


def test_an_import_path_names_an_attribute_of_a_module(directory: Path) -> None:
    path = list(sys.path)
    assert named(f"{MODULE}:Outer", COMBINERS, "combiner").__name__ == "Outer"
    assert named(f"{MODULE}:Outer.inner", COMBINERS, "combiner") == 5
    assert named("pathlib:Path", COMBINERS, "combiner") is Path
    assert sys.path == path
    (directory / "json.py").write_text("raise SystemError", encoding="utf-8")
    assert named("json:loads", COMBINERS, "combiner")("1") == 1  # what is installed comes first


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mine", "there is no combiner 'mine': expected package.module:Name, or a registered name"),
        ("no_such_module_here:Name", "there is no module 'no_such_module_here', neither installed nor in"),
        (f"{MODULE}:Missing", "has no attribute 'Missing'"),
        ("broken_module_of_a_test:Name", "cannot be loaded: ZeroDivisionError"),
        ("a/b:Name", "expected package.module:Name"),
        (":Name", "expected package.module:Name"),
        ("module:", "expected package.module:Name"),
    ],
)
def test_what_cannot_be_found_is_refused_in_words(directory: Path, text: str, problem: str) -> None:
    (directory / "broken_module_of_a_test.py").write_text("1 / 0", encoding="utf-8")
    with pytest.raises(SettingError, match=problem):
        named(text, COMBINERS, "combiner")


def test_installed_packages_register_names(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("own", f"{MODULE}:Outer", COMBINERS),
        EntryPoint("gone", "no_such_module_here:Name", COMBINERS),
    ]
    monkeypatch.setattr(extensions, "entry_points", lambda group: [each for each in points if each.group == group])
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert named("own", COMBINERS, "combiner").inner == 5
    with pytest.raises(SettingError, match="the combiner 'gone', no_such_module_here:Name, cannot be loaded"):
        named("gone", COMBINERS, "combiner")
    with pytest.raises(SettingError, match="installed packages register gone, own"):
        named("other", COMBINERS, "combiner")


def test_numbers_and_paths_are_no_code() -> None:
    assert names_code("package.module:Name.part")
    for text in ("0.5", "C:/stores", "C:\\stores", "a b:c", "20%"):
        assert not names_code(text)
