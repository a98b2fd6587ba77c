"""Which names of encodings a file or a request may state.

Python has codecs that are not encodings of text: some do not decode to text, some take a time that grows with the
square of the length, one always fails. A stranger must not choose them.
"""

from __future__ import annotations

import codecs
import encodings
import pkgutil
from encodings.aliases import aliases
from functools import cache

_NOT_FOR_TEXT = frozenset(
    {
        "base64_codec",
        "bz2_codec",
        "hex_codec",
        "idna",
        "mbcs",
        "oem",
        "punycode",
        "quopri_codec",
        "raw_unicode_escape",
        "rot_13",
        "undefined",
        "unicode_escape",
        "uu_codec",
        "zlib_codec",
    }
)


def text_encoding(stated: str) -> str | None:
    """Python's name of a stated encoding of text; None if there is no such encoding."""
    module = _module(stated)
    return codecs.lookup(module).name if module is not None and module not in _NOT_FOR_TEXT else None


def is_codec(stated: str) -> bool:
    """Whether Python knows a codec of this name, for text or not."""
    return _module(stated) is not None


def _module(stated: str) -> str | None:
    """The module of a codec. Names are looked up here, because Python keeps every unknown name for ever."""
    name = encodings.normalize_encoding(stated).lower().replace(".", "_")
    name = aliases.get(name, name)
    return name if name in _modules() else None


@cache
def _modules() -> frozenset[str]:
    found = {module.name for module in pkgutil.iter_modules(encodings.__path__)} | set(aliases.values())
    return frozenset(found | _NOT_FOR_TEXT) - {"aliases"}
