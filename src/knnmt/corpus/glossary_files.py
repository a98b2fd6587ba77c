"""Reads glossaries: TBX (of 2008 and of 2019), tables with two columns, and any translation memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from knnmt.corpus.glossary import Glossary, Term
from knnmt.corpus.languages import match_rank
from knnmt.corpus.markup import local_name, read_units
from knnmt.corpus.opening import open_stream, origin_name
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.prolog import read_prolog
from knnmt.corpus.reading import read_files
from knnmt.corpus.report import ReadingReport
from knnmt.errors import InputError

if TYPE_CHECKING:
    from lxml import etree

_ENTRIES = {"martif": "termEntry", "tbx": "conceptEntry"}  # by the root element of a file
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def read_glossary(path: str | Path, source_language: str = "de", target_language: str = "en") -> Glossary:
    """The terms of a file, in order."""
    terms = [term for term, _ in read_terms(path, source_language, target_language)]
    return Glossary(terms, source_language, target_language)


def read_terms(
    path: str | Path, source_language: str, target_language: str, max_bytes: int | None = None
) -> Iterator[tuple[Term, str]]:
    """The terms of a file, in order, each with the place that it came from, such as `terms.tsv#12`.

    max_bytes: of a compressed file, once it is unpacked
    """
    path = Path(path)
    report = ReadingReport(remedy="Repair it: the whole glossary must be valid")
    config = ReadingConfig(source_language=source_language, target_language=target_language, max_bytes=max_bytes)
    with open_stream(path) as stream:
        head = stream.peek()
    root = read_prolog(head).root if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") else None
    is_empty = True
    for term, place in _tbx_terms(path, root, config, report) if root in _ENTRIES else _pairs(path, config, report):
        is_empty = False
        yield term, place
    if is_empty:
        raise InputError(
            f"{path}: expected terms in {source_language} and {target_language}, found none. A glossary is a table "
            "with a term and its translation in two columns, or TBX with both languages"
        )


def _pairs(path: Path, config: ReadingConfig, report: ReadingReport) -> Iterator[tuple[Term, str]]:
    for pair in read_files([path], config, report):
        yield Term(pair.source.strip(), pair.target.strip()), pair.origin


def _tbx_terms(path: Path, root: str, config: ReadingConfig, report: ReadingReport) -> Iterator[tuple[Term, str]]:
    with open_stream(path, config.max_bytes) as stream:
        entries = read_units(stream, origin_name(path), root, (_ENTRIES[root],), (), config, report)
        for number, entry in enumerate(entries, 1):
            place = f"{origin_name(path)}#{entry.get('id') or number}"
            sides = [_terms_in(entry, language) for language in config.languages]
            # Every name of a concept in one language is translated by its first name in the other.
            for source, target in product(sides[0], sides[1][:1]):
                yield Term(source, target), place


def _terms_in(entry: etree._Element, language: str) -> list[str]:
    """The names of a concept in the best match for a language."""
    ranked: list[tuple[int, list[str]]] = []
    for side in entry:
        told = side.get(_XML_LANG) or side.get("lang") or ""
        rank = match_rank(language, told) if isinstance(side.tag, str) and told else None
        if rank is not None:
            found = ("".join(map(str, term.itertext())).strip() for term in side.iter() if _is_term(term))
            ranked.append((rank, [term for term in found if term]))
    return min(ranked, default=(0, []), key=lambda each: each[0])[1]


def _is_term(node: etree._Element) -> bool:
    return isinstance(node.tag, str) and local_name(node) == "term"
