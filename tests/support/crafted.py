"""Stores as somebody would make them who means harm: wrong content, and every checksum right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from knnmt.datastore.arrays import Array, arrays_in, write_arrays
from knnmt.datastore.manifest import checksum

Change = Callable[[Array], Array]


def alter_record(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a record, with a checksum that fits."""
    content = json.loads(path.read_text())
    del content["checksum"]
    change(content)
    path.write_text(json.dumps({**content, "checksum": checksum(content)}))


def segment_file(store: Path) -> Path:
    return next(path for path in sorted((store / "segments").iterdir()) if "removed" not in path.name)


def read_arrays(path: Path) -> dict[str, Array]:
    return {name: np.array(array) for name, array in arrays_in(path.read_bytes(), path).items()}


def alter_arrays(store: Path, **changes: Change | None) -> None:
    """Change arrays of the first segment; None removes one."""
    path = segment_file(store)
    arrays = read_arrays(path)
    for name, change in changes.items():
        if change is None:
            del arrays[name]
        else:
            arrays[name] = change(arrays[name])
    write_arrays(path, arrays)
    acknowledge(store, path)


def acknowledge(store: Path, path: Path) -> None:
    """Let the manifest say of a file of segments what is there now."""

    def change(content: dict[str, Any]) -> None:
        removed = [each["removed"] for each in content["segments"] if each["removed"]]
        for owner in [*content["segments"], *removed, {"stored": content["projection"]}]:
            if owner["stored"] and owner["stored"]["file"] == path.name:
                owner["stored"] |= stored(path)

    alter_record(store / "manifest.json", change)


def stored(path: Path) -> dict[str, Any]:
    """What a record says of a file."""
    content = path.read_bytes()
    return {"file": path.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
