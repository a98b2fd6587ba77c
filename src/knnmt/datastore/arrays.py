"""Named arrays in one file, in the safetensors format, written once and read through a memory map.

Any safetensors library can open the files. We write and map them ourselves so that arrays are aligned (the format's own
writer keeps no alignment across types), hashed while they are written, and read without a copy.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from knnmt.datastore.guarded_file import GuardedFile
from knnmt.datastore.manifest import StoredFile
from knnmt.datastore.publication import publish_file
from knnmt.errors import DatastoreDamagedError, quoted
from knnmt.records import as_type, parse_json, shown
from knnmt.regular_files import open_regular

Array = NDArray[Any]
_ALIGNMENT = 64
_READ_WHOLE_BYTES = 1 << 20
_MAX_HEADER_BYTES = 1 << 20
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U16": "<u2", "U8": "|u1"}
_NAMES = {np.dtype(value): name for name, value in _DTYPES.items()}


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> str:
    """Write the arrays as one file, atomically, and return its SHA-256. Wide types come first, so all are aligned."""
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {}
    offset = 0
    for name, array in ordered:
        header[name] = {
            "dtype": _NAMES[array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    digest = hashlib.sha256()

    def write(file: IO[bytes]) -> None:
        for part in (len(text).to_bytes(8, "little"), text):
            digest.update(part)
            file.write(part)
        for _, array in ordered:
            view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            digest.update(view)
            file.write(view)

    publish_file(path, write)
    return digest.hexdigest()


def write_stored(directory: Path, name: str, arrays: Mapping[str, Array]) -> StoredFile:
    """Write the arrays as a file of a store, and return its record: name, size and checksum."""
    sha256 = write_arrays(directory / name, arrays)
    return StoredFile(name, (directory / name).stat().st_size, sha256)


Buffer = mmap.mmap | bytes


def map_stored(directory: Path, stored: StoredFile, guarded: bool) -> Buffer:
    """The bytes of a store's file, in a memory map that outlives the file's name.

    A small file is read instead: each map costs a file descriptor, and a store in use has many small segments. So is
    one that should be `guarded` where `guard.cpp` is not compiled; Windows lets nobody cut a file that is mapped.

    guarded: the process lives if another program cuts the file; the caller asks for changes (`guarded_file`)
    """
    path = directory / stored.file
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno()).st_size
            if found != stored.bytes:
                raise DatastoreDamagedError(
                    f"{path}: expected {stored.bytes:,} bytes, found {found:,}. Restore the file, or build the store "
                    f"again; `knnmt verify {quoted(directory.parent)}` lists all problems."
                )
            if found < _READ_WHOLE_BYTES:
                return file.read(_READ_WHOLE_BYTES)
            _allow_many_files()
            if not guarded or sys.platform == "win32":
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            mapped = GuardedFile.map(file.fileno(), path)
            return file.read() if mapped is None else mapped
    except OSError as error:
        advice = "Restore it, or build the store again."
        if error.errno in (errno.EMFILE, errno.ENOMEM):
            advice = "The store has more segments than this system lets a process open: raise the limit (ulimit -n)."
        raise DatastoreDamagedError(f"{path}: cannot be read: {error.strerror or error}. {advice}") from error


@cache
def _allow_many_files() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def arrays_in(buffer: Buffer, path: Path) -> dict[str, Array]:
    """The arrays of a file, as read-only views of its bytes."""
    try:
        length = int.from_bytes(buffer[:8], "little")
        text = buffer[8 : 8 + min(length, _MAX_HEADER_BYTES)]
        header = as_type(dict[str, Any], parse_json(text), "")
        return {name: _view(buffer, 8 + length, name, placed) for name, placed in header.items()}
    except ValueError as error:
        raise DatastoreDamagedError(
            f"{path}: expected arrays in the safetensors format, but its header is invalid ({error}). "
            "Restore the file, or build the store again."
        ) from error


# The type and shape that an array must have; None in a shape stands for any number.
Form = tuple[str, tuple[int | None, ...]]


def require_arrays(path: Path, arrays: Mapping[str, Array], forms: Mapping[str, Form]) -> None:
    """Refuse a file that lacks one of the arrays it must have, or has it in another type or shape."""
    missing = [name for name in forms if name not in arrays]
    wrong = [
        f"{name} is {array.dtype} {array.shape}, not {form[0]} {form[1]}".replace("None", "any number")
        for name, form in forms.items()
        if (array := arrays.get(name)) is not None and not _has_form(array, form)
    ]
    if missing or wrong:
        problem = f"arrays are missing: {', '.join(missing)}" if missing else "; ".join(wrong)
        raise DatastoreDamagedError(f"{path}: {problem}. Restore the file, or build the store again.")


def _has_form(array: Array, form: Form) -> bool:
    dtype, shape = form
    fits = len(shape) == array.ndim and all(
        one is None or one == other for one, other in zip(shape, array.shape, strict=True)
    )
    return fits and str(array.dtype) == dtype


def _view(buffer: Buffer, start: int, name: str, placed: Any) -> Array:
    """An array as the file's header describes it. A large store has very many, so this is kept fast."""
    try:
        dtype, shape, (begin, end) = np.dtype(_DTYPES[placed["dtype"]]), placed["shape"], placed["data_offsets"]
        whole = len(placed) == 3 and all(type(each) is int for each in (*shape, begin, end))
    except (TypeError, LookupError, ValueError):
        whole = False
    if not whole:
        raise ValueError(f"{shown(name)}: expected dtype, shape and data_offsets of an array, found {shown(placed)}")
    count = math.prod(shape)
    if min(shape, default=0) < 0 or begin < 0 or end - begin != count * dtype.itemsize:
        raise ValueError("an array has a shape that its place does not fit")
    if start + end > len(buffer):
        raise ValueError("an array lies beyond the file's end")
    if (start + begin) % dtype.itemsize:
        raise ValueError("an array is not aligned")
    return np.frombuffer(buffer, dtype, count, start + begin).reshape(shape)
