"""The manifest: what a store is and which files it is made of, with a checksum over itself."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from knnmt.datastore.publication import publish_file
from knnmt.engine.base import Engine, Fingerprint, State
from knnmt.errors import DatastoreDamagedError, DatastoreMismatchError, DatastoreVersionError, NotADatastoreError

FORMAT = "knnmt datastore"
VERSION = 1
MANIFEST = "manifest.json"
SEGMENTS = "segments"
INDEXES = "indexes"  # what `knnmt.index` keeps beside the segments; no part of the store's state
INDEX_RECORD = "index.json"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below `segments/`, as it must be."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RemovedSentences:
    """Which sentences of a segment are gone: a file with their indices, and how many entries go with them."""

    stored: StoredFile
    sentences: int
    entries: int


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One immutable segment, with what was removed from it since."""

    stored: StoredFile
    sentences: int
    entries: int
    removed: RemovedSentences | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of a store in one generation.

    model_name is for people; model and tokenizer are the fingerprints that count
    key_dtype is what the keys are stored in, compute_dtype what the model computed them in
    dim is that of the stored keys; with a projection, queries of the model's own dimension must go through it first
    transforms names what was done to the keys since they were built (PCA, pruning), in order
    for_fast: every segment holds what Fast kNN-MT needs besides: source tokens, their encoder states, alignment
    """

    model_name: str
    model: str
    tokenizer: str
    source_language: str
    target_language: str
    dim: int
    vocabulary: int
    key_dtype: str
    compute_dtype: str
    transforms: tuple[str, ...] = ()
    generation: int = 1
    next_segment: int = 0
    segments: tuple[SegmentRecord, ...] = ()
    projection: StoredFile | None = None
    for_fast: bool = False

    @property
    def entries(self) -> int:
        """Entries of all segments, removed ones counted: entry ids run from 0 to this."""
        return sum(segment.entries for segment in self.segments)

    @property
    def sentences(self) -> int:
        """Sentences of all segments, removed ones counted."""
        return sum(segment.sentences for segment in self.segments)

    @property
    def live_entries(self) -> int:
        return self.entries - sum(segment.removed.entries for segment in self.segments if segment.removed)

    @property
    def live_sentences(self) -> int:
        return self.sentences - sum(segment.removed.sentences for segment in self.segments if segment.removed)

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.model, self.tokenizer)

    def files(self) -> list[StoredFile]:
        """Every file the store is made of, the manifest aside."""
        removed = [segment.removed.stored for segment in self.segments if segment.removed]
        projection = [self.projection] if self.projection else []
        return [segment.stored for segment in self.segments] + removed + projection

    def changed(self, segments: tuple[SegmentRecord, ...], next_segment: int | None = None) -> Manifest:
        """The next generation."""
        return replace(
            self,
            segments=segments,
            generation=self.generation + 1,
            next_segment=self.next_segment if next_segment is None else next_segment,
        )

    def require_engine(self, place: Path, engine: Engine[State]) -> None:
        """Refuse a model, tokenizer or pair of languages that the keys were not made with."""
        name, found = engine.name, engine.fingerprint
        for what, expected, got in (("model", self.model, found.model), ("tokenizer", self.tokenizer, found.tokenizer)):
            if expected != got:
                raise DatastoreMismatchError(
                    f"{place}: built with the model {self.model_name!r}; the {what} of {name!r} is another "
                    f"(expected fingerprint {expected[:12]}, found {got[:12]}). Use the model it was built with, "
                    "or build the store again with this one."
                )
        if engine.languages.contradict(self.source_language, self.target_language):
            raise DatastoreMismatchError(
                f"{place}: built for {self.source_language} to {self.target_language}; {name!r} was loaded for "
                f"{engine.languages}. Load it for the store's languages, or use a store of these."
            )

    def write(self, store: Path) -> None:
        """Publish this state: the one step by which a store changes."""
        body = {"format": FORMAT, "version": VERSION, **asdict(self)}
        text = json.dumps({**body, "checksum": checksum(body)}, indent=1).encode()
        publish_file(store / MANIFEST, lambda file: file.write(text))


def checksum(body: dict[str, Any]) -> str:
    """SHA-256 of a record, whatever the order and the spacing it is written in."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_manifest(store: Path) -> Manifest:
    """The newest state of a store; refused unless it is whole and of a format this version reads."""
    path = store / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotADatastoreError(f"{store}: {_what_is_there(store)}") from error
    except OSError as error:
        raise DatastoreDamagedError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DatastoreDamagedError(
            f"{path}: not valid JSON ({error}). Restore it, or build the store again."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise NotADatastoreError(f"{path}: expected the manifest of a datastore, found another kind of file.")
    if content.get("version") != VERSION:
        raise DatastoreVersionError(
            f"{store}: written in version {content.get('version')} of the format; this knnmt reads version {VERSION}. "
            "Use the knnmt that fits it, or build the store again with this one."
        )
    if content.pop("checksum", None) != checksum(content):
        raise DatastoreDamagedError(
            f"{path}: its checksum does not fit its content: it was altered by something other than knnmt. "
            "Restore it, or build the store again."
        )
    del content["format"], content["version"]
    try:
        segments = tuple(_segment(record) for record in content.pop("segments"))
        transforms = tuple(content.pop("transforms"))
        projection = content.pop("projection", None)  # stores written before there were projections lack the field
        projection = StoredFile(**projection) if projection else None
        return Manifest(**content, segments=segments, transforms=transforms, projection=projection)
    except (TypeError, KeyError) as error:
        raise DatastoreDamagedError(f"{path}: a field is missing or unknown ({error}).") from error


def _segment(record: dict[str, Any]) -> SegmentRecord:
    removed = record.pop("removed")
    if removed is not None:
        removed = RemovedSentences(**{**removed, "stored": StoredFile(**removed["stored"])})
    return SegmentRecord(**{**record, "stored": StoredFile(**record["stored"])}, removed=removed)


def _what_is_there(store: Path) -> str:
    if not store.exists():
        hint = ""
        if store.with_name(f"{store.name}.building").is_dir():
            hint = " An unfinished build of it is there: run the same `knnmt build` again to go on with it."
        elif store.with_name(f"{store.name}.making").is_dir():
            hint = " It is being made, or was when that was stopped: run the same `knnmt reduce` or `prune` again."
        return f"no datastore there.{hint or ' Make one with: knnmt build MEMORY... -o STORE'}"
    if not store.is_dir():
        return "expected a datastore, which is a directory; found a file."
    return f"expected a datastore, found a directory without {MANIFEST}."
