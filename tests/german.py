"""German sentences for tests, put together from phrases written for this project."""

from __future__ import annotations

from itertools import islice, product

_OPENINGS = [
    "Gestern hat {}",
    "Nach langem Zögern hat {}",
    "Vor der Sitzung im Rathaus hat {}",
    "Weil es den ganzen Tag geregnet hatte, hat {}",
    "Am Ende der dritten Woche hat {}",
    "Ohne ein Wort zu sagen, hat {}",
    "Wie versprochen hat {}",
]
_SUBJECTS = [
    "die neue Ärztin",
    "mein jüngster Bruder",
    "der Ausschuss",
    "das kleine Unternehmen aus Kassel",
    "Frau Lindner",
    "eine Gruppe von Studenten",
    "der alte Fischer",
    "niemand",
]
_DOINGS = [
    "den Bericht über die Wasserqualität gelesen.",
    "drei Koffer und einen Regenschirm im Zug vergessen.",
    "die Datei %(name)s gelöscht, obwohl sie noch gebraucht wurde.",
    "an der Abstimmung teilgenommen; das Ergebnis war knapp.",
    "den Schlüssel gefunden, den wir seit 14 Tagen gesucht hatten!",
    "gefragt, ob der Vertrag auch für 2027 gilt.",
]


def german_sentences(count: int) -> list[str]:
    """Up to 336 different sentences, every part in turn."""
    combined = product(range(len(_DOINGS)), range(len(_OPENINGS)), range(len(_SUBJECTS)))
    spread = sorted(combined, key=lambda place: (place[0] * 31 + place[1] * 17 + place[2] * 7) % 97)
    return [f"{_OPENINGS[o].format(_SUBJECTS[s])} {_DOINGS[d]}" for d, o, s in islice(spread, count)]
