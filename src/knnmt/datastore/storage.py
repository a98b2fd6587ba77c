"""Storage behind a URL, such as s3://bucket/place: files are put there completely, and fetched with a checksum.

`fsspec` accesses it; the kinds of storage depend on the installed packages (`s3fs`, `gcsfs`, ...). Fetched data is not
trusted: a file with a wrong size or checksum never gets its name.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from knnmt.datastore.manifest import StoredFile
from knnmt.datastore.publication import publish_file
from knnmt.errors import DatastoreDamagedError, KnnmtError, MissingDependencyError, SettingError, StorageError
from knnmt.regular_files import MAX_BYTES, open_regular

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://.+", re.DOTALL)  # a Windows drive has one letter
_CHAIN = "::"  # fsspec would put one kind of storage over another, of which some run what they find there
# Kinds of storage in which an object appears with all its bytes. There are no directories: making one makes a bucket.
_OF_OBJECTS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss"})
_CREDENTIALS = (
    "Check the credentials in the environment (for s3://: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE) "
    "and what they may do there"
)
_BLOCK = 1 << 22
_MARK = ".sha256"  # beside a file that is complete


def is_url(place: str) -> bool:
    """Whether a place is a URL, not a directory."""
    return _URL.fullmatch(place) is not None


class Storage:
    """Files below a URL."""

    def __init__(self, url: str) -> None:
        if not is_url(url) or _CHAIN in url:
            raise SettingError(f"{url}: expected the URL of one place in storage, such as s3://bucket/place")
        self.url = url.rstrip("/")
        try:
            import fsspec
        except ImportError as error:
            raise MissingDependencyError("fsspec", "storage behind a URL", "storage") from error
        try:
            self._files, self._place = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise SettingError(
                f"{url}: this kind of storage cannot be reached ({error}). s3:// needs `pip install 'knnmt[s3]'`, "
                "gs:// `pip install gcsfs`, abfs:// `pip install adlfs`"
            ) from error
        kinds = self._files.protocol
        self._of_objects = not _OF_OBJECTS.isdisjoint((kinds,) if isinstance(kinds, str) else kinds)

    def _path(self, name: str) -> str:
        return f"{self._place}/{name}"

    @contextmanager
    def _speaking(self, name: str, writing: bool = False) -> Iterator[None]:
        """Turn the errors of any kind of storage into ours, but not that a file to be read does not exist."""
        try:
            yield
        except KnnmtError:
            raise
        except FileNotFoundError as error:
            if not writing:
                raise
            raise StorageError(
                f"{self.url}: the bucket or directory does not exist ({error}), and knnmt makes none. Correct the URL, "
                "or make it first."
            ) from error
        except Exception as error:
            problem, advice = "the storage failed or cannot be reached", "Solve the problem"
            if isinstance(error, PermissionError) or "Credential" in type(error).__name__:
                problem, advice = "the storage does not allow this", _CREDENTIALS
            raise StorageError(
                f"{self.url}/{name}: {problem} ({type(error).__name__}: {error or 'no reason given'}). {advice}, and "
                "rerun the command; it resumes."
            ) from error

    def read(self, name: str, most_bytes: int = MAX_BYTES) -> bytes:
        """The content of a small file; FileNotFoundError if there is none."""
        with self._speaking(name), self._files.open(self._path(name), "rb") as file:
            content: bytes = file.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise DatastoreDamagedError(
                f"{self.url}/{name}: longer than {most_bytes:,} bytes, so it is not a valid file"
            )
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a small file in one step."""
        with self._speaking(name, writing=True):
            if self._of_objects:
                self._files.pipe_file(self._path(name), content)
                return
            self._make_directory(name)
            scratch = self._path(f"{name}.{os.getpid()}.part")
            self._files.pipe_file(scratch, content)
            self._files.mv(scratch, self._path(name))

    def put(self, path: Path, name: str) -> StoredFile:
        """Upload a file, unless it is already there, and then a mark that it is complete."""
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            stored = StoredFile(path.name, size, hashlib.file_digest(file, "sha256").hexdigest())
            if self.put_before(name) == (stored.sha256, stored.bytes):
                return stored
            file.seek(0)
            with self._speaking(name, writing=True):
                self._make_directory(name)
                self._upload(file, self._files.open(self._path(name), "wb"))
        self.write(name + _MARK, stored.sha256.encode())
        return stored

    @staticmethod
    def _upload(file: BufferedReader, there: Any) -> None:
        """Write a file to storage. If this fails or is interrupted, object storage gets no object."""
        try:
            while block := file.read(_BLOCK):
                there.write(block)
            there.close()
        except BaseException:
            if hasattr(there, "forced"):  # a file that is uploaded in parts: to close it would complete it
                there.closed = True
                with suppress(Exception):
                    there.discard()
            else:
                there.close()
            raise

    def put_before(self, name: str) -> tuple[str, int] | None:
        """The SHA-256 (from its mark) and the size of a file that is complete in storage."""
        try:
            with self._speaking(name):
                self._files.invalidate_cache()
                sha256 = self.read(name + _MARK, 100).decode("ascii", "replace")
                return sha256, int(self._files.size(self._path(name)))
        except (FileNotFoundError, DatastoreDamagedError):
            return None

    def fetch(self, name: str, path: Path, stored: StoredFile) -> None:
        """Fetch a file to `path`; it appears there only if its size and checksum are right."""
        with self._speaking(name):
            try:
                with self._files.open(self._path(name), "rb") as there:
                    publish_file(path, lambda file: self._checked(there, file, name, stored))
            except FileNotFoundError:
                self._refuse(name, "it does not exist")

    def _checked(self, there: Any, file: Any, name: str, stored: StoredFile) -> None:
        digest, left = hashlib.sha256(), stored.bytes
        while block := there.read(min(_BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                self._refuse(name, f"it has more than {stored.bytes:,} bytes")
            digest.update(block)
            file.write(block)
        if left:
            self._refuse(name, f"it has {stored.bytes - left:,} bytes, not {stored.bytes:,}")
        if digest.hexdigest() != stored.sha256:
            self._refuse(name, f"it has other bytes (SHA-256 {digest.hexdigest()[:12]}, not {stored.sha256[:12]})")

    def _refuse(self, name: str, found: str) -> NoReturn:
        raise DatastoreDamagedError(
            f"{self.url}/{name}: differs from what its store records: {found}. Was it copied completely? Copy it again"
        )

    def remove_all(self, directory: str) -> None:
        """Remove a directory with all its content; do nothing if there is none."""
        with suppress(FileNotFoundError), self._speaking(directory):
            self._files.rm(self._path(directory), recursive=True)

    def _make_directory(self, name: str) -> None:
        if self._of_objects:
            return
        self._files.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
