"""Language tags: one spelling for all, and a check which of several tags fits a requested one.

A requested tag is matched, best first, by the same tag; by a more specific one ("de" by "de-AT"); by a less specific
one ("de-AT" by "de"). Another region does not match: "de-AT" is not matched by "de-CH".
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePath
from typing import Literal

_TAG = re.compile(r"[a-z]{2,3}(-[a-z0-9]{1,8})*")
_MAX_TAG_CHARACTERS = 100  # far more than any tag has
_COMPRESSED = frozenset({".gz", ".xz", ".zst", ".zstd"})


def normalise(tag: str) -> str:
    """The tag in lower case, with hyphens, and without the encoding and modifier that locale names carry."""
    return re.split(r"[.@]", tag.strip().lower().replace("_", "-"), maxsplit=1)[0]


def is_tag(text: str) -> bool:
    """Whether the text has the form of a language tag; the language need not exist."""
    return _TAG.fullmatch(normalise(text)) is not None


def match_rank(asked: str, found: str) -> int | None:
    """0 for the best kind of match, higher for weaker ones, None for no match."""
    return _match_rank(asked, found) if len(found) <= _MAX_TAG_CHARACTERS else None


@lru_cache(maxsize=1024)  # called for every unit of a memory, always with the same few tags
def _match_rank(asked: str, found: str) -> int | None:
    asked, found = normalise(asked), normalise(found)
    if asked == found:
        return 0
    if found.startswith(f"{asked}-"):
        return 1
    return 2 if asked.startswith(f"{found}-") else None


def matches(asked: str, found: str) -> bool:
    """Whether the found tag matches the requested one."""
    return match_rank(asked, found) is not None


def direction(
    asked: tuple[str, str], found_source: str | None, found_target: str | None
) -> Literal["same", "swapped"] | None:
    """How a file's languages relate to the requested pair; a language that the file does not state fits any."""

    def agree(source: str, target: str) -> bool:
        return (found_source is None or matches(source, found_source)) and (
            found_target is None or matches(target, found_target)
        )

    if agree(*asked):
        return "same"
    return "swapped" if agree(asked[1], asked[0]) else None


def plain_name(path: PurePath) -> PurePath:
    """The path without the suffix of a compression format."""
    return path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path


def name_tags(path: PurePath) -> list[str]:
    """Possible language tags at the end of a file's name, likeliest first: corpus.de, corpus.de.txt, corpus-de."""
    name = plain_name(path).name
    for suffix in (".txt", ".po", ".pot"):
        name = name.removesuffix(suffix)
    last = name.rpartition(".")[2]
    return [part for part in dict.fromkeys([last, *re.split(r"[-_]", last)[-1:]]) if is_tag(part)]
