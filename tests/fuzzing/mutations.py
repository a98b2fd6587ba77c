"""Changes by chance: of bytes, of marked-up text, of JSON, and of the arrays of a safetensors file."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

NASTY_NUMBERS = (0, -1, 1, 2**15, 2**31 - 1, -(2**31), 2**32, 2**40, 2**63 - 1, -(2**63), 2**64, 10**40, 0.5, 1e308)
NASTY_TEXTS = (
    "",
    " ",
    "../../etc/passwd",
    "/etc/passwd",
    ".",
    "a/../b",
    "\0",
    "\ud800",
    "\u202e",
    "\x1b[2J",
    "ß" * 300,
    "9" * 5000,
    "nan",
    "-0",
    "{}",
    "%s%n",
    "&#0;",
    "de",
    "x-none",
)
NASTY_BYTES = (b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xff" * 8, b"\n" * 40, b"<!--", b"]]>", b'"', b"\t" * 30, b"\\")
NASTY_MARKS = (
    "<seg>",
    "</seg>",
    "<tu>",
    "</tu>",
    "</body>",
    "<source/>",
    "<target>",
    "<unit>",
    "<x id='1'/>",
    "<![CDATA[",
    "<!DOCTYPE tmx [<!ENTITY a 'b'>]>",
    "&a;",
    "&#55296;",
    "<?xml version='1.0' encoding='utf-7'?>",
    'msgid "',
    "msgstr[99999999999] ",
    "msgctxt ",
    '"Content-Type: text/plain; charset=rot13\\n"',
    '"Plural-Forms: nplurals=-1; plural=9**9**9**9;\\n"',
    "#| ",
    "#~ ",
    "#, fuzzy\n",
)
_TOKEN = re.compile(r"<[^<>]*>|\"[^\"\n]*\"|\w+|\s+|.", re.DOTALL)
_DTYPES = ("BOOL", "U8", "I8", "I16", "I32", "I64", "U64", "F16", "BF16", "F32", "F64", "F8_E4M3", "X", "")


def change_bytes(chance: Random, content: bytes) -> bytes:
    """One to four changes anywhere."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(changed) + 1)
        end = min(len(changed), start + chance.choice((1, 1, 2, 8, 64, 1000)))
        kind = chance.randrange(6)
        if kind == 0:
            for place in range(start, end):
                changed[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[start:end]
        elif kind == 2:
            changed[start:start] = changed[start:end] * chance.choice((1, 2, 50))
        elif kind == 3:
            changed[start:start] = chance.choice(NASTY_BYTES)
        elif kind == 4:
            changed[start:end] = chance.randbytes(end - start)
        else:
            number = int(chance.choice(NASTY_NUMBERS)) % 2**64
            changed[start : start + 8] = struct.pack("<Q", number)[: len(changed[start : start + 8])]
    if chance.random() < 0.1:
        del changed[chance.randrange(len(changed) + 1) :]
    return bytes(changed)


def change_markup(chance: Random, content: bytes) -> bytes:
    """Parts of a text - elements, quoted strings, words - lost, repeated, swapped, nested, put in others' places."""
    tokens = _TOKEN.findall(content.decode("utf-8", "surrogateescape"))
    for _ in range(chance.randint(1, 5)):
        place, other = chance.randrange(len(tokens)), chance.randrange(len(tokens))
        kind = chance.randrange(7)
        if kind == 0:
            tokens[place] = ""
        elif kind == 1:
            tokens[place] *= chance.choice((2, 3, 1000))
        elif kind == 2:
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif kind == 3:
            tokens[place] = chance.choice(NASTY_MARKS)
        elif kind == 4:
            tokens[place] = (
                f'"{chance.choice(NASTY_TEXTS)}"' if tokens[place][:1] == '"' else chance.choice(NASTY_TEXTS)
            )
        elif kind == 5:
            first, last = sorted((place, other))
            tokens[first:first] = tokens[first:last]
        else:
            tokens[place] = re.sub(r'"[^"]*"', lambda _: json.dumps(chance.choice(NASTY_TEXTS)), tokens[place])
    encoding = chance.choice(("utf-8",) * 12 + ("utf-16", "utf-32", "latin-1", "utf-8-sig"))
    try:
        return "".join(tokens).encode(encoding, "surrogateescape")
    except UnicodeError:
        return "".join(tokens).encode("utf-8", "surrogatepass")


def change_json(chance: Random, content: Any) -> Any:
    """One to three values of other kinds, huge, nested, missing or added; the content itself is changed."""
    for _ in range(chance.randint(1, 3)):
        places = list(_places(content))
        if not places:
            return content
        owner, key = chance.choice(places)
        kind = chance.randrange(5)
        if kind == 0:
            del owner[key]
        elif kind == 1 and isinstance(owner, dict):
            owner[chance.choice((*NASTY_TEXTS, *(str(each) for _, each in places)))] = owner[key]
        elif kind == 2 and isinstance(owner, list):
            owner[key:key] = owner[key : key + 1] * chance.choice((1, 2, 2000))
        else:
            owner[key] = _nasty(chance, owner[key])
    return content


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(items):
        yield content, key
        yield from _places(value)


def _nasty(chance: Random, value: Any) -> Any:
    """Another value, often of the same kind, so that it comes past the first check."""
    same: dict[type, Callable[[], Any]] = {
        bool: lambda: not value,
        int: lambda: chance.choice((value + 1, value - 1, -value, *(n for n in NASTY_NUMBERS if isinstance(n, int)))),
        float: lambda: chance.choice((-value, float("nan"), float("inf"), 0.0, 1e308, 1e-320)),
        str: lambda: chance.choice((value[:-1], value + "x", value.upper(), *NASTY_TEXTS)),
    }
    if type(value) in same and chance.random() < 0.7:
        return same[type(value)]()
    deep: Any = []
    for _ in range(chance.choice((3, 70, 800))):
        deep = [deep]
    others: tuple[Any, ...] = (None, True, float("nan"), {}, [], {"file": "x"}, deep, *NASTY_NUMBERS, *NASTY_TEXTS)
    return chance.choice(others)


def change_arrays(chance: Random, content: bytes) -> bytes:
    """A safetensors file with another header, other numbers in an array, or arrays of the same shape exchanged."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    names = [name for name in header if name != "__metadata__"]
    name = chance.choice(names)
    start, end = header[name]["data_offsets"]
    kind = chance.randrange(6)
    if kind == 0:
        header = change_json(chance, header)
    elif kind == 1:
        header[name]["dtype"] = chance.choice(_DTYPES)
    elif kind == 2:
        header[name]["shape"] = chance.choice(([], [0], [-1], [2**62, 4], header[name]["shape"][::-1], [end - start]))
    elif kind == 3:
        other = chance.choice(names)
        header[name], header[other] = header[other], header[name]
    elif end > start:
        for _ in range(chance.choice((1, 1, 3, 50))):
            width = min(chance.choice((1, 2, 4, 8)), end - start)
            place = start + chance.randrange((end - start) // width) * width
            number = int(chance.choice((*NASTY_NUMBERS, 0x7E00, 0x7C00, 0x7F800000))) % 2 ** (8 * width)
            data[place : place + width] = number.to_bytes(width, "little")
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(data)
