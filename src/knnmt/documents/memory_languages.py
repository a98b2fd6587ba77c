"""The shipped model for memories: by the languages that they state, or else by the language of their texts."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from knnmt.corpus.detection import detect_format
from knnmt.corpus.language_guess import looks_of, recognise
from knnmt.corpus.lines import read_lines
from knnmt.corpus.opening import open_stream
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.po import po_languages
from knnmt.corpus.tmx import tmx_languages
from knnmt.corpus.xliff import xliff_languages
from knnmt.documents.elements import plain
from knnmt.documents.memory_reading import MemoriesOrPairs, MemoryReading, files_or_pairs
from knnmt.documents.opening import document_format, open_document
from knnmt.documents.read_memories import jobs_of, named_side, read_memories
from knnmt.engine.language_codes import same_language
from knnmt.engine.model_choice import ModelChoice, choose_model
from knnmt.errors import LanguagesRequiredError, LanguageWarning

_FIRST = 200  # pairs, lines or units that are looked at
Tags = tuple[str | None, str | None]


def model_for_memories(
    paths: Sequence[Path], source: str | None, target: str | None, config: ReadingConfig
) -> ModelChoice:
    """The shipped model for memories, by the given languages or by those of the memories.

    Args:
        paths: files and folders, as `read_memories` takes them
        source: the source language, if it is given; then nothing is read
        target: the target language, if it is given
        config: how to read; its languages do not count
    """
    subject = ", ".join(map(str, paths[:3])) + ", ..." * (len(paths) > 3)
    if source is not None or target is not None:
        return choose_model(source, target, subject, "as the options say")
    tags, reason = languages_of_memories(paths, config)
    return choose_model(*tags, subject, reason)


def languages_of_memories(paths: Sequence[Path], config: ReadingConfig) -> tuple[Tags, str]:
    """The languages of memories, None if unknown, and how they are known; an error if two memories contradict."""
    config = replace(config, source_language="de", target_language="en")
    known = [(path, *each) for path, each in _known(paths, config) if each[0] != (None, None)]
    # A catalog's messages may be in either language: it decides only if nothing else does.
    known = [each for each in known if None not in each[1]] or known
    if not known:
        return (None, None), ""
    first, (source, target), reason = known[0]
    for path, tags, _ in known[1:]:
        sides = zip(tags, (source, target), strict=True)
        if any(one and other and same_language(one, other) is False for one, other in sides):
            raise LanguagesRequiredError(
                f"{first} goes from {_shown(source, target)}, but {path} from {_shown(*tags)}. "
                "Give --source-lang and --target-lang"
            )
        source, target = source or tags[0], target or tags[1]
    return (source, target), reason


def model_for(memories: MemoriesOrPairs, source: str | None, target: str | None) -> tuple[ModelChoice, MemoriesOrPairs]:
    """The shipped model for memories or pairs, and the same memories or pairs, which are all still to be read."""
    given = files_or_pairs(memories, ReadingConfig(), (source, target))
    if isinstance(given, MemoryReading):
        return model_for_memories(given.paths, source, target, given.reading), memories
    rest = iter(given)
    first = list(islice(rest, _FIRST))
    if source is not None or target is not None:
        return choose_model(source, target, "the pairs", "as the arguments say"), chain(first, rest)
    tags, reason = _languages_of_pairs(first)
    return choose_model(*tags, "the pairs", reason), chain(first, rest)


def _known(paths: Sequence[Path], config: ReadingConfig) -> Iterator[tuple[Path, tuple[Tags, str]]]:
    files = [path for path in paths if not path.is_dir()]
    for job in jobs_of(files, config):
        if len(job) == 1:
            yield job[0], _languages_of_file(job[0], config)
        else:
            first = min(job, key=files.index)
            yield first, ((_language_of_side(first, config), None), f"{first.name} is the source")
    for folder in paths:
        if folder.is_dir():
            for job in jobs_of([folder], config):
                # The names of two files say their languages, but not which is the source.
                yield job[0], _languages_of_file(job[0], config) if len(job) == 1 else ((None, None), "")


def _languages_of_file(path: Path, config: ReadingConfig) -> tuple[Tags, str]:
    """The languages that a file with both sides states, or that its pairs look like, and how they are known."""
    stated: Tags = (None, None)
    if document_format(path) == "qt":
        stated = open_document(path).languages
    elif path.is_file():  # a pipe can be read only once
        with open_stream(path, config.max_bytes) as stream:
            kind = config.format or detect_format(path, stream.peek())
            if kind == "tmx":
                stated = tmx_languages(stream, str(path), config)
            elif kind == "xliff":
                stated = xliff_languages(stream, str(path), config)
            elif kind == "po":
                side = named_side(path, config)
                source, target = po_languages(stream, str(path))
                stated = source, config.catalog_language or target or (None if side is None else config.languages[side])
        if kind in ("tsv", "csv"):
            return _languages_of_pairs(read_memories(path, config))
    return stated, f"as {path.name} states"


def _language_of_side(path: Path, config: ReadingConfig) -> str | None:
    """The language of a file with one side: by its name, or else by its text."""
    side = named_side(path, config)
    if side is not None:
        return config.languages[side]
    if document_format(path) == "text":
        texts: Iterable[str] = read_lines(path)
    else:
        texts = (plain(unit.source) for unit in open_document(path).units)
    return recognise("\n".join(islice(texts, _FIRST)))


def _languages_of_pairs(pairs: Iterable[SegmentPair]) -> tuple[Tags, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LanguageWarning)
        first = list(islice(pairs, _FIRST))
    sides = [pair.source for pair in first], [pair.target for pair in first]
    source, target = (recognise("\n".join(side)) for side in sides)
    if source is None or target is None or source == target:
        return (None, None), ""
    return (source, target), f"the sources look {looks_of(source)}"


def _shown(source: str | None, target: str | None) -> str:
    return f"{source or 'an unstated language'} to {target or 'an unstated one'}"
