"""Strings as interfaces have them, made by chance: words, placeholders of all kinds, numbers and nested tags."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass

from knnmt.protection.placeholder_syntax import PLAIN

WORDS = """
    die Datei wurde gelöscht Klicken auf den Knopf um fortzufahren Nachrichten von Benutzer im Ordner gefunden Fehler
    beim Speichern von Einstellungen warten neue Version ist verfügbar für und oder nicht mehr als zuletzt geändert
""".split()  # noqa: SIM905
MARKS = ["", "", "", ",", ":", ".", "!", " –"]
EXAMPLES = [each for kind in PLAIN.kinds for each in kind.examples.split()]
TAGS = ["b", "i", "em", "strong", "a", "span", "code", "g"]


@dataclass(frozen=True, slots=True)
class MadeString:
    """A text, what must come out of it and how often, and the digits that it has outside of that."""

    text: str
    exact: Counter[str]
    digits: Counter[str]

    def faults(self, translation: str) -> list[str]:
        """What is lost, doubled, or badly nested in a translation, told without any of the code that is tested."""
        counts = {raw: (translation.count(raw), times) for raw, times in self.exact.items()}
        wrong = [f"{raw!r}: {has} of {times}" for raw, (has, times) in counts.items() if has != times]
        rest = translation
        for raw in sorted(self.exact, key=len, reverse=True):
            rest = rest.replace(raw, "\0")
        there = Counter(re.findall(r"\d+", re.sub(r"(?<=\d)[.,](?=\d{3}(?!\d))", "", rest)))
        wrong += [f"digits {run}: {there[run]} of {times}" for run, times in self.digits.items() if there[run] != times]
        open_: list[str] = []
        for slash, name in re.findall(r"(?<!%)<(/?)([a-z]+)(?:\s[^<>]*[^/])?>", translation):
            if not slash:
                open_.append(name)
            elif not open_ or open_.pop() != name:
                wrong.append(f"badly nested: </{name}>")
        return wrong + [f"not closed: <{name}>" for name in open_]


class StringMaker:
    """Strings in an order that a seed settles. No raw text is part of another, so that counting tells all."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def make(self) -> MadeString:
        """The next string."""
        self._exact: Counter[str] = Counter()
        self._digits: Counter[str] = Counter()
        self._number = 0
        text = self._stretch(depth=2, most=9)
        first = text.split()[0]
        return MadeString(text[0].upper() + text[1:] if first.isalpha() else text, self._exact, self._digits)

    def _stretch(self, depth: int, most: int) -> str:
        parts = []
        for _ in range(self._chance.randint(1, most)):
            kind = self._chance.random()
            if kind < 0.62:
                parts.append(self._chance.choice(WORDS) + self._chance.choice(MARKS))
            elif kind < 0.8:
                parts.append(self._placeholder())
            elif kind < 0.9 or not depth:
                parts.append(self._numeral())
            else:
                parts.append(self._tagged(depth))
        return " ".join(parts)

    def _placeholder(self) -> str:
        self._number += 1
        raw = self._chance.choice([*EXAMPLES, f'<x id="{self._number}"/>', "%d%%"])
        if any(raw in other or other in raw for other in self._exact if raw != other):
            raw = f"{{name{self._number}}}"
        self._exact[raw] += 1
        around = ["{}", "{}", "({})", "„{}“", "{},"] if raw != "\\n" else ["{}", "{}bitte warten", "gefunden{}"]
        return self._chance.choice(around).replace("{}", raw)

    def _numeral(self) -> str:
        number = self._chance.choice([self._chance.randint(0, 99), self._chance.randint(1900, 2100)])
        self._digits[str(number)] += 1
        return str(number)

    def _tagged(self, depth: int) -> str:
        self._number += 1
        name = self._chance.choice(TAGS)
        opening = f'<{name} id="{self._number}">'
        self._exact[opening] += 1
        inside = self._stretch(depth - 1, 3)
        self._exact[f"</{name}>"] += 1
        return f"{opening}{inside}</{name}>"
