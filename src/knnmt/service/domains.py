"""`Domains`: names and the stores behind them.

Some are configured, and stay as long as the service runs; others were made by requests and lie in its data directory:
`DATA/domains/NAME`. A name is checked before it becomes part of a path.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from knnmt.datastore.manifest import MANIFEST, read_manifest
from knnmt.datastore.publication import storage_errors, sync_directory
from knnmt.errors import KnnmtError, NotADatastoreError, SettingError
from knnmt.service.config import BASE, require_name
from knnmt.service.problems import Problem

_DOMAINS = "domains"
_DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Domain:
    """A name that can be translated with. store: None for the model alone; made: by a request, and can be deleted"""

    name: str
    store: Path | None
    made: bool = False

    def required_store(self) -> Path:
        """Its store, or a problem that says that it has none."""
        if self.store is None:
            raise Problem(409, "no_memory", f"the domain {self.name!r} is the model alone: it holds no segments")
        return self.store


class Domains:
    """The domains of a service. Threads may share it."""

    def __init__(self, configured: Mapping[str, Path], default: str, data: Path | None) -> None:
        self._default, self._changing = default, Lock()
        self._known = {BASE: Domain(BASE, None)}
        self._known |= {name: Domain(name, path.resolve()) for name, path in configured.items()}
        self._place = None if data is None else data.resolve() / _DOMAINS
        if self._place is not None:
            with storage_errors(self._place):
                self._place.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(self._place.with_name(_DELETED), ignore_errors=True)
            for found in sorted(self._place.iterdir()):
                if (found / MANIFEST).is_file() and _is_name(found.name) and found.name not in self._known:
                    self._known[found.name] = Domain(found.name, found, made=True)
        if default not in self._known:
            raise SettingError(f"the default domain {default!r} is none of {', '.join(self._known)}")

    def __iter__(self) -> Iterator[Domain]:
        return iter(list(self._known.values()))

    @property
    def default(self) -> str:
        """The domain of requests that name none."""
        return self._default

    def has(self, name: str) -> bool:
        """Whether there is a domain of this name."""
        return name in self._known

    def of(self, name: str | None) -> Domain:
        """A domain by its name, or the default one."""
        found = self._known.get(self._default if name is None else name)
        if found is None:
            raise Problem(404, "unknown_domain", f"there is no domain {str(name)[:80]!r}; GET /v1/domains lists them")
        return found

    def named_in(self, message: str) -> str:
        """A message for clients: stores are called by their domains, for their places are nobody's business."""
        for each in self:
            if each.store is not None:
                message = message.replace(str(each.store), each.name)
        return message

    def deleted_in(self, error: KnnmtError) -> Problem | None:
        """What to answer where an error came from a domain that was deleted while a request used it."""
        missed = isinstance(error.__cause__, FileNotFoundError)
        if self._place is None or not (missed or isinstance(error, NotADatastoreError)):
            return None
        _, place, rest = str(error).partition(f"{self._place}{os.sep}")
        name = re.split(r"[/\\:]", rest)[0]
        if not place or not _is_name(name):
            return None
        if self.has(name):
            message = f"the domain {name!r} was deleted meanwhile, and made anew: ask again"
            return Problem(503, "deleted", message, retry_after=1)
        return Problem(404, "unknown_domain", f"the domain {name!r} was deleted meanwhile")

    def place_of_new(self, name: str) -> Path:
        """Where the store of a new domain goes."""
        if self._place is None:
            raise Problem(
                409, "no_data_directory", "the service was started without a data directory, and can make no domains"
            )
        if name in self._known:
            raise Problem(409, "exists", f"there is a domain {name!r} already")
        return self._place / require_name(name)

    def take_in(self, name: str) -> Domain:
        """Serve a store that was made at its place."""
        with self._changing:
            made = Domain(name, self.place_of_new(name), made=True)
            read_manifest(made.required_store())
            self._known[name] = made
            return made

    def move_in(self, name: str, made: Path) -> Domain:
        """Put a store that was made elsewhere in the data directory in its place, in one step, and serve it."""
        with self._changing:
            place = self.place_of_new(name)
            read_manifest(made)
            with storage_errors(place):
                made.rename(place)
                sync_directory(place.parent)
            self._known[name] = Domain(name, place, made=True)
            return self._known[name]

    def delete(self, name: str) -> Domain:
        """Forget a domain that a request made, and remove its store: first from its place, in one step."""
        with self._changing:
            found = self.of(name)
            if not found.made or found.store is None:
                raise Problem(
                    409, "configured", f"the domain {name!r} was named when the service was started, and stays"
                )
            gone = found.store.parent.with_name(_DELETED) / f"{name}-{secrets.token_hex(8)}"
            with storage_errors(found.store):
                gone.parent.mkdir(exist_ok=True)
                found.store.rename(gone)
                sync_directory(found.store.parent)
            del self._known[name]
        shutil.rmtree(gone, ignore_errors=True)
        return found


def _is_name(name: str) -> bool:
    try:
        return bool(require_name(name))
    except KnnmtError:
        return False
