"""Defines which texts count as the same, and which as forms of one another."""

from __future__ import annotations

import hashlib
import unicodedata

_FINAL_MARKS = ".!?…:;,"


def plain(text: str) -> str:
    """The form in which texts are compared: white space and Unicode's ways to write a letter make no difference."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def loose(text: str) -> str:
    """The text without capitals and final mark; empty if there is nothing else."""
    return without_final_mark(plain(text)).casefold()


def final_mark(text: str) -> str:
    """The punctuation at the end of a text; may be empty."""
    text = text.rstrip()
    return text[len(text.rstrip(_FINAL_MARKS)) :]


def without_final_mark(text: str) -> str:
    """The text before its final mark."""
    return text.rstrip().rstrip(_FINAL_MARKS).rstrip() if final_mark(text) else text


def sameness_hash(text: str) -> int:
    """A signed 64-bit number, equal on every machine for texts that are the same when `loose`."""
    digest = hashlib.blake2b(loose(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
