"""Manifests, read line by line and as a whole: the same content, the same checksum, the same errors."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from knnmt.datastore import manifest as manifests
from knnmt.datastore.manifest import (
    MANIFEST,
    Manifest,
    RemovedSentences,
    SegmentRecord,
    StoredFile,
    checksum,
    manifest_from,
    read_manifest,
)
from knnmt.errors import DatastoreDamagedError


def stored(name: str) -> StoredFile:
    return StoredFile(f"{name}.safetensors", len(name), hashlib.sha256(name.encode()).hexdigest())


def segment(number: int) -> SegmentRecord:
    removed = RemovedSentences(stored(f"{number:05d}-removed-g2"), 1, 2) if number % 3 == 0 else None
    return SegmentRecord(stored(f"{number:05d}-a"), 4 + number, 50 + number, removed)


def made(segments: int) -> Manifest:
    records = tuple(map(segment, range(segments)))
    return Manifest("own „model“", "a" * 64, "b" * 64, "de", "en", 8, 100, "float16", "float32", segments=records)


def text_of(manifest: Manifest, place: Path) -> bytes:
    manifest.write(place)
    return (place / MANIFEST).read_bytes()


@pytest.mark.parametrize("segments", [0, 1, 7])
def test_lines_and_the_whole_are_the_same(tmp_path: Path, segments: int) -> None:
    given = made(segments)
    text = text_of(given, tmp_path)
    content = json.loads(text)
    assert len(text.splitlines()) == len(content) + max(1, segments) + 3
    said = content.pop("checksum")
    assert said == checksum(content)
    assert read_manifest(tmp_path) == given
    assert (manifests._by_lines(text) is None) is (segments == 0)
    for other in (json.dumps({"checksum": said, **content}), json.dumps({**content, "checksum": said}, indent=1)):
        assert manifests._by_lines(other.encode()) is None  # as another program writes it
        assert manifest_from(other.encode(), tmp_path) == given


def test_a_change_reads_and_writes_the_lines_that_changed(tmp_path: Path) -> None:
    given = made(40)
    given.write(tmp_path)
    read_manifest(tmp_path)
    read, written = manifests._read.cache_info().misses, manifests._written.cache_info().misses
    changed = given.changed((*given.segments[:-1], segment(99)))
    changed.write(tmp_path)
    assert read_manifest(tmp_path) == changed
    assert (manifests._read.cache_info().misses - read, manifests._written.cache_info().misses - written) == (1, 1)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"entries": 52', b'"entries": 53', "its checksum does not fit"),
        (b'"entries": 52', b'"entries": 52.5', "its checksum does not fit"),
        (b'"removed": null}', b'"removed": null}]', "not valid JSON"),
        (b'"sentences": 5,', b'"sentences": 5, "own": 1,', "its checksum does not fit"),
        (b'"dim": 8', b'"dim": 9', "its checksum does not fit"),
        (b'"checksum"', b'"segments": [], "checksum"', "its checksum does not fit"),
    ],
)
def test_an_altered_line_is_noticed(tmp_path: Path, old: bytes, new: bytes, said: str) -> None:
    text = text_of(made(5), tmp_path)
    assert old in text
    with pytest.raises(DatastoreDamagedError, match=said):
        manifest_from(text.replace(old, new), tmp_path)


def test_a_wrong_segment_with_a_right_checksum_is_named(tmp_path: Path) -> None:
    text = text_of(replace(made(5), generation=3), tmp_path)
    content = json.loads(text)
    del content["checksum"]
    content["segments"][3]["stored"]["file"] = "../outside"
    line, right = (json.dumps(each).encode() for each in (content["segments"][3], json.loads(text)["segments"][3]))
    altered = text.replace(right, line).replace(json.loads(text)["checksum"].encode(), checksum(content).encode())
    with pytest.raises(DatastoreDamagedError, match=r"segments\[?.?3.*expected the plain name of a file"):
        manifest_from(altered, tmp_path)
