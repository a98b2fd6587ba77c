"""Finds the origins that a user means: a whole `FILE#UNIT`, a file by its path or name, or a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

_MAX_NAMES = 5000  # compared for a suggestion; each takes a few microseconds


def file_of(origin: str) -> str:
    """The file of an origin, without the unit."""
    return origin.partition("#")[0]


def origin_test(asked: str) -> Callable[[str], bool]:
    """A test for origins: `asked` is a file or, with a `#`, an origin; its path may begin at any directory.

    An asterisk stands for any characters.
    """
    part = str if "#" in asked else file_of
    if "*" in asked:
        begin, *middle, end = asked.split("*")
        pattern = re.compile(
            rf"\A(?>.*?(?:\A|(?<=[/\\])){re.escape(begin)}){''.join(f'(?>.*?{re.escape(each)})' for each in middle)}"
            rf".*{re.escape(end)}",
            re.DOTALL,
        )
        return lambda origin: pattern.fullmatch(part(origin)) is not None
    ends = (f"/{asked}", f"\\{asked}")

    def is_meant(origin: str) -> bool:
        found = part(origin)
        return found == asked or (asked != "" and found.endswith(ends))

    return is_meant


def close_origins(asked: str, origins: Iterable[str], most: int = 3) -> list[str]:
    """Similar origins for one that does not exist: files and names of files, or units of a file."""
    names: dict[str, None] = {}
    for origin in origins:
        file = file_of(origin)
        name = re.split(r"[/\\]", file)[-1]
        unit = origin[len(file) :]
        for each in (file, name) if "#" not in asked else (origin, name + unit):
            names.setdefault(each)
        if len(names) > _MAX_NAMES:
            break
    return get_close_matches(asked, names, most)
