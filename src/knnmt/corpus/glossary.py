"""Glossaries: terms with a settled translation; finds them in a text, and checks whether a translation has them.

A word is a form of a term's word if both can be the same without a common ending of their language: "Dateien" is a
form of "Datei", "files" of "file". If a source term has a capital, the word must have one: "Seite" is not found in
"seit". Words of fewer than four letters, and words in capitals, must be the same. If the endings of a language are not
listed, all words must be the same, but capitals do not count.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from knnmt.corpus.languages import normalise
from knnmt.errors import SettingError

_ENDINGS = {
    "de": ("ern", "ens", "nen", "sen", "en", "er", "es", "em", "se", "e", "n", "s"),
    "en": ("ies", "es", "ed", "ing", "s", "y", "e"),
}
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_COMPARED, _COMPARED_PER_WORD = 100_000, 500  # words of terms with those of a text
_MIN_LETTERS = 4  # letters of a word that can have forms
_MIN_STEM_LETTERS = 3  # letters that must remain without the ending


@dataclass(frozen=True, slots=True)
class Term:
    """A term and the translation it must have."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class TermUse:
    """A term in a text, from `start` to `end`. contradicted: another translation that the glossary also has for it"""

    term: Term
    start: int
    end: int
    contradicted: str | None = None


@dataclass(frozen=True, slots=True)
class _Words:
    """Words of a term: the possible stems of each, and the words that have no forms."""

    stems: tuple[frozenset[str], ...]
    exact: tuple[str, ...]


class Glossary:
    """Terms of a language pair.

    terms: if one source has several targets, the first counts
    source_language, target_language: languages with known endings; None if words have no forms
    """

    def __init__(
        self,
        terms: Iterable[Term | tuple[str, str]],
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> None:
        self.terms = tuple(each if isinstance(each, Term) else Term(*each) for each in terms)
        self.source_language, self.target_language = source_language, target_language
        targets: dict[str, list[str]] = {}
        for term in self.terms:
            targets.setdefault(term.source, []).append(term.target)
        self._by_word: dict[str, list[tuple[_Words, Term, str | None]]] = {}
        for source, known in targets.items():
            words = _words(source, source_language)
            if words.stems:
                other = next((target for target in known if target != known[0]), None)
                for stem in words.stems[0]:
                    self._by_word.setdefault(stem, []).append((words, Term(source, known[0]), other))

    def __repr__(self) -> str:
        """With a digest of the content, by which resumed runs compare their settings."""
        held = repr((self.terms, self.source_language, self.target_language))
        return f"<Glossary of {len(self)} terms, {hashlib.sha256(held.encode()).hexdigest()[:16]}>"

    def __len__(self) -> int:
        return len(self.terms)

    def of_languages(self, source: str | None, target: str | None) -> Glossary:
        """The same terms, with the endings of these languages unless it already has languages."""
        languages = self.source_language or source, self.target_language or target
        return self if languages == (self.source_language, self.target_language) else Glossary(self.terms, *languages)

    def uses(self, text: str) -> Iterator[TermUse]:
        """The terms of a text, from left to right. If one is inside another, the longer one counts."""
        words = list(_WORD.finditer(text))
        stems = [_stems(word.group(), self.source_language) for word in words]
        written = [word.group() for word in words]
        place, left = 0, _COMPARED + _COMPARED_PER_WORD * len(words)
        while place < len(words):
            entries = [entry for stem in stems[place] for entry in self._by_word.get(stem, [])]
            left -= len(entries)
            for wanted, term, contradicted in sorted(entries, key=lambda entry: -len(entry[0].stems)):
                count = len(wanted.stems)
                fitting = _fitting(wanted, stems, written, place)
                left -= fitting
                if left < 0:
                    raise SettingError(
                        f"the glossary has too many terms that begin like parts of a text: {text[:60]!r}. "
                        "Use a smaller glossary for this text"
                    )
                if fitting == count and _has_capitals(term.source, written[place : place + count]):
                    last = words[place + len(wanted.stems) - 1]
                    yield TermUse(term, words[place].start(), last.end(), contradicted)
                    place += len(wanted.stems) - 1
                    break
            place += 1

    def is_met(self, term: Term, translation: str) -> bool:
        """Whether a translation contains a term or a form of it."""
        wanted = _words(term.target, self.target_language)
        if not wanted.stems:
            return term.target in translation
        words = _WORD.findall(translation)
        stems = [_stems(word, self.target_language) for word in words]
        count = len(wanted.stems)
        return any(_fitting(wanted, stems, words, place) == count for place in range(len(stems) - count + 1))

    def forms(self, term: Term) -> list[str]:
        """The accepted forms of a term: as it is, with a capital, and in English with and without a plural s."""
        forms = [term.target]
        if _language(self.target_language) == "en" and term.target[-1:].isalpha():
            forms.append(term.target[:-1] if term.target.endswith("s") else f"{term.target}s")
        forms += [form[:1].upper() + form[1:] for form in forms]
        return [form for form in dict.fromkeys(forms) if self.is_met(term, form)]


def _words(text: str, language: str | None) -> _Words:
    words = _WORD.findall(text)
    return _Words(
        tuple(_stems(word, language) for word in words), tuple(word if _is_fixed(word) else "" for word in words)
    )


def _fitting(wanted: _Words, stems: list[frozenset[str]], words: list[str], place: int) -> int:
    """How many words from a place on, with their possible stems, are forms of the wanted words, up to the first that is
    not.
    """
    for count, (mine, exact) in enumerate(zip(wanted.stems, wanted.exact, strict=True)):
        here = place + count
        if here == len(words) or mine.isdisjoint(stems[here]) or (exact and exact != words[here]):
            return count
    return len(wanted.stems)


def _has_capitals(term: str, words: list[str]) -> bool:
    """Whether words begin with capitals if the words of a term do."""
    return all(
        word[0].isupper() or not wanted[0].isupper() for wanted, word in zip(_WORD.findall(term), words, strict=True)
    )


def _is_fixed(word: str) -> bool:
    return len(word) > 1 and word.isupper()


def _language(tag: str | None) -> str:
    return normalise(tag or "").partition("-")[0]


def _stems(word: str, language: str | None) -> frozenset[str]:
    """The possible stems of a word, without capitals and umlauts."""
    folded = word.casefold()
    endings = _ENDINGS.get(_language(language), ())
    if len(folded) < _MIN_LETTERS or not endings:
        return frozenset({folded})
    plain = "".join(letter for letter in unicodedata.normalize("NFD", folded) if not unicodedata.combining(letter))
    cut = {
        plain[: -len(ending)]
        for ending in endings
        if plain.endswith(ending) and len(plain) - len(ending) >= _MIN_STEM_LETTERS
    }
    return frozenset({plain, *cut})
