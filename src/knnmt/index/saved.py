"""Builds, saves and updates an index beside its store, and recognises an index of another state of the store.

STORE/indexes/
  index.json                            describes the index and its segments; names the file and its SHA-256
  <kind>-g<generation>-<digest>.faiss   immutable, named by a digest of its contents; none for exact search
  lock                                  held by the one process that writes here; the store may change meanwhile
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from knnmt.config import check
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import INDEX_RECORD, INDEXES, StoredFile, checksum
from knnmt.datastore.publication import (
    SCRATCH,
    clear_files,
    publish_file,
    require_directory,
    storage_errors,
)
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreDamagedError, DatastoreVersionError, MissingDependencyError, SettingError, quoted
from knnmt.index.entries import Entries, shared_beginning
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.kinds import EXACT, KINDS, Kind, SearchSettings, could_be_a_kind, kind_named, register_kind
from knnmt.output_files import put_in_place
from knnmt.progress import Progress, ignore
from knnmt.records import as_record, parse_json, shown
from knnmt.regular_files import open_regular, read_regular

FORMAT = "knnmt index"
VERSION = 1
MISSING = "missing"  # in the fidelity, if exact search was the only choice: the package that any other kind needs
_SCRATCH = "written.faiss"
# Every file name that is written below `indexes/`, also while it is incomplete, except for the record and the lock.
_FILES = re.compile(
    rf"\A(?:[a-z0-9-]+-g\d+-[0-9a-f]{{12}}\.faiss|written\.faiss|\.(written\.faiss|index\.json){SCRATCH})"
)
_MAX_TURNS = 3  # attempts to save an index of a store that changes meanwhile; the last one may be of an earlier state
_MAX_GROWTH = 0.5  # an index that grows by more than this share of its training entries is trained anew


@dataclass(frozen=True, slots=True)
class SavedIndex:
    """The record of an index.

    covers: SHA-256 of the segments in the index, in order
    entries: number of their entries; trained_entries: number of entries when the index was trained
    generation: the store's generation when the index was written
    fidelity: measurements of the index, for the choice among indexes
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

    def __post_init__(self) -> None:
        sound = self.kind == EXACT or could_be_a_kind(self.kind)
        check(sound, f"there is no index kind {shown(self.kind)}")
        check(self.generation >= 1, f"generation must be at least 1, got {self.generation}")
        counts = (self.entries, self.trained_entries, self.seed)
        check(min(counts) >= 0, f"entries, trained_entries and seed cannot be negative, got {counts}")

    def fits(self, segments: Sequence[str]) -> bool:
        """Whether a store's segments begin with the covered ones, so that ids agree; if not, the index is stale."""
        return shared_beginning(self.covers, segments) == len(self.covers)


