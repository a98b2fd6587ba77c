"""Builds a store slice by slice in `STORE.building/`, and then renames it once.

An interrupted build leaves no store, but it keeps the finished slices; the same call resumes. A slice's file is named
by its content, so a build from a changed memory reuses the slices that did not change.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from knnmt import timing
from knnmt.config import check
from knnmt.corpus.accelerators import Accelerators
from knnmt.corpus.pairs import AnyPair
from knnmt.datastore.arrays import Array
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import KEY_DTYPES, SEGMENTS, VERSION, Manifest, SegmentRecord, StoredFile
from knnmt.datastore.prepared import Slice
from knnmt.datastore.publication import (
    SCRATCH,
    clear_files,
    publish_file,
    require_directory,
    storage_errors,
    sync_directory,
)
from knnmt.datastore.slices import begin_slice, cut_slices, write_segment
from knnmt.engine.base import Engine, State
from knnmt.errors import DatastoreExistsError, InputError, KnnmtError
from knnmt.progress import ignore
from knnmt.records import parse_json
from knnmt.regular_files import open_regular, read_regular

PLAN = "plan.json"
_WRITERS = 4  # threads, each with a segment in memory; they mostly wait for the disk
_MAX_PREPARERS = 12  # processes that prepare text for a GPU
# Every name that is written below `segments/`, with its scratch name; and the names beside the manifest.
_SEGMENT_FILES = re.compile(
    rf"\A(?:(\d{{5,}}-[\w-]+|projection)\.safetensors(\.sha256)?|\.[\w-]+\.safetensors(\.sha256)?{SCRATCH})"
)
_SCRATCH_FILES = re.compile(rf"plan\.json|\.(manifest|plan)\.json{SCRATCH}")
EntryProgress = Callable[[int, int], None]  # called with the numbers of pairs or keys done, and of their entries


# Turns slices into segments below a directory, as `encode_parts` does; a cluster uses another function.
EncodeParts = Callable[
    [Engine[Any], Iterable[Slice], Path, Manifest, int | None, EntryProgress], tuple[list[SegmentRecord], int]
]


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """How a store is built.

    source_language, target_language: by default the engine's, or German and English if it names none
    key_dtype: the type of stored keys, "float16" or "float32"
    batch_tokens: at most this many tokens per side in one forced pass, including padding; None chooses by the device
    for_fast: also keep the data for Fast kNN-MT: source tokens, their encoder states, word alignment
    accelerators: "drop" removes accelerator marks (&File, _File, ~File) from the texts that the model sees; the store
        keeps the texts with them
    """

    source_language: str | None = None
    target_language: str | None = None
    key_dtype: str = "float16"
    batch_tokens: int | None = None
    for_fast: bool = False
    accelerators: Accelerators = "drop"

    def __post_init__(self) -> None:
        check(self.key_dtype in KEY_DTYPES, f"dtype must be one of {', '.join(KEY_DTYPES)}, got {self.key_dtype!r}")
        sound = self.batch_tokens is None or self.batch_tokens >= 1
        check(sound, f"batch_tokens must be at least 1, got {self.batch_tokens}")
        check(
            self.accelerators in ("drop", "keep"), f"accelerators must be 'drop' or 'keep', got {self.accelerators!r}"
        )

    def between(self, source: str, target: str) -> BuildConfig:
        """These settings, for these languages unless they name others."""
        return replace(
            self,
            source_language=self.source_language or source,
            target_language=self.target_language or target,
        )


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of a build; `reused` counts segments that an interrupted run had finished."""

    manifest: Manifest
    reused: int
    dropped: Counter[str]


