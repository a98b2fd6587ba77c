"""Building a store: slice by slice into `STORE.building/`, then one rename.

Killed at any moment, it leaves no store, and the finished slices; the same call goes on from there. A slice's file is
named by what is in it, so a changed memory reuses the slices that did not change.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from knnmt.config import check
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import Manifest, SegmentRecord, StoredFile
from knnmt.datastore.publication import publish_file, storage_errors, sync_directory
from knnmt.datastore.segment import Segment
from knnmt.datastore.slices import KEY_DTYPES, Slice, cut_slices, encode_slice, write_segment
from knnmt.engine.base import Engine, State
from knnmt.errors import DatastoreDamagedError, DatastoreExistsError, InputError

SEGMENTS = "segments"
_PLAN = "plan.json"
Progress = Callable[[int, int], None]


def no_progress(_pairs: int, _entries: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """How a store is built.

    key_dtype: "float16" or "float32", what the keys are stored in
    batch_tokens: most tokens a side, padding counted, in one forced pass
    """

    source_language: str = "de"
    target_language: str = "en"
    key_dtype: str = "float16"
    batch_tokens: int = 1024

    def __post_init__(self) -> None:
        check(self.key_dtype in KEY_DTYPES, f"dtype must be one of {', '.join(KEY_DTYPES)}, got {self.key_dtype!r}")
        check(self.batch_tokens >= 1, f"batch_tokens must be at least 1, got {self.batch_tokens}")


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build made; `reused` counts segments that an interrupted run had finished."""

    manifest: Manifest
    reused: int
    dropped: Counter[str]


def build(
    store: Path,
    pairs: Iterable[SegmentPair],
    engine: Engine[State],
    config: BuildConfig | None = None,
    progress: Progress = no_progress,
) -> BuildResult:
    """Build a new store at `store`. `progress` is called with pairs and entries done after every slice."""
    config = config or BuildConfig()
    if store.exists():
        raise DatastoreExistsError(
            f"{store}: already there. Add to it with `knnmt add`, or remove it first, or choose another name."
        )
    building = store.with_name(f"{store.name}.building")
    with storage_errors(building):
        (building / SEGMENTS).mkdir(parents=True, exist_ok=True)
    with writer_lock(building):
        manifest = empty_manifest(engine, config)
        _require_same_plan(building, manifest)
        dropped: Counter[str] = Counter()
        records: list[SegmentRecord] = []
        reused = done = entries = 0
        for part in cut_slices(pairs, engine.tokenizer, engine.max_positions, dropped):
            name = f"{len(records):05d}-{part.digest()}.safetensors"
            record = finished_segment(building / SEGMENTS, name, part)
            reused += record is not None
            if record is None:
                arrays = encode_slice(engine, part, config.key_dtype, config.batch_tokens)
                record = write_segment(building / SEGMENTS, name, arrays)
            records.append(record)
            done, entries = done + len(part.pairs), entries + part.entries
            progress(done, entries)
        if not records:
            raise InputError(f"{store}: not built, for no usable pair was read")
        manifest = replace(manifest, segments=tuple(records), next_segment=len(records))
        publish_new_store(building, store, manifest)
    return BuildResult(manifest, reused, dropped)


def publish_new_store(building: Path, store: Path, manifest: Manifest) -> None:
    """Make a directory of finished segments the store, in one step."""
    clear_leftovers(building, manifest)
    manifest.write(building)
    with storage_errors(store):
        (building / _PLAN).unlink(missing_ok=True)
        try:
            building.rename(store)
        except OSError as error:
            if store.exists():
                raise DatastoreExistsError(
                    f"{store}: appeared while it was being built; {building} is kept."
                ) from error
            raise
        sync_directory(store.parent)


def empty_manifest(engine: Engine[State], config: BuildConfig) -> Manifest:
    """What a store of this model and these settings is, before it has segments."""
    return Manifest(
        model_name=engine.name,
        model=engine.fingerprint.model,
        tokenizer=engine.fingerprint.tokenizer,
        source_language=config.source_language,
        target_language=config.target_language,
        dim=engine.dim,
        vocabulary=engine.vocabulary_size,
        key_dtype=config.key_dtype,
        compute_dtype=str(engine.dtype).removeprefix("torch."),
    )


def finished_segment(directory: Path, name: str, part: Slice) -> SegmentRecord | None:
    """The record of a segment that an earlier run finished, or None. Its file counts only if it reads as that slice."""
    path = directory / name
    if not path.exists():
        return None
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    record = SegmentRecord(StoredFile(name, path.stat().st_size, sha256), len(part.pairs), part.entries)
    try:
        arrays = Segment.open(directory, record).arrays
        whole = len(arrays["values"]) == part.entries and len(arrays["target_offsets"]) == len(part.pairs) + 1
    except (DatastoreDamagedError, KeyError):
        whole = False
    return record if whole else None


def clear_leftovers(store: Path, manifest: Manifest) -> None:
    """Remove files below `segments/` that the manifest does not name: an interrupted writer left them."""
    named = {stored.file for stored in manifest.files()}
    for path in (store / SEGMENTS).iterdir():
        if path.name not in named:
            path.unlink()


def _require_same_plan(building: Path, manifest: Manifest) -> None:
    """Settings that an unfinished build must share with the call that goes on with it."""
    plan = json.loads(json.dumps(asdict(manifest)))
    path = building / _PLAN
    if not path.exists():
        for leftover in (building / SEGMENTS).iterdir():
            leftover.unlink()
        text = json.dumps(plan, indent=1).encode()
        publish_file(path, lambda file: file.write(text))
        return
    begun = json.loads(path.read_text(encoding="utf-8"))
    different = sorted(name for name in plan if begun.get(name) != plan[name])
    if different:
        raise DatastoreExistsError(
            f"{building}: an unfinished build with other settings is there ({', '.join(different)} differ). "
            "Run it again with its settings to go on, or remove that directory to begin anew."
        )


def discard_unfinished(store: Path) -> None:
    """Forget an interrupted build."""
    shutil.rmtree(store.with_name(f"{store.name}.building"), ignore_errors=True)
