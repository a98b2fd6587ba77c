"""The manifest: the description of a store and its files, with a checksum over itself."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from knnmt.config import check
from knnmt.corpus.accelerators import Accelerators
from knnmt.corpus.report import counted
from knnmt.datastore.publication import publish_file
from knnmt.engine.base import Engine, Fingerprint, State
from knnmt.errors import DatastoreDamagedError, DatastoreMismatchError, DatastoreVersionError, NotADatastoreError
from knnmt.records import as_record, parse_json, shown
from knnmt.regular_files import read_regular

FORMAT = "knnmt datastore"
VERSION = 3
MANIFEST = "manifest.json"
SEGMENTS = "segments"
INDEXES = "indexes"  # where `knnmt.index` writes, beside the segments; not part of the store's state
INDEX_RECORD = "index.json"


KEY_DTYPES = ("float16", "float32")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_DIMENSIONS = 1 << 16
_MAX_TOKENS = 1 << 24
_MANY_SEGMENTS = 1 << 16  # records of segments that are kept in memory; Linux lets a process map as many files
_BEFORE_SEGMENTS, _BETWEEN_SEGMENTS, _AFTER_SEGMENTS = b'\n "segments": [\n  ', b",\n  ", b"\n ]"


def sizes(sentences: int, entries: int) -> str:
    """The size of a store or of a change, for people."""
    return f"{counted(sentences, 'sentence')}, {counted(entries, 'entry', 'entries')}"


def in_bytes(count: int) -> str:
    """A number of bytes in readable units."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The record of a file below `segments/` or `indexes/`. Its name cannot lead out of that directory."""

    file: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        check(_NAME.fullmatch(self.file) is not None, f"expected the plain name of a file, found {shown(self.file)}")
        check(self.bytes >= 0, f"{self.file} cannot have {self.bytes} bytes")
        check(_SHA256.fullmatch(self.sha256) is not None, f"expected a SHA-256, found {shown(self.sha256)}")


@dataclass(frozen=True, slots=True)
class RemovedSentences:
    """The removed sentences of a segment: a file with their indices, and how many entries they have."""

    stored: StoredFile
    sentences: int
    entries: int


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One immutable segment, and the sentences removed from it since."""

    stored: StoredFile
    sentences: int
    entries: int
    removed: RemovedSentences | None = None

    def __post_init__(self) -> None:
        gone = (self.removed.sentences, self.removed.entries) if self.removed else (0, 0)
        sound = 0 <= gone[0] <= self.sentences and 0 <= gone[1] <= self.entries
        check(sound, f"of {(self.sentences, self.entries)} sentences and entries, {gone} cannot be removed")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of a store in one generation.

    model_name is for people; model and tokenizer are the fingerprints that are compared
    key_dtype is the type of the stored keys, compute_dtype the type in which the model computed them
    dim is the dimension of the stored keys; with a projection, queries of the model's own dimension must be projected
    transforms names the changes to the keys since they were built (PCA, pruning), in order
    for_fast: every segment also holds the data for Fast kNN-MT: source tokens, their encoder states, alignment
    accelerators: whether the keys were made from texts without accelerator marks ("drop") or with them ("keep")
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
    accelerators: Accelerators = "drop"

    def __post_init__(self) -> None:
        check(1 <= self.dim <= _MAX_DIMENSIONS, f"dim must lie between 1 and {_MAX_DIMENSIONS:,}, got {self.dim}")
        check(self.key_dtype in KEY_DTYPES, f"key_dtype cannot be {shown(self.key_dtype)}")
        check(1 <= self.vocabulary <= _MAX_TOKENS, f"a vocabulary cannot have {self.vocabulary} tokens")
        check(self.generation >= 1, f"generation must be at least 1, got {self.generation}")
        check(self.next_segment >= 0, f"next_segment must be at least 0, got {self.next_segment}")
        names = [stored.file for stored in self.files()]
        check(len(set(names)) == len(names), "a file is named more than once")

    @property
    def entries(self) -> int:
        """Entries of all segments, including removed ones: entry ids run from 0 up to this number."""
        return sum(segment.entries for segment in self.segments)

    @property
    def sentences(self) -> int:
        """Sentences of all segments, including removed ones."""
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
        """Every file of the store except the manifest."""
        removed = [segment.removed.stored for segment in self.segments if segment.removed]
        projection = [self.projection] if self.projection else []
        return [segment.stored for segment in self.segments] + removed + projection

    @property
    def content(self) -> str:
        """A digest of the store's content, independent of its name and place."""
        of_segments = [
            (each.stored.sha256, each.removed.stored.sha256 if each.removed else "") for each in self.segments
        ]
        projection = self.projection.sha256 if self.projection else ""
        return hashlib.sha256(json.dumps([of_segments, projection]).encode()).hexdigest()

    def changed(self, segments: tuple[SegmentRecord, ...], next_segment: int | None = None) -> Manifest:
        """The next generation."""
        return replace(
            self,
            segments=segments,
            generation=self.generation + 1,
            next_segment=self.next_segment if next_segment is None else next_segment,
        )

    def require_engine(self, place: Path, engine: Engine[State]) -> None:
        """Raise an error if the keys were made with another model, tokenizer or language pair."""
        name, found = engine.name, engine.fingerprint
        for what, expected, got in (("model", self.model, found.model), ("tokenizer", self.tokenizer, found.tokenizer)):
            if expected != got:
                raise DatastoreMismatchError(
                    f"{place}: built with the model {self.model_name!r}; the {what} of {name!r} differs (expected "
                    f"fingerprint {expected[:12]}, found {got[:12]}). Use the model it was built with, "
                    "or build the store again with this one."
                )
        if engine.languages.contradict(self.source_language, self.target_language):
            raise DatastoreMismatchError(
                f"{place}: built for {self.source_language} to {self.target_language}; {name!r} was loaded for "
                f"{engine.languages}. Load it for the store's languages, or use another store."
            )

    def write(self, path: Path) -> None:
        """Publish this state. This one step changes the store."""
        body = {"format": FORMAT, "version": VERSION, **asdict(replace(self, segments=()))}
        lines, canonical = zip(*map(_written, self.segments), strict=True) if self.segments else ((), ())
        text = _in_lines({**body, "checksum": _checksum(body, canonical)}, lines)
        publish_file(path / MANIFEST, lambda file: file.write(text))


