"""A store to copy, with everything that a copy must have, and its files."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from knnmt.datastore.settings import write_settings
from knnmt.datastore.store import Datastore, matching
from knnmt.engine.transformer import TransformerEngine
from support.datastore_pairs import some_pairs


def store_with_index(place: Path, engine: TransformerEngine, name: str, content: bytes) -> Path:
    """A store with a removal, settings, and an index file of this name and content."""
    made = Datastore.build(place, some_pairs(30), engine)
    made.remove(matching(source_text=some_pairs(30)[3].source))
    write_settings(made.path, k=1)
    (made.path / "indexes").mkdir(exist_ok=True)
    stored = {"file": name, "bytes": len(content), "sha256": sha256(content).hexdigest()}
    (made.path / "indexes" / name).write_bytes(content)
    (made.path / "indexes" / "index.json").write_text(json.dumps({"stored": stored}), encoding="utf-8")
    return made.path


def files_of(place: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and path.name != "lock"
    }
