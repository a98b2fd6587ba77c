"""An index beside its store: built, saved, brought up to date, and recognised when it is of another state.

STORE/indexes/
  index.json                            what the index is, of which segments; names the file and its SHA-256
  <kind>-g<generation>-<digest>.faiss   immutable, named by what is in it; none for exact search
  lock                                  held by the one process that writes here; the store may change meanwhile
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import INDEXES, StoredFile, checksum
from knnmt.datastore.publication import publish_file, storage_errors
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError, DatastoreVersionError, SettingError
from knnmt.index.entries import Entries, shared_beginning
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.kinds import EXACT, SearchSettings, kind_named
from knnmt.index.progress import Progress, unheard

FORMAT = "knnmt index"
VERSION = 1
MISSING = "missing"  # in the fidelity of exact search that nobody chose: the package that anything else needs
_RECORD = "index.json"
_SCRATCH = "written.faiss"
_FELT = 10_000  # entries newer than an index, from which exact search of them takes its time
_GROWTH = 0.5  # of the entries it was trained on, how many more it takes before it is better trained anew


@dataclass(frozen=True, slots=True)
class SavedIndex:
    """The record of an index.

    covers: SHA-256 of the segments it holds, in order
    entries: how many entries those have; trained_entries: how many there were when it was trained
    generation: the store's when it was written
    fidelity: what was measured of it, for whoever chooses among indexes
    """

    kind: str
    settings: SearchSettings
    generation: int
    covers: tuple[str, ...] = ()
    entries: int = 0
    trained_entries: int = 0
    seed: int = 0
    stored: StoredFile | None = None
    fidelity: dict[str, Any] = field(default_factory=dict)

    def fits(self, segments: Sequence[str]) -> bool:
        """Whether a store of these segments begins with those covered, so that ids are the same; else it is stale."""
        return shared_beginning(self.covers, segments) == len(self.covers)


def read_saved(store: Datastore) -> SavedIndex | None:
    """The record of a store's index, or None where there is none."""
    path = store.path / INDEXES / _RECORD
    advice = f"`knnmt index {store.path}` builds it again."
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DatastoreDamagedError(f"{path}: cannot be read ({error}). {advice}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DatastoreDamagedError(f"{path}: expected the record of an index, found something else. {advice}")
    if content.get("version") != VERSION:
        raise DatastoreVersionError(
            f"{path}: written in version {content.get('version')} of the format; this knnmt reads version {VERSION}. "
            f"Use the knnmt that fits it, or: {advice}"
        )
    if content.pop("checksum", None) != checksum(content):
        raise DatastoreDamagedError(
            f"{path}: its checksum does not fit its content: it was altered by something other than knnmt. {advice}"
        )
    del content["format"], content["version"]
    try:
        settings, covers = SearchSettings(**content.pop("settings")), tuple(content.pop("covers"))
        stored = content.pop("stored")
        return SavedIndex(**content, settings=settings, covers=covers, stored=stored and StoredFile(**stored))
    except (TypeError, KeyError) as error:
        raise DatastoreDamagedError(f"{path}: a field is missing or unknown ({error}). {advice}") from error


def check_saved(store: Datastore) -> list[StoredFile]:
    """Read every byte of a store's index against its record; the file, where there is one."""
    saved = read_saved(store)
    files = [] if saved is None or saved.stored is None else [saved.stored]
    for stored in files:
        _require_unaltered(store, stored)
    return files


def _require_unaltered(store: Datastore, stored: StoredFile) -> None:
    path = store.path / INDEXES / stored.file
    advice = f"`knnmt index {store.path}` builds it again."
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DatastoreDamagedError(f"{path}: cannot be read: {error.strerror or error}. {advice}") from error
    if found != stored.sha256:
        raise DatastoreDamagedError(
            f"{path}: expected the SHA-256 {stored.sha256[:12]}, found {found[:12]}: it was altered. {advice}"
        )


def open_saved(store: Datastore, saved: SavedIndex, entries: Entries) -> FaissIndex:
    """The FAISS index of a record that fits the entries; every byte of its file is checked."""
    if saved.stored is None:
        raise SettingError(f"{store.path}: its index is {saved.kind}, which has no file to open")
    _require_unaltered(store, saved.stored)
    return FaissIndex.read(store.path / INDEXES / saved.stored.file, entries, saved.settings)


def build_index(
    store: Datastore, kind: str, settings: SearchSettings | None = None, seed: int = 0, progress: Progress = unheard
) -> SavedIndex:
    """Build an index of the store's newest generation, of a kind in `KINDS` or "exact", and save it beside it."""
    with _writing(store) as directory:
        store.refresh()
        return _build(store, directory, kind, settings, seed, progress)


def save_index(store: Datastore, index: FaissIndex, kind: str, fidelity: dict[str, Any], seed: int = 0) -> SavedIndex:
    """Save an index that was built already, of this store's entries, with its settings and what was measured of it."""
    with _writing(store) as directory:
        entries = index.entries
        saved = SavedIndex(
            kind,
            index.settings,
            entries.generation,
            trained_entries=entries.entries,
            seed=seed,
            fidelity=json.loads(json.dumps(fidelity)),  # as it will be read: keys are text
        )
        return _save(directory, index, saved)


def lags(store: Datastore) -> bool:
    """Whether a store's index is of another state of it, or leaves so many entries to exact search that it is felt."""
    saved = read_saved(store)
    if saved is None or saved.kind == EXACT:
        return False
    names = [segment.record.stored.sha256 for segment in store.segments]
    return not saved.fits(names) or store.entries - saved.entries > _FELT


def update_index(store: Datastore, progress: Progress = unheard) -> SavedIndex | None:
    """Bring a store's index up to the newest generation: by adding to it, or where that is too much, built anew.

    None where there is no index.
    """
    if read_saved(store) is None:
        return None
    with _writing(store) as directory:
        store.refresh()
        saved = read_saved(store)
        if saved is None or saved.kind == EXACT:
            return saved
        entries = Entries(store)
        names = entries.segment_names()
        if not saved.fits(names) or entries.entries > (1 + _GROWTH) * saved.trained_entries:
            return _build(store, directory, saved.kind, saved.settings, saved.seed, progress)
        if len(saved.covers) == len(names):
            return saved
        index = open_saved(store, saved, entries)
        index.add(entries, progress)
        return _save(directory, index, replace(saved, generation=entries.generation))


def revise_index(
    store: Datastore, settings: SearchSettings | None = None, fidelity: dict[str, Any] | None = None
) -> SavedIndex | None:
    """Change how a store's index is searched, or what is known of its fidelity. None where there is no index."""
    if read_saved(store) is None:
        return None
    with _writing(store) as directory:
        saved = read_saved(store)
        if saved is not None:
            known = saved.fidelity if fidelity is None else fidelity
            saved = replace(saved, settings=settings or saved.settings, fidelity=known)
            _publish(directory, saved)
        return saved


def _build(
    store: Datastore, directory: Path, kind: str, settings: SearchSettings | None, seed: int, progress: Progress
) -> SavedIndex:
    entries = Entries(store)
    if kind == EXACT:
        plain = settings or SearchSettings(probes=1, candidates=0)
        saved = SavedIndex(EXACT, plain, entries.generation, entries=entries.entries)
        _publish(directory, saved)
        return saved
    chosen = kind_named(kind)
    saved = SavedIndex(
        kind, settings or chosen.settings, entries.generation, trained_entries=entries.entries, seed=seed
    )
    return _save(directory, FaissIndex.train_and_add(entries, chosen, seed, progress), saved)


def _save(directory: Path, index: FaissIndex, saved: SavedIndex) -> SavedIndex:
    """Write the index, then publish its record with all that the file decides."""
    scratch = directory / _SCRATCH
    sha256 = index.write(scratch)
    stored = StoredFile(f"{saved.kind}-g{saved.generation}-{sha256[:12]}.faiss", scratch.stat().st_size, sha256)
    with storage_errors(scratch):
        scratch.replace(directory / stored.file)
    covers = tuple(index.entries.segment_names())
    saved = replace(saved, covers=covers, entries=index.covered, stored=stored)
    _publish(directory, saved)
    return saved


def _publish(directory: Path, saved: SavedIndex) -> None:
    body = {"format": FORMAT, "version": VERSION, **asdict(saved)}
    text = json.dumps({**body, "checksum": checksum(body)}, indent=1).encode()
    publish_file(directory / _RECORD, lambda file: file.write(text))


@contextmanager
def _writing(store: Datastore) -> Iterator[Path]:
    """Hold the lock of the indexes' directory; before and after, files that no record names are cleared away."""
    directory = store.path / INDEXES
    with storage_errors(directory):
        directory.mkdir(exist_ok=True)
    with writer_lock(directory):
        _clear_leftovers(store, directory)
        try:
            yield directory
        finally:
            _clear_leftovers(store, directory)


def _clear_leftovers(store: Datastore, directory: Path) -> None:
    try:
        saved = read_saved(store)
    except (DatastoreDamagedError, DatastoreVersionError):
        return  # whoever builds publishes a sound record; then it is known what is left over
    named = {"lock", _RECORD, saved.stored.file if saved and saved.stored else ""}
    with storage_errors(directory):
        for path in directory.iterdir():
            if path.name not in named:
                path.unlink()
