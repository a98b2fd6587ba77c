"""The structures and functions of the compiled code, as its sources declare them.

`structure("Matrix")` has the fields of `struct Matrix` in products.h, at the same places. A field that is a pointer
holds an address.
"""

from __future__ import annotations

import ctypes
import re
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
_DEFINITION = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_ARGUMENTS = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float}
_RESULTS = {**_ARGUMENTS, "void": None, "bool": ctypes.c_bool, "const char*": ctypes.c_char_p}
_FUNCTION = re.compile(r"^(void |bool |int32_t |const char\* )(knnmt_\w+)\(([^)]*)\)", re.MULTILINE)
_FIELD = re.compile(r"^    (?:const )?(\w+)((?: const|[ *])+)([^;()]+);", re.MULTILINE)


@cache
def structure(name: str) -> np.dtype[np.void]:
    """The type of a structure."""
    fields: list[tuple[str, npt.DTypeLike]] = []
    for kind, marks, names in _FIELD.findall(re.sub(r"//[^\n]*", "", _definitions()[name])):
        for each in names.split(","):
            declared, _, count = each.strip().rstrip("]").partition("[")
            pointer = "*" in marks or declared.startswith("*")
            scalar: npt.DTypeLike = np.uintp if pointer else _TYPES[kind] if kind in _TYPES else structure(kind)
            fields.append((declared.lstrip("*"), (scalar, (int(count),)) if count else scalar))
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
    for result, name, arguments in _FUNCTION.findall(_sources()):
        function = getattr(library, name)
        function.restype = _RESULTS[result.removesuffix(" ")]
        given = (each.strip() for each in arguments.split(",")) if arguments else ()
        function.argtypes = [ctypes.c_void_p if "*" in each else _ARGUMENTS[each.split()[0]] for each in given]


@cache
def _definitions() -> dict[str, str]:
    return dict(_DEFINITION.findall(_sources()))


@cache
def _sources() -> str:
    paths = sorted(Path(__file__).parent.glob("*.[ch]*"))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