# A store of many segments is read and published again and again, and all but one or two of them stay the same.


@lru_cache(_MANY_SEGMENTS)
def _written(segment: SegmentRecord) -> tuple[bytes, str]:
    """A segment's line in a manifest, and its part of the text that the checksum is made from."""
    content = asdict(segment)
    return json.dumps(content).encode(), _canonical(content)


@lru_cache(_MANY_SEGMENTS)
def _read(line: bytes) -> tuple[SegmentRecord, str]:
    """The segment of a line, and the same part."""
    content = parse_json(line)
    return as_record(SegmentRecord, content), _canonical(content)


def _in_lines(body: dict[str, Any], segments: Sequence[bytes]) -> bytes:
    """JSON with one line for each field and each segment: readable, and lines can be read one by one."""
    of_segments = _BEFORE_SEGMENTS + _BETWEEN_SEGMENTS.join(segments) + _AFTER_SEGMENTS
    fields = [
        of_segments if name == "segments" else f"\n {json.dumps(name)}: {json.dumps(value)}".encode()
        for name, value in body.items()
    ]
    return b"{" + b",".join(fields) + b"\n}\n"


def _by_lines(text: bytes) -> tuple[dict[str, Any], str] | None:
    """The content of a manifest as `_in_lines` writes it, with records instead of segments, and its checksum.

    None for any other text, which must be read as a whole: also one with an error, so that the message says where.
    """
    before, begin, rest = text.partition(_BEFORE_SEGMENTS)
    lines, end, after = rest.partition(_AFTER_SEGMENTS)
    if not begin or not end:
        return None
    try:
        content = parse_json(before + b'"segments": "in lines"' + after)
        if not isinstance(content, dict) or content.get("segments") != "in lines":
            return None
        records, canonical = zip(*map(_read, lines.split(_BETWEEN_SEGMENTS)), strict=True)
    except ValueError:
        return None
    found = _checksum({name: value for name, value in content.items() if name != "checksum"}, canonical)
    return {**content, "segments": list(records)}, found


def _canonical(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def checksum(body: dict[str, Any]) -> str:
    """SHA-256 of a record, independent of its order and spacing."""
    return hashlib.sha256(_canonical(body).encode()).hexdigest()


def _checksum(body: dict[str, Any], segments: Sequence[str]) -> str:
    """The checksum of a manifest, from the parts of its segments."""
    fields = (
        f"{json.dumps(name)}:{'[' + ','.join(segments) + ']' if name == 'segments' else _canonical(value)}"
        for name, value in sorted(body.items())
    )
    return hashlib.sha256(f"{{{','.join(fields)}}}".encode()).hexdigest()


def read_manifest(place: Path) -> Manifest:
    """The newest state of a store; raise an error unless it is complete and in a format that this version reads."""
    path = place / MANIFEST
    try:
        content = read_regular(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotADatastoreError(f"{place}: {_what_is_there(place)}") from error
    except OSError as error:
        raise DatastoreDamagedError(f"{path}: cannot be read: {error.strerror or error}") from error
    return manifest_from(content, place)


def manifest_from(text: bytes, place: str | Path) -> Manifest:
    """The same for a manifest that was already read. place: for people"""
    path = f"{place}/{MANIFEST}"
    try:
        content, found = _by_lines(text) or (parse_json(text), None)
    except ValueError as error:
        raise DatastoreDamagedError(
            f"{path}: not valid JSON ({error}). Restore it, or build the store again."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise NotADatastoreError(f"{path}: expected the manifest of a datastore, found another kind of file.")
    if content.get("version") != VERSION:
        raise DatastoreVersionError(
            f"{place}: written in version {shown(content.get('version'))} of the format; this knnmt reads version "
            f"{VERSION}. Use a knnmt version that reads it, or build the store again."
        )
    if content.pop("checksum", None) != (found or checksum(content)):
        raise DatastoreDamagedError(
            f"{path}: its checksum does not fit its content, because something other than knnmt altered it. "
            f"Restore it, or build the store again."
        )
    del content["format"], content["version"]
    try:
        return as_record(Manifest, content)
    except ValueError as error:
        raise DatastoreDamagedError(
            f"{path}: {error}. Something other than knnmt wrote it: restore it, or build the store again."
        ) from error


def _what_is_there(path: Path) -> str:
    if not path.exists():
        hint = ""
        if path.with_name(f"{path.name}.building").is_dir():
            hint = " There is an unfinished build: rerun the same `knnmt build`; it resumes."
        elif path.with_name(f"{path.name}.merging").is_dir():
            hint = " There is an unfinished merge: rerun the same `knnmt merge`; it resumes."
        elif path.with_name(f"{path.name}.making").is_dir():
            hint = " It is being made, or making it was interrupted: rerun the same `knnmt reduce` or `prune`."
        return f"there is no datastore.{hint or ' Make one with: knnmt build MEMORY... -o STORE'}"
    if not path.is_dir():
        return (
            "expected a datastore, which is a directory; found a file. To make a store from a memory: knnmt build "
            "MEMORY... -o STORE"
        )
    return f"expected a datastore, found a directory without {MANIFEST}."
