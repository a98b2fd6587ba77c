"""Defines which texts count as the same, and which as forms of one another."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_FINAL_MARK = re.compile(r"\s*(?P<mark>[.!?…:;,]+)\s*$")


def plain(text: str) -> str:
    """The form in which texts are compared: white space and Unicode's ways to write a letter make no difference."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def loose(text: str) -> str:
    """The text without capitals and final mark; empty if there is nothing else."""
    return without_final_mark(plain(text)).casefold()


def final_mark(text: str) -> str:
    """The punctuation at the end of a text; may be empty."""
    found = _FINAL_MARK.search(text)
    return found["mark"] if found else ""


def without_final_mark(text: str) -> str:
    """The text before its final mark."""
    return _FINAL_MARK.sub("", text)


def in_the_form_of(text: str, stored: str, translation: str) -> str:
    """The translation of a stored source, with the mark and the capitals of a text that is the same when `loose`."""
    if (mark := final_mark(text)) != final_mark(stored):
        translation = without_final_mark(translation) + mark
    text, stored = text.strip(), stored.strip()
    if text.isupper() and not stored.isupper():
        return translation.upper()
    first = translation[:1]
    if text[:1].isupper() and stored[:1].islower():
        return first.upper() + translation[1:]
    abbreviated = translation[1:2].isupper() or translation[:2] in ("I", "I ", "I'", "I’")
    if text[:1].islower() and stored[:1].isupper() and not abbreviated:
        return first.lower() + translation[1:]
    return translation


def sameness_hash(text: str) -> int:
    """A signed 64-bit number, equal on every machine for texts that are the same when `loose`."""
    digest = hashlib.blake2b(loose(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