def write_store(
    store: Path,
    pairs: Iterable[AnyPair],
    engine: Engine[State],
    config: BuildConfig | None = None,
    progress: EntryProgress = ignore,
    restart: bool = False,
    encode: EncodeParts | None = None,
) -> BuildResult:
    """Write a new store at `store`, without settings. `knnmt.build` also estimates these.

    An interrupted build is resumed; with `restart` it starts again. `progress` is called with pairs and entries done
    after every slice.

    encode: turns slices into segments; by default this process does it
    """
    config = config or BuildConfig()
    with new_store(store, "building") as building:
        manifest = empty_manifest(engine, config)
        _prepare(building, manifest, restart)
        dropped: Counter[str] = Counter()
        positions, processes = engine.max_positions, preparers(engine)
        parts = cut_slices(pairs, engine.tokenizer, positions, dropped, config.accelerators, processes)
        encode = encode or encode_parts
        records, reused = encode(engine, parts, building / SEGMENTS, manifest, config.batch_tokens, progress)
        if not records:
            why = "".join(f"; {count:,} were {reason}" for reason, count in dropped.items())
            raise InputError(f"{store}: not built, because no usable pair was read{why}")
        manifest = replace(manifest, segments=tuple(records), next_segment=len(records))
        publish_new_store(building, store, manifest)
    return BuildResult(manifest, reused, dropped)


def preparers(engine: Engine[State]) -> int:
    """How many other processes prepare text: none on a CPU, where the model takes all cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MAX_PREPARERS, cores - 2) if engine.device.type == "cuda" and cores > 3 else 0


def encode_parts(
    engine: Engine[State],
    parts: Iterable[Slice],
    directory: Path,
    manifest: Manifest,
    batch_tokens: int | None,
    progress: EntryProgress,
) -> tuple[list[SegmentRecord], int]:
    """Turn slices into segments, numbered after the manifest's, and return how many an earlier run had finished.

    Separate threads write segments while the next ones are computed.
    """
    records: list[SegmentRecord] = []
    being_written: deque[tuple[Slice, Future[SegmentRecord]]] = deque()
    reused = done = entries = 0

    def settle() -> None:
        nonlocal done, entries
        part, record = being_written.popleft()
        with timing.stage("writers"):
            records.append(record.result())
        done, entries = done + len(part), entries + part.entries
        progress(done, entries)

    with ThreadPoolExecutor(_WRITERS, "knnmt-segment") as writers:
        stream = iter(parts)
        for number in count(manifest.next_segment):
            with timing.stage("text"):
                part = next(stream, None)
            if part is None:
                break
            name = f"{number:05d}-{part.digest()}.safetensors"
            finished = finished_segment(directory, name, len(part), part.entries)
            if finished is None:
                arrays = begin_slice(engine, part, manifest.key_dtype, batch_tokens, manifest.for_fast)
                being_written.append((part, writers.submit(_finish_begun, directory, name, arrays)))
            else:
                reused += 1
                being_written.append((part, Future()))
                being_written[-1][1].set_result(finished)
            while len(being_written) > _WRITERS or (being_written and being_written[0][1].done()):
                settle()
        while being_written:
            settle()
    return records, reused


def _finish_begun(directory: Path, name: str, arrays: Callable[[], dict[str, Array]]) -> SegmentRecord:
    return finish_segment(directory, name, arrays())


@contextmanager
def new_store(store: Path, suffix: str) -> Iterator[Path]:
    """The locked directory `STORE.suffix` in which a store is made; refused if something is in the store's place."""
    require_free(store)
    making = store.with_name(f"{store.name}.{suffix}")
    for directory in (making, making / SEGMENTS):
        require_directory(directory)
    begun = False
    try:
        with storage_errors(making):
            (making / SEGMENTS).mkdir(parents=True, exist_ok=True)
        with writer_lock(making, moves=True):
            require_free(store)
            begun = True
            yield making
    except BaseException:
        if not begun:
            _remove_empty(making)
        raise


def _remove_empty(making: Path) -> None:
    """Remove a directory in which nothing was made yet, unless another process has its lock."""
    with suppress(KnnmtError, OSError), writer_lock(making, moves=True):
        (making / SEGMENTS).rmdir()
        (making / "lock").unlink(missing_ok=True)
        making.rmdir()


def require_free(store: Path) -> None:
    """Raise an error if something exists where a new store is to be."""
    if os.path.lexists(store):
        raise DatastoreExistsError(
            f"{store}: already exists. Add to it with `knnmt add`, remove it first, or choose another name."
        )


