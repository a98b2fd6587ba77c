"""Which texts count as the same, and which as forms of one another."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_FINAL_MARK = re.compile(r"\s*(?P<mark>[.!?…:;,]+)\s*$")


def plain(text: str) -> str:
    """A text as it is compared with others: those that differ in white space, or in how Unicode writes a letter."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def loose(text: str) -> str:
    """The same whatever its capitals and its final mark; empty where there is nothing else."""
    return without_final_mark(plain(text)).casefold()


def final_mark(text: str) -> str:
    """The punctuation that a text ends with, or nothing."""
    found = _FINAL_MARK.search(text)
    return found["mark"] if found else ""


def without_final_mark(text: str) -> str:
    """The text before it."""
    return _FINAL_MARK.sub("", text)


def in_the_form_of(text: str, stored: str, translation: str) -> str:
    """The translation of a stored source, with the mark and the capitals of a text that is `loose`ly the same."""
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
    """A number of 64 bits with a sign that is the same for texts that are `loose`ly the same, on every machine."""
    digest = hashlib.blake2b(loose(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
