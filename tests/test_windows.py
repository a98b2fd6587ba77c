"""What Windows lacks or refuses is not needed: in a process that pretends to be there, modules load and stores live."""

from __future__ import annotations

import sys
from pathlib import Path

from support import TESTS, warm

SOURCE = TESTS.parent / "src"
SCRIPT = """
import importlib, sys
sys.path[:0] = {paths}
for name in [name for name in sys.modules if name.partition(".")[0] == "knnmt"]:
    del sys.modules[name]  # what was imported before is not what Windows would import
import filelock  # on Windows it uses what only Windows has
from support import life_on_windows
for name in {names}:
    importlib.import_module(name)
life_on_windows.live()
"""


def test_every_module_is_imported_and_stores_are_built_changed_and_read(tiny_checkpoint: Path, tmp_path: Path) -> None:
    files = [path for path in SOURCE.rglob("*.py") if path.name != "__main__.py"]
    names = [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in files]
    assert "knnmt.datastore.lock" in names
    script = SCRIPT.format(paths=[str(TESTS), str(SOURCE)], names=names)
    command = [sys.executable, "-c", script, str(tiny_checkpoint), str(tmp_path)]
    done = warm.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
