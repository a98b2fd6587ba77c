"""`Glossaries`: terms that tools and the page send, kept for later requests that name them.

Each is kept in DATA/glossaries/ID.json; without a data directory, in memory until the service ends. The key that made
a glossary can use it, and so can keys with the role admin for all domains.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from knnmt.config import check
from knnmt.corpus.glossary import Glossary
from knnmt.corpus.glossary_files import read_terms
from knnmt.corpus.languages import normalise
from knnmt.datastore.publication import storage_errors
from knnmt.engine.language_codes import same_language
from knnmt.errors import KnnmtError
from knnmt.service.access import Caller
from knnmt.service.data_directory import read_record, write_record
from knnmt.service.problems import Problem, problem_of

_GLOSSARIES = "glossaries"
_MAX_GLOSSARIES = 1_000
_MAX_TERMS = 20_000
_MAX_TERM_BYTES = 1_024
_MAX_NAME_CHARACTERS = 1_024
_MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The terms of one language pair, whose tags are short and in lower case."""

    source: str
    target: str
    terms: tuple[tuple[str, str], ...]

    @property
    def pair(self) -> tuple[str, str]:
        return self.source, self.target

    def over(self, other: Dictionary) -> Dictionary:
        """This dictionary, with the other's terms where it has none."""
        return replace(self, terms=tuple({**dict(other.terms), **dict(self.terms)}.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGlossary:
    """A glossary.

    by: the name of the key that made it
    created: seconds since 1970
    """

    id: str
    name: str
    by: str
    created: float
    dictionaries: tuple[Dictionary, ...]

    def __post_init__(self) -> None:
        check(str(uuid.UUID(self.id)) == self.id, "the id of a glossary must be a UUID")
        check(0 < len(self.name) <= _MAX_NAME_CHARACTERS, "a glossary must have a name")

    def of(self, source: str, target: str) -> Dictionary | None:
        """The terms of a language pair."""
        return next(iter(self.fitting(source, target)), None)

    def fitting(self, source: str | None, target: str | None) -> list[Dictionary]:
        """The dictionaries of these languages, of which each may be None for any."""
        return [
            each
            for each in self.dictionaries
            if (source is None or _is_same(each.source, source)) and (target is None or _is_same(each.target, target))
        ]

    def with_dictionary(self, new: Dictionary) -> StoredGlossary:
        """A copy in which this dictionary replaces the one of the same languages."""
        others = tuple(each for each in self.dictionaries if each.pair != new.pair)
        return replace(self, dictionaries=(*others, new))


class Glossaries:
    """The glossaries of a service. Threads may share it.

    data: None: they are forgotten when the service ends
    """

    def __init__(self, data: Path | None) -> None:
        self._place = None if data is None else data.resolve() / _GLOSSARIES
        self._changing = Lock()
        self._known: dict[str, StoredGlossary] = {}
        if self._place is not None:
            with storage_errors(self._place):
                self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            for found in sorted(self._place.glob("*.json")):
                if (read := read_record(found, StoredGlossary, _MAX_FILE_BYTES, found.stem)) is not None:
                    self._known[read.id] = read

    @property
    def can_keep(self) -> bool:
        """Whether glossaries outlast the service."""
        return self._place is not None

    def seen_by(self, caller: Caller) -> list[StoredGlossary]:
        """The glossaries that a caller may use, the oldest first."""
        return sorted((each for each in self._known.values() if _sees(caller, each)), key=lambda each: each.created)

    def of(self, number: str, caller: Caller) -> StoredGlossary:
        """A glossary that a caller may use."""
        found = self._known.get(number.lower())
        if found is None or not _sees(caller, found):
            raise Problem(404, "unknown_glossary", f"there is no glossary {number[:80]!r}")
        return found

    def make(self, name: str, dictionaries: tuple[Dictionary, ...], caller: Caller) -> StoredGlossary:
        """Make and keep a glossary."""
        if len(self._known) >= _MAX_GLOSSARIES:
            raise Problem(
                413, "too_many_glossaries", f"the service keeps at most {_MAX_GLOSSARIES:,} glossaries: delete some"
            )
        if not 0 < len(name) <= _MAX_NAME_CHARACTERS:
            raise Problem(422, "invalid_request", f"a name must have 1 to {_MAX_NAME_CHARACTERS:,} characters")
        return self.put(
            StoredGlossary(
                id=str(uuid.uuid4()), name=name, by=caller.name, created=time.time(), dictionaries=dictionaries
            )
        )

    def put(self, glossary: StoredGlossary) -> StoredGlossary:
        """Replace the glossary with the same id."""
        with self._changing:
            if self._place is not None:
                write_record(self._place / _file_name(glossary.id), glossary)
            self._known[glossary.id] = glossary
        return glossary

    def delete(self, glossary: StoredGlossary) -> None:
        """Delete a glossary."""
        with self._changing:
            if self._place is not None:
                file = self._place / _file_name(glossary.id)
                with storage_errors(file):
                    file.unlink(missing_ok=True)
            self._known.pop(glossary.id, None)


def read_dictionary(file: Path, name: str, languages: tuple[str, str], max_bytes: int) -> tuple[Dictionary, int]:
    """The terms of a file, and how many more it has for the same sources, which are left out.

    name: the file's name, for problems; they say which line is invalid
    """
    terms: dict[str, str] = {}
    left_out = 0
    try:
        for term, place in read_terms(file, *languages, max_bytes):
            _require_term(term.source, term.target, place)
            left_out += terms.setdefault(term.source, term.target) != term.target
            _require_few(len(terms))
    except (KnnmtError, Problem) as error:
        problem = error if isinstance(error, Problem) else problem_of(error)
        raise Problem(problem.status, problem.code, problem.message.replace(str(file), name)) from None
    source, target = (normalise(tag).partition("-")[0] for tag in languages)
    return Dictionary(source, target, tuple(terms.items())), left_out


def require_terms(terms: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Raise a problem that names the first invalid term."""
    if not terms:
        raise Problem(422, "invalid_request", "expected entries, found none")
    _require_few(len(terms))
    seen: set[str] = set()
    for number, (source, target) in enumerate(terms, 1):
        where = f"entry {number}"
        _require_term(source, target, where)
        if source in seen:
            raise Problem(422, "invalid_request", f"{where}: {source[:60]!r} appears twice")
        seen.add(source)
    return tuple(terms)


def _require_few(count: int) -> None:
    if count > _MAX_TERMS:
        raise Problem(413, "too_large", f"a glossary may have at most {_MAX_TERMS:,} terms: divide it")


def _require_term(source: str, target: str, where: str) -> None:
    if not source or not target:
        raise Problem(422, "invalid_request", f"{where}: expected a term and its translation, found white space")
    if any(character < " " or "\ud800" <= character <= "\udfff" for character in source + target):
        raise Problem(422, "invalid_request", f"{where}: contains a control character")
    if max(len(source.encode()), len(target.encode())) > _MAX_TERM_BYTES:
        raise Problem(422, "invalid_request", f"{where}: a term may have at most {_MAX_TERM_BYTES:,} bytes")


def terms_of(dictionaries: list[Dictionary], source: str | None, target: str | None) -> Glossary:
    """Terms as the translator takes them. If some contradict each other, the first counts."""
    return Glossary([term for each in dictionaries for term in each.terms], source, target)


def _is_same(one: str, other: str) -> bool:
    return one == other or bool(same_language(one, other))


def _file_name(number: str) -> str:
    return f"{number}.json"


def _sees(caller: Caller, glossary: StoredGlossary) -> bool:
    return caller.name == glossary.by or (caller.may("admin") and caller.sees_all)
