"""The name of a translated document: a language tag in the name of the original becomes that of the target."""

from __future__ import annotations

import re
from pathlib import PurePath

from knnmt.corpus.languages import is_tag, matches, normalise

# What stands before the ending of a name, or at the end of the name of a directory: "film.de", "values-de-rAT", "de".
_LAST = re.compile(r"(?P<rest>(?:.*?[._-])??)(?P<tag>[A-Za-z]{2,3}(?:(?P<region>[_-]r?)(?:[A-Z]{2}|[A-Z][a-z]{3}))?)")


def translated_path(path: PurePath, source: str | None, target: str | None) -> PurePath:
    """A path in which every part that ends with the source language ends with the target language."""
    if source is None or target is None:
        return path
    parts = [_translated(part, source, target) or part for part in path.parts[:-1]]
    stem, ending = path.stem, path.suffix
    return PurePath(*parts, (_translated(stem, source, target) or stem) + ending)


def download_name(name: str, source: str | None, target: str | None, bilingual: bool) -> str:
    """The name of a translation for a person who has the original, too: it says the target language."""
    if target is None:
        return name
    path = PurePath(name)
    stated = _tag_of(path.stem)
    if stated is not None and matches(target, stated):
        return name
    renamed = None if bilingual or source is None else _translated(path.stem, source, target)
    return (renamed or f"{path.stem}.{normalise(target)}") + path.suffix


def stated_language(path: PurePath) -> str | None:
    """The language that the name of a document says, if it is German or English: film.de.srt; None otherwise."""
    tag = _tag_of(path.stem)
    return None if tag is None or normalise(tag).split("-")[0] not in ("de", "en") else tag


def _tag_of(part: str) -> str | None:
    found = _LAST.fullmatch(part)
    return None if found is None else re.sub(r"[_-]r?(?=[A-Z]{2}$)", "-", found["tag"])


def _translated(part: str, source: str, target: str) -> str | None:
    """A part of a path with the target language at its end; None if the source language does not stand there."""
    found, stated = _LAST.fullmatch(part), _tag_of(part)
    if found is None or stated is None or not is_tag(stated):
        return None
    if not (matches(source, stated) or matches(stated, source)):
        return None
    language, _, region = normalise(target).partition("-")
    joined = found["region"] or "-"
    written = language + (joined + (region.upper() if len(region) == 2 else region.title()) if region else "")
    return found["rest"] + written
