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
from pathlib import Path
from typing import Any, NoReturn

from knnmt.datastore.manifest import StoredFile
from knnmt.datastore.publication import publish_file
from knnmt.errors import DatastoreDamagedError, KnnmtError, MissingDependencyError, SettingError, StorageError
from knnmt.regular_files import MAX_BYTES, open_regular

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://.+", re.DOTALL)  # a Windows drive has one letter
_BLOCK = 1 << 22
_MARK = ".sha256"  # beside a file that is complete


def is_url(place: str) -> bool:
    """Whether a place is a URL, not a directory."""
    return _URL.fullmatch(place) is not None


class Storage:
    """Files below a URL."""

    def __init__(self, url: str) -> None:
        if not is_url(url):
            raise SettingError(f"{url}: expected the URL of a place in storage, such as s3://bucket/place")
        self.url = url.rstrip("/")
        try:
            import fsspec
        except ImportError as error:
            raise MissingDependencyError("fsspec", "storage behind a URL", "storage") from error
        try:
            self._files, self._place = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise SettingError(
                f"{url}: this kind of storage cannot be reached ({error}). s3:// needs `pip install s3fs`, gs:// `pip "
                "install gcsfs`, abfs:// `pip install adlfs`"
            ) from error

    def _path(self, name: str) -> str:
        return f"{self._place}/{name}"

    @contextmanager
    def _speaking(self, name: str) -> Iterator[None]:
        """Turn the errors of any kind of storage into ours."""
        try:
            yield
        except (KnnmtError, FileNotFoundError):
            raise
        except Exception as error:
            raise StorageError(
                f"{self.url}/{name}: the storage failed or cannot be reached ({type(error).__name__}: "
                f"{error or 'no reason given'}). Solve the problem and rerun the command; it resumes."
            ) from error

    def has(self, name: str) -> bool:
        with self._speaking(name):
            self._files.invalidate_cache()
            return bool(self._files.isfile(self._path(name)))

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
        with self._speaking(name):
            self._make_directory(name)
            scratch = self._path(f"{name}.{os.getpid()}.part")
            self._files.pipe_file(scratch, content)  # atomic in object storage, but not on disks
            self._files.mv(scratch, self._path(name))

    def put(self, path: Path, name: str) -> StoredFile:
        """Upload a file, unless it is already there, and then a mark that it is complete."""
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            stored = StoredFile(path.name, size, hashlib.file_digest(file, "sha256").hexdigest())
            if self.put_before(name) == (stored.sha256, stored.bytes):
                return stored
            file.seek(0)
            with self._speaking(name):
                self._make_directory(name)
                with self._files.open(self._path(name), "wb") as there:
                    while block := file.read(_BLOCK):
                        there.write(block)
        self.write(name + _MARK, stored.sha256.encode())
        return stored

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
        self._files.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
