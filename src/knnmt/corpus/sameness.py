"""Which texts count as the same: those that differ in white space, or in how Unicode writes a letter, at most."""

from __future__ import annotations

import hashlib
import unicodedata


def plain(text: str) -> str:
    """A text as it is compared with others."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def sameness_hash(text: str) -> int:
    """A number of 64 bits with a sign that is the same for texts that count as the same, on every machine."""
    digest = hashlib.blake2b(plain(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
