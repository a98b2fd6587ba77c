"""What Windows lacks or refuses is not needed: in a process that pretends to be there, modules load and stores live."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

IMPORTS = """
import importlib
import sys
import pretended_windows
pretended_windows.pretend()
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def run(script: str, *arguments: Path | str) -> None:
    tests = Path(__file__).parent
    paths = f"import sys; sys.path[:0] = {[str(tests), str(tests / 'datastore'), str(tests.parent / 'src')]!r}\n"
    command = [sys.executable, "-c", paths + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr


def test_every_module_can_be_imported_on_windows() -> None:
    source = Path(__file__).parent.parent / "src"
    names = [".".join(path.relative_to(source).with_suffix("").parts) for path in source.rglob("*.py")]
    assert "knnmt.datastore.lock" in names
    run(IMPORTS, *(name for name in names if not name.endswith("__main__")))


def test_stores_are_built_changed_and_read_on_windows(tiny_checkpoint: Path, tmp_path: Path) -> None:
    run("import life_on_windows; life_on_windows.live()", tiny_checkpoint, tmp_path)
