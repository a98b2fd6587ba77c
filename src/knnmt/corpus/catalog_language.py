"""The target language of a PO catalog."""

from __future__ import annotations

import re
from pathlib import PurePath

from knnmt.corpus.languages import is_tag, matches, name_tags
from knnmt.corpus.options import ReadingConfig
from knnmt.errors import InputError

# These look like languages even if they were not requested: fr.po, pt_BR.po. Longer names are mostly program names.
_SHORT_TAG = re.compile(r"[a-z]{2}([_-][A-Z]{2})?")


def catalog_language(header: str | None, name: str, config: ReadingConfig) -> str:
    """The language from the option, else from the header's Language field, else from the file's name or directory."""
    if config.catalog_language:
        return config.catalog_language
    if header and is_tag(header):
        return header
    path = PurePath(name)
    for part, before in zip(path.parts[1:], path.parts, strict=False):
        if part == "LC_MESSAGES" and is_tag(before):
            return before
    for tag in name_tags(path):
        if _SHORT_TAG.fullmatch(tag) or _asked(tag, config):
            return tag
    for directory in reversed(path.parts[:-1]):
        if _asked(directory, config):
            return directory
    raise InputError(
        f"{name}: expected a catalog that states its language, found neither a Language header nor a language in "
        f"its name or directory. Give it as catalog_language (--catalog-lang)"
    )


def _asked(tag: str, config: ReadingConfig) -> bool:
    return is_tag(tag) and any(matches(asked, tag) for asked in config.languages)
