"""`Domains`: names and the stores behind them.

Some are configured and stay as long as the service runs. Others were made by requests and are in the service's data
directory, at `DATA/domains/NAME`. A name is checked before it becomes part of a path.
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
from typing import Self

from knnmt.datastore.manifest import MANIFEST, read_manifest
from knnmt.datastore.publication import storage_errors, sync_directory
from knnmt.engine.language_codes import same_language
from knnmt.errors import KnnmtError, NotADatastoreError, SettingError
from knnmt.service.config import BASE, require_name
from knnmt.service.problems import Problem

Tags = tuple[str | None, str | None]  # of source and target
_DOMAINS = "domains"
_DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain to translate with.

    store: None for the model alone
    languages: of the store, source and target
    made: whether a request made it, so that it can be deleted
    """

    name: str
    store: Path | None
    languages: tuple[str, str] | None = None
    made: bool = False

    @classmethod
    def with_store(cls, name: str, store: Path, made: bool) -> Self:
        """A domain with a store."""
        manifest = read_manifest(store)
        return cls(name, store, (manifest.source_language, manifest.target_language), made)

    def required_store(self) -> Path:
        """Its store; raise a problem if it has none."""
        if self.store is None:
            raise Problem(409, "no_memory", f"the domain {self.name!r} is the model alone: it holds no segments")
        return self.store


class Domains:
    """The domains of a service. Threads may share it."""

    def __init__(self, configured: Mapping[str, Path], default: str, data: Path | None) -> None:
        self._default, self._changing = default, Lock()
        self._known = {BASE: Domain(BASE, None)}
        self._known |= {name: Domain.with_store(name, path.resolve(), made=False) for name, path in configured.items()}
        self._place = None if data is None else data.resolve() / _DOMAINS
        if self._place is not None:
            with storage_errors(self._place):
                self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.rmtree(self._place.with_name(_DELETED), ignore_errors=True)
            for found in sorted(self._place.iterdir()):
                if (found / MANIFEST).is_file() and _is_name(found.name) and found.name not in self._known:
                    self._known[found.name] = Domain.with_store(found.name, found, made=True)
        if default not in self._known:
            raise SettingError(f"the default domain {default!r} is not one of {', '.join(self._known)}")

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
        """A domain by its name; the default one for None."""
        found = self._known.get(self._default if name is None else name)
        if found is None:
            raise Problem(404, "unknown_domain", f"there is no domain {str(name)[:80]!r}; GET /v1/domains lists them")
        return found

    def named_in(self, message: str) -> str:
        """A message for clients: it names domains in place of the paths of their stores."""
        for each in self:
            if each.store is not None:
                message = message.replace(str(each.store), each.name)
        return message

    def deleted_in(self, error: KnnmtError) -> Problem | None:
        """The problem to report if an error came from a domain that was deleted while a request used it."""
        missed = isinstance(error.__cause__, FileNotFoundError)
        if self._place is None or not (missed or isinstance(error, NotADatastoreError)):
            return None
        _, place, rest = str(error).partition(f"{self._place}{os.sep}")
        name = re.split(r"[/\\:]", rest)[0]
        if not place or not _is_name(name):
            return None
        if self.has(name):
            message = f"the domain {name!r} was deleted and made again during the request: send the request again"
            return Problem(503, "deleted", message, retry_after=1)
        return Problem(404, "unknown_domain", f"the domain {name!r} was deleted during the request")

    def place(self, name: str) -> Path:
        """The path for the store of a domain that a request makes."""
        if self._place is None:
            raise Problem(
                409, "no_data_directory", "the service was started without a data directory, so it cannot make domains"
            )
        return self._place / require_name(name)

    def place_of_new(self, name: str) -> Path:
        """The path for the store of a new domain."""
        place = self.place(name)
        if name in self._known:
            raise Problem(409, "exists", f"the domain {name!r} already exists")
        return place

    def take_in(self, name: str) -> Domain:
        """Serve a store that was made at its place."""
        with self._changing:
            made = Domain.with_store(name, self.place_of_new(name), made=True)
            self._known[name] = made
            return made

    def delete(self, name: str) -> Domain:
        """Delete a domain that was made by a request. Its store is first moved away from its place, in one step."""
        with self._changing:
            found = self.of(name)
            if not found.made or found.store is None:
                raise Problem(
                    409,
                    "configured",
                    (f"the domain {name!r} was given when the service was started, so it cannot be deleted"),
                )
            gone = found.store.parent.with_name(_DELETED) / f"{name}-{secrets.token_hex(8)}"
            with storage_errors(found.store):
                gone.parent.mkdir(mode=0o700, exist_ok=True)
                found.store.rename(gone)
                sync_directory(found.store.parent)
            del self._known[name]
        shutil.rmtree(gone, ignore_errors=True)
        return found


def fits(requested: Tags, own: Tags) -> bool:
    """Whether two languages are the requested ones, or may be because they are unknown; None is any language."""
    return all(_fits(*each) for each in zip(requested, own, strict=True))


def _fits(requested: str | None, own: str | None) -> bool:
    """Whether a language is the requested one, or may be because it is unknown."""
    is_known = own is not None and same_language(own, own) is not None
    return requested is None or not is_known or same_language(requested, own or "") is True


def _is_name(name: str) -> bool:
    try:
        return bool(require_name(name))
    except KnnmtError:
        return False