def read_saved(store: Datastore) -> SavedIndex | None:
    """The record of a store's index, or None if there is none."""
    path = store.path / INDEXES / INDEX_RECORD
    advice = f"`knnmt index {quoted(store.path)}` builds it again."
    require_directory(path.parent)
    try:
        content = parse_json(read_regular(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DatastoreDamagedError(f"{path}: cannot be read ({error}). {advice}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DatastoreDamagedError(f"{path}: expected the record of an index, found something else. {advice}")
    if content.get("version") != VERSION:
        raise DatastoreVersionError(
            f"{path}: written in version {shown(content.get('version'))} of the format; this knnmt reads version "
            f"{VERSION}. Use the knnmt that fits it, or: {advice}"
        )
    if content.pop("checksum", None) != checksum(content):
        raise DatastoreDamagedError(
            f"{path}: its checksum does not fit its content, because something other than knnmt altered it. {advice}"
        )
    del content["format"], content["version"]
    try:
        return as_record(SavedIndex, content)
    except ValueError as error:
        raise DatastoreDamagedError(f"{path}: {error}. {advice}") from error


def check_saved(store: Datastore) -> list[StoredFile]:
    """Check every byte of a store's index against its record, and its contents; return the file, if there is one."""
    saved = read_saved(store)
    if saved is None or saved.stored is None:
        return []
    _require_unaltered(store, saved.stored)
    entries = Entries(store)
    if saved.fits(entries.segment_names()):  # a stale index is not used
        with suppress(MissingDependencyError):
            open_saved(store, saved, entries)
    return [saved.stored]


def _require_unaltered(store: Datastore, stored: StoredFile) -> None:
    path = store.path / INDEXES / stored.file
    advice = f"`knnmt index {quoted(store.path)}` builds it again."
    try:
        with open_regular(path) as file:
            if (size := os.fstat(file.fileno()).st_size) != stored.bytes:
                raise DatastoreDamagedError(f"{path}: expected {stored.bytes:,} bytes, found {size:,}. {advice}")
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
    advice = f"`knnmt index {quoted(store.path)}` builds it again."
    if not saved.fits(entries.segment_names()) or saved.entries != entries.first_entry(len(saved.covers)):
        raise DatastoreDamagedError(f"{store.path}: its index is not of the entries that its record says. {advice}")
    # Of a custom kind, only the file is known here: nothing that a store names is ever imported.
    file, kind = store.path / INDEXES / saved.stored.file, KINDS.get(saved.kind)
    return FaissIndex.read(file, entries, kind, saved.settings, saved.entries)


def build_index(
    store: Datastore,
    kind: str | Kind,
    settings: SearchSettings | None = None,
    seed: int = 0,
    progress: Progress = ignore,
    fidelity: dict[str, Any] | None = None,
    device: torch.device | str = "cpu",
    trained: Datastore | None = None,
) -> SavedIndex:
    """Build an index of the store's newest generation, and save it beside the store.

    Args:
        store: the store to index.
        kind: the name of a kind in `knnmt index --help`, or a kind of your own.
        settings: of the search; by default the kind's.
        seed: of the training.
        progress: is called with the number of entries added, and the total.
        fidelity: measurements that exist already.
        device: where the centres are trained.
        trained: another store with an index of this kind, whose training is taken over. Its keys must be of the same
            form, as those of a store are from which this one was pruned.
    """
    if isinstance(kind, Kind):
        register_kind(kind)
        kind = kind.name
    if trained is not None:
        saved = read_saved(trained)
        check(
            saved is not None and saved.kind == kind and saved.stored is not None,
            f"{trained.path}: has no index of the kind {kind} to take the training from",
        )
        assert saved is not None  # noqa: S101 -- checked
        index = open_saved(trained, saved, Entries(trained))
        index.fill(Entries(store), progress)
        return save_index(store, index, kind, fidelity or {}, saved.seed)
    with _writing(store) as directory:
        store.refresh()
        return _build(store, directory, kind, settings, seed, progress, fidelity or {}, device)


def save_index(store: Datastore, index: FaissIndex, kind: str, fidelity: dict[str, Any], seed: int = 0) -> SavedIndex:
    """Save an existing index of this store's entries, with its settings and its measured fidelity."""
    with _writing(store) as directory:
        entries = index.entries
        saved = SavedIndex(
            kind,
            index.settings,
            entries.generation,
            trained_entries=entries.entries,
            seed=seed,
            fidelity=json.loads(json.dumps(fidelity)),  # as it will be read back: JSON keys are strings
        )
        return _save(store, directory, index, saved)


def lags(store: Datastore, noticeable_entries: int = 10_000) -> bool:
    """Whether a store's index is stale, or leaves so many entries to exact search that it takes noticeable time."""
    saved = read_saved(store)
    if saved is None or saved.kind == EXACT:
        return False
    names = [segment.record.stored.sha256 for segment in store.segments]
    return not saved.fits(names) or store.entries - saved.entries > noticeable_entries


def update_index(store: Datastore, progress: Progress = ignore) -> SavedIndex | None:
    """Bring a store's index up to the newest generation: add entries, or build it anew if there are too many.

    None if there is no index.
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
        grown = entries.entries > (1 + _MAX_GROWTH) * saved.trained_entries and saved.kind in KINDS
        if not saved.fits(names) or grown:
            if saved.kind not in KINDS:
                raise SettingError(
                    f"{store.path}: its index is of the kind {saved.kind!r}, which is not one of knnmt's own. Name "
                    f"your kind again: `knnmt index {store.path} --kind package.module:NAME`"
                )
            return _build(store, directory, saved.kind, saved.settings, saved.seed, progress, {})
        if len(saved.covers) == len(names):
            return saved
        index = open_saved(store, saved, entries)
        index.add(entries, progress)
        return _save(store, directory, index, saved)


def _build(
    store: Datastore,
    directory: Path,
    kind: str,
    settings: SearchSettings | None,
    seed: int,
    progress: Progress,
    fidelity: dict[str, Any],
    device: torch.device | str = "cpu",
) -> SavedIndex:
    entries = Entries(store)
    if kind == EXACT:
        plain = settings or SearchSettings(probes=1, candidates=0)
        saved = SavedIndex(EXACT, plain, entries.generation, entries=entries.entries, fidelity=fidelity)
        _publish(directory, saved)
        return saved
    chosen = kind_named(kind)
    saved = SavedIndex(
        kind,
        settings or chosen.settings,
        entries.generation,
        trained_entries=entries.entries,
        seed=seed,
        fidelity=fidelity,
    )
    return _save(store, directory, FaissIndex.train_and_add(entries, chosen, seed, progress, device=device), saved)


def _save(store: Datastore, directory: Path, index: FaissIndex, saved: SavedIndex) -> SavedIndex:
    """Write the index, then publish its record with all fields that depend on the file.

    Meanwhile, additions to the store may have joined segments of the index with others. The index then takes in the
    further entries of the joined segments. This is seldom needed twice, because segments that a record names are not
    joined.
    """
    for _ in range(_MAX_TURNS):
        now = Entries(Datastore.open(store.path))
        if _is_joined(index.entries, now):
            index.add(now)
        saved = _write(directory, index, saved)
        if not _is_joined(index.entries, Entries(Datastore.open(store.path))):
            break
    return saved


def _is_joined(entries: Entries, now: Entries) -> bool:
    """Whether a store still begins with these entries, but not with their segments."""
    names = entries.segment_names()
    return names != now.segment_names()[: len(names)] and now.entries_shared_with(entries) == entries.entries


def _write(directory: Path, index: FaissIndex, saved: SavedIndex) -> SavedIndex:
    _require_searchable(index, saved.kind)
    saved = replace(saved, generation=index.entries.generation)
    scratch = directory / _SCRATCH
    sha256 = index.write(scratch)
    stored = StoredFile(f"{saved.kind}-g{saved.generation}-{sha256[:12]}.faiss", scratch.stat().st_size, sha256)
    with storage_errors(scratch):
        put_in_place(scratch, directory / stored.file)
    covers = tuple(index.entries.segment_names())
    saved = replace(saved, covers=covers, entries=index.covered, stored=stored)
    _publish(directory, saved)
    return saved


def _require_searchable(index: FaissIndex, kind: str) -> None:
    """Refuse an index that would fail, or find nothing, at every translation: a custom recipe may do so."""
    entries = index.entries
    live = [0] if entries.live is None else entries.live[: index.covered].nonzero()[:1, 0].tolist()
    if not index.covered or not live:
        return
    query = torch.from_numpy(entries.keys_of(np.array(live))).float()
    try:
        found, reason = int(index.search(query, 1)[1]), "it finds nothing"
    except Exception as error:  # FAISS raises many kinds of exceptions
        found, reason = -1, str(error).rpartition("Error: ")[2] or repr(error)
    if found < 0:
        raise SettingError(f"an index of the kind {kind!r} cannot be searched ({reason}); it was not saved")


def _publish(directory: Path, saved: SavedIndex) -> None:
    body = {"format": FORMAT, "version": VERSION, **asdict(saved)}
    text = json.dumps({**body, "checksum": checksum(body)}, indent=1).encode()
    publish_file(directory / INDEX_RECORD, lambda file: file.write(text))


@contextmanager
def _writing(store: Datastore) -> Iterator[Path]:
    """Hold the lock of the indexes' directory; before and after, remove the files that no record names."""
    directory = store.path / INDEXES
    require_directory(directory)
    with storage_errors(directory):
        directory.mkdir(exist_ok=True)
    with writer_lock(directory):
        _clear_leftovers(store, directory)
        before = _changed(directory)
        try:
            yield directory
        finally:
            _clear_leftovers(store, directory, published=_changed(directory) != before)


def _changed(directory: Path) -> int:
    """When the record was last written, in nanoseconds; 0 if there is none."""
    try:
        return (directory / INDEX_RECORD).stat().st_mtime_ns
    except OSError:
        return 0


def _clear_leftovers(store: Datastore, directory: Path, published: bool = False) -> None:
    try:
        saved = read_saved(store)
    except (DatastoreDamagedError, DatastoreVersionError):
        return  # the next build publishes a sound record, which shows what is left over
    clear_files(directory, _FILES, {saved.stored.file} if saved and saved.stored else (), published)
