"""Which texts count as the same: those that differ in white space, or in how Unicode writes a letter, at most."""

from __future__ import annotations

import unicodedata


def plain(text: str) -> str:
    """A text as it is compared with others."""
    return " ".join(unicodedata.normalize("NFC", text).split())
