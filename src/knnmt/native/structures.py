"""The structures and functions of the compiled code, as its sources declare them.

`structure("Matrix")` has the fields of `struct Matrix` in products.h, at the same places. A field that is a pointer
holds an address.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_TYPES = {
    "int8_t": np.int8,
    "uint8_t": np.uint8,
    "int16_t": np.int16,
    "uint16_t": np.uint16,
    "int32_t": np.int32,
    "int64_t": np.int64,
    "float": np.float32,
    "double": np.float64,
}
_ARGUMENTS = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float}
_RESULTS = {**_ARGUMENTS, "void": None, "bool": ctypes.c_bool, "const char*": ctypes.c_char_p}


@cache
def structure(name: str) -> np.dtype[np.void]:
    """The type of a structure."""
    fields: list[tuple[str, npt.DTypeLike]] = []
    for line in _definitions()[name].splitlines():
        words = line.partition("//")[0].replace("*", " * ").split(";")[0].split()
        declaration = [word for word in words if word != "const"]
        if not declaration:
            continue
        kind, names = declaration[0], "".join(word for word in declaration[1:] if word != "*")
        scalar: npt.DTypeLike = np.uintp if "*" in declaration else _TYPES.get(kind) or structure(kind)
        for each in names.split(","):
            field, _, count = each.removesuffix("]").partition("[")
            fields.append((field, (scalar, (int(count),)) if count else scalar))
    return np.dtype(fields, align=True)


def made(name: str, count: int = 1, /, **values: object) -> npt.NDArray[np.void]:
    """An array of so many structures, with these values in all of them and zeros elsewhere."""
    found = np.zeros(count, structure(name))
    for field, value in values.items():
        found[field] = value
    return found


def address(array: npt.NDArray[Any] | None) -> int:
    """Where an array begins; 0 for none."""
    return 0 if array is None else int(array.ctypes.data)


def declare(library: ctypes.CDLL) -> None:
    """Declare the types of all functions. AttributeError if one is missing."""
    for result, restype in _RESULTS.items():
        for part in _sources().split(f"\n{result} knnmt_")[1:]:
            name, _, rest = part.partition("(")
            arguments = [each.split() for each in rest.partition(")")[0].split(",") if each]
            function = getattr(library, f"knnmt_{name}")
            function.restype = restype
            function.argtypes = [ctypes.c_void_p if "*" in "".join(each) else _ARGUMENTS[each[0]] for each in arguments]


@cache
def _definitions() -> dict[str, str]:
    parts = (part.partition(" {\n") for part in _sources().split("\nstruct ")[1:])
    return {name: body.partition("\n};")[0] for name, _, body in parts if name.isidentifier()}


@cache
def _sources() -> str:
    paths = sorted(Path(__file__).parent.glob("*.[ch]*"))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
