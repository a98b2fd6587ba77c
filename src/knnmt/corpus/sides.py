"""Warns about text that seems to be in another language than stated, especially if sides are swapped."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from knnmt.corpus.language_guess import SAMPLE, LanguageGuess, looks_of
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.errors import LanguageWarning


class SidesCheck:
    """Looks at the first pairs of a memory, and warns once if they are not in the requested languages."""

    def __init__(self, path: Path, memory_format: str, config: ReadingConfig) -> None:
        self._path = path
        self._format = memory_format
        self._config = config
        self._sides = (LanguageGuess(), LanguageGuess())

    def see(self, pair: SegmentPair) -> None:
        """Look at a pair; only the first ones count."""
        source, target = self._sides
        if source.seen < SAMPLE:
            source.see(pair.source)
            target.see(pair.target)
            if source.seen == SAMPLE:
                self._judge()

    def end(self) -> None:
        """Judge by the pairs seen so far."""
        if self._sides[0].seen < SAMPLE:
            self._judge()

    def _judge(self) -> None:
        asked = self._config.languages
        found = tuple(guess.other_than(language) for guess, language in zip(self._sides, asked, strict=True))
        looks = [f"the {side} look {name}" for side, name in zip(("sources", "targets"), found, strict=True) if name]
        if not looks:
            return
        if found == tuple(map(looks_of, asked))[::-1]:
            advice = f"Are its sides swapped? {self._turning()}"
        else:
            advice = "Is it the right file? --source-lang and --target-lang name other languages"
        warnings.warn(
            f"{self._path}: {' and '.join(looks)}, but {asked[0]} to {asked[1]} was requested. {advice}",
            LanguageWarning,
            stacklevel=4,
        )

    def _turning(self) -> str:
        if self._format in ("tsv", "csv"):
            columns = self._config.source_column, self._config.target_column
            return f"--source-column {columns[1]} --target-column {columns[0]} swaps them"
        if self._format == "text":
            return "Name its files in the other order; if their names end in languages, those are wrong"
        return "The languages that it states may be wrong"


def watched(texts: Iterable[str], language: str) -> Iterator[str]:
    """The same texts, with a warning if the first of them look like another language."""
    guess = LanguageGuess()
    for text in texts:
        if guess.seen < SAMPLE:
            guess.see(text)
            if guess.seen == SAMPLE:
                _judge_text(guess, language)
        yield text
    if guess.seen < SAMPLE:
        _judge_text(guess, language)


def _judge_text(guess: LanguageGuess, language: str) -> None:
    if found := guess.other_than(language):
        warnings.warn(f"the text looks {found}, but it is translated from {language}", LanguageWarning, stacklevel=3)