def publish_new_store(making: Path, store: Path, manifest: Manifest) -> None:
    """Turn a directory of finished segments into the store, in one step."""
    manifest.write(making)
    with storage_errors(store):
        making.rename(store)
        sync_directory(store.parent)
    # Only now: if the process is killed before the rename, the build can still be resumed.
    clear_leftovers(store, manifest, published=True)


def empty_manifest(engine: Engine[State], config: BuildConfig) -> Manifest:
    """The manifest of a store with this model and these settings, before it has segments."""
    source = config.source_language or engine.languages.source or "de"
    target = config.target_language or engine.languages.target or "en"
    check(
        not engine.languages.contradict(source, target),
        f"a store for {source} to {target} was requested, but {engine.name!r} translates {engine.languages}",
    )
    check(
        engine.computes_in != "int8",
        "an engine in int8 cannot compute keys: build the store with float32; int8 can then search it",
    )
    return Manifest(
        model_name=engine.name,
        model=engine.fingerprint.model,
        tokenizer=engine.fingerprint.tokenizer,
        source_language=source,
        target_language=target,
        dim=engine.dim,
        vocabulary=engine.vocabulary_size,
        key_dtype=config.key_dtype,
        compute_dtype=engine.computes_in,
        for_fast=config.for_fast,
        accelerators=config.accelerators,
    )


def finish_segment(directory: Path, name: str, arrays: dict[str, Array]) -> SegmentRecord:
    """Write a segment, then its SHA-256 beside it: a later run reuses it only if its bytes have not changed."""
    record = write_segment(directory, name, arrays)
    mark_finished(directory / name, record)
    return record


def mark_finished(path: Path, record: SegmentRecord) -> None:
    """Write a segment's SHA-256 beside it."""
    sha256 = record.stored.sha256.encode()
    publish_file(path.with_name(f"{path.name}.sha256"), lambda file: file.write(sha256))


def finished_segment(directory: Path, name: str, sentences: int, entries: int) -> SegmentRecord | None:
    """The record of a segment that an earlier run finished, or None."""
    try:
        expected = read_regular(directory / f"{name}.sha256").decode("ascii")
        stored = stored_as_found(directory / name)
    except (OSError, UnicodeDecodeError):
        return None
    return SegmentRecord(stored, sentences, entries) if stored.sha256 == expected else None


def stored_as_found(path: Path) -> StoredFile:
    """The record of a file, from its bytes; an OSError if there is no file."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        return StoredFile(path.name, size, hashlib.file_digest(file, "sha256").hexdigest())


def clear_leftovers(store: Path, manifest: Manifest, published: bool = False) -> None:
    """Remove our files that the manifest does not name, left by an interrupted writer. The caller must hold the lock.

    published: a change by the lock's holder has taken effect
    """
    clear_files(store / SEGMENTS, _SEGMENT_FILES, {stored.file for stored in manifest.files()}, published)
    clear_files(store, _SCRATCH_FILES, published=published)


def _prepare(building: Path, manifest: Manifest, restart: bool) -> None:
    """Begin a build, or check that the unfinished build has the same settings."""
    plan = {"version": VERSION, **asdict(manifest)}
    del plan["model_name"]
    plan = json.loads(json.dumps(plan))
    path = building / PLAN
    done = any((building / SEGMENTS).iterdir())
    if path.exists() and done and not restart:
        try:
            begun = parse_json(read_regular(path))
            different = sorted(name for name in plan if begun.get(name) != plan[name])
        except (OSError, ValueError, AttributeError):
            different = ["plan.json"]
        if different:
            raise DatastoreExistsError(
                f"{building}: there is an unfinished build with other settings ({', '.join(different)} differ). "
                "Rerun it with its settings to resume, or start over (--restart)."
            )
        return
    clear_leftovers(building, manifest)
    text = json.dumps(plan, indent=1).encode()
    publish_file(path, lambda file: file.write(text))
