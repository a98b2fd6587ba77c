"""Marks a store that can be used but is not finished: `adapt` has built it, and tunes it now or when it is run again.

The mark is the digest of the memories and options of that run, in a section of the store's settings.
"""

from __future__ import annotations

from pathlib import Path

from knnmt.datastore.building import require_free
from knnmt.datastore.manifest import MANIFEST
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.errors import DatastoreExistsError, quoted

_SECTION = "adapting"


def mark_unfinished(store: Path, digest: str) -> None:
    """Mark a store that is built."""
    write_settings(store, **{_SECTION: digest})


def mark_finished(store: Path) -> None:
    """Remove the mark."""
    write_settings(store, **{_SECTION: None})


def is_unfinished(store: Path, digest: str | None = None) -> bool:
    """Whether a path is a store with a mark; with a digest, whether it has this one."""
    found = read_settings(store).get(_SECTION) if (store / MANIFEST).is_file() else None
    return found is not None if digest is None else found == digest


def require_free_or_unfinished(store: Path, digest: str | None = None) -> None:
    """Raise an error if something exists where a new store is to be, unless the same run of `adapt` left it."""
    if is_unfinished(store, digest):
        return
    if is_unfinished(store):
        raise DatastoreExistsError(
            f"{store}: already exists, and `knnmt adapt` has not finished it. Rerun that command with the memories and "
            f"options that it had, or remove the store: rm -r {quoted(store)}"
        )
    require_free(store)
