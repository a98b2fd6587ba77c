"""Translations of an unfinished document, kept beside it, so that an interrupted run resumes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from knnmt.documents.provenance import Provenance
from knnmt.documents.review import Draft
from knnmt.errors import InputError
from knnmt.output_files import in_use, open_locked
from knnmt.protection.marked import Code, Marked, Role
from knnmt.records import as_record

ENDING = ".translating"


class Kept:
    """Drafts by the ids of their units, written as they come.

    place: the output document; None, or a path that is not a file, keeps nothing
    of: what the drafts depend on: the source document, the model, its settings. Drafts with other dependencies are
        ignored
    """

    def __init__(self, place: Path | None, of: str) -> None:
        self.drafts: dict[str, Draft] = {}
        is_file = place is not None and (place.is_file() or not place.exists())
        self._path = place.with_name(place.name + ENDING) if place is not None and is_file else None
        self._of = of
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        if self._path is None:
            return self
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.is_symlink():  # somebody else's: following it would overwrite its target
            raise InputError(f"{self._path}: expected the file of an earlier run, or nothing, found a link: remove it")
        head = json.dumps({"of": self._of}).encode() + b"\n"
        try:
            self._file = os.fdopen(open_locked(self._path), "r+b")
        except BlockingIOError as error:
            raise in_use(self._path.with_name(self._path.name.removesuffix(ENDING))) from error
        good = self._read(self._file.read(), head)
        self._file.seek(good)
        self._file.truncate()
        if not good:
            self._write(head)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._file is not None and self._path is not None:
            if sys.platform == "win32":  # which removes no open file; elsewhere the lock is held until the end
                self._file.close()
            if kind is None:
                self._path.unlink(missing_ok=True)
            self._file.close()

    def add(self, drafts: Mapping[str, Draft]) -> None:
        """Keep more of them."""
        self.drafts |= drafts
        lines = [
            json.dumps([name, _as_json(draft.target), asdict(draft.provenance)], ensure_ascii=False)
            for name, draft in drafts.items()
        ]
        self._write("".join(f"{line}\n" for line in lines).encode())

    def _write(self, data: bytes) -> None:
        if self._file is not None:
            self._file.write(data)
            self._file.flush()

    def _read(self, data: bytes, head: bytes) -> int:
        """Take what an earlier run left, if its dependencies are the same; return how many bytes are complete."""
        if not data.startswith(head):
            return 0
        good = len(head)
        for line in data[good:].splitlines(keepends=True):
            try:
                name, target, provenance = json.loads(line)
                draft = Draft(_from_json(target), as_record(Provenance, provenance))
            except (ValueError, TypeError, IndexError):
                break
            if not line.endswith(b"\n"):
                break
            self.drafts[name] = draft
            good += len(line)
        return good


def _as_json(target: Marked) -> list[str | list[object]]:
    return [part if isinstance(part, str) else [part.raw, part.role.value, part.pair, part.shown] for part in target]


def _from_json(parts: list[Any]) -> Marked:
    return tuple(part if isinstance(part, str) else Code(part[0], Role(part[1]), *part[2:]) for part in parts)
