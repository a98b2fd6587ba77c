"""German sentences for tests, put together from phrases written for this project, and a memory that translates them."""

from __future__ import annotations

from itertools import islice, product

from knnmt.corpus.pairs import SegmentPair

_OPENINGS = {
    "Gestern hat {}": "Yesterday {}",
    "Nach langem Zögern hat {}": "After much dithering {}",
    "Vor der Sitzung im Rathaus hat {}": "Ahead of the gathering at the guildhall {}",
    "Weil es den ganzen Tag geregnet hatte, hat {}": "It had drizzled all day, so {}",
    "Am Ende der dritten Woche hat {}": "As week three drew to a close, {}",
    "Ohne ein Wort zu sagen, hat {}": "Without uttering a word, {}",
    "Wie versprochen hat {}": "True to their word, {}",
}
_SUBJECTS = {
    "die neue Ärztin": "the new physician",
    "mein jüngster Bruder": "my kid brother",
    "der Ausschuss": "the Board",
    "das kleine Unternehmen aus Kassel": "the tiny outfit from Kassel",
    "Frau Lindner": "Madam Lindner",
    "eine Gruppe von Studenten": "a bunch of scholars",
    "der alte Fischer": "the ancient angler",
    "niemand": "not a soul",
}
_DOINGS = {
    "den Bericht über die Wasserqualität gelesen.": "perused the dossier on water purity.",
    "drei Koffer und einen Regenschirm im Zug vergessen.": "left three trunks and a brolly aboard the train.",
    "die Datei %(name)s gelöscht, obwohl sie noch gebraucht wurde.": "erased %(name)s, needed though it was.",
    "an der Abstimmung teilgenommen; das Ergebnis war knapp.": "cast a ballot; the outcome was tight.",
    "den Schlüssel gefunden, den wir seit 14 Tagen gesucht hatten!": "found the key we had missed for a fortnight!",
    "gefragt, ob der Vertrag auch für 2027 gilt.": "enquired whether the deed holds for 2027.",
}


def german_sentences(count: int) -> list[str]:
    """Up to 336 different sentences, every part in turn."""
    return [pair.source for pair in german_memory(count)]


def german_memory(count: int) -> list[SegmentPair]:
    """The same sentences with translations in words that a model would hardly choose by itself."""
    combined = product(range(len(_DOINGS)), range(len(_OPENINGS)), range(len(_SUBJECTS)))
    spread = sorted(combined, key=lambda place: (place[0] * 31 + place[1] * 17 + place[2] * 7) % 97)
    doings, openings, subjects = ([*phrases.items()] for phrases in (_DOINGS, _OPENINGS, _SUBJECTS))
    return [
        SegmentPair(
            f"{openings[o][0].format(subjects[s][0])} {doings[d][0]}",
            f"{openings[o][1].format(subjects[s][1])} {doings[d][1]}",
            f"own.tsv#{number}",
        )
        for number, (d, o, s) in enumerate(islice(spread, count))
    ]
