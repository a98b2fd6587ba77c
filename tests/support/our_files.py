"""The files that the documentation names, made for tests: small memories and texts of our own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from knnmt import SegmentPair
from support import ROOT

_THINGS = {
    "Datei": "file",
    "Seite": "sheet",
    "Liste": "roster",
    "Karte": "chart",
    "Notiz": "memo",
    "Aufgabe": "chore",
    "Vorlage": "mould",
    "Tabelle": "grid",
    "Nachricht": "missive",
    "Sicherung": "spare copy",
    "Einstellung": "knob",
}
_DOINGS = {
    "Die {} wurde gelöscht.": "The {} is gone.",
    "Die {} wurde gespeichert.": "The {} is safe and sound.",
    "Die {} ist gesperrt.": "The {} is under lock and key.",
    "Möchten Sie die {} drucken?": "Care to print the {}?",
    "Öffnen Sie zuerst die {}.": "Open up the {} first.",
    "Es gibt keine {} mit diesem Namen.": "No {} goes by that name.",
    "Die {} kann nicht geändert werden.": "The {} is set in stone.",
    "{} umbenennen": "Rechristen the {}",
    "Keine {} ausgewählt": "No {} picked",
    "Eine {} hinzufügen": "Add one {}",
}


def own_pairs() -> list[SegmentPair]:
    """110 strings of a made-up program, each thing and each doing in turn."""
    things, doings = list(_THINGS.items()), list(_DOINGS.items())
    numbers = range(len(things) * len(doings))  # the lengths have no common factor: every combination comes once
    chosen = [(things[number % len(things)], doings[number % len(doings)]) for number in numbers]
    return [SegmentPair(says.format(name), means.format(word), "own") for (name, word), (says, means) in chosen]


def write_files(place: Path) -> None:
    """Every file that a page names and no command on it makes."""
    pairs = own_pairs()
    project, test, probe, catalog = pairs[:70], pairs[70:76], pairs[76:94], pairs[94:100]
    corrections, new = pairs[100:103], _lines([pair.source for pair in pairs[103:106]])
    for name, content in {
        "projekt.tmx": _tmx(project),
        "test.tmx": _tmx(test),
        "test.de": _lines([pair.source for pair in test]),
        "test.en": _lines([pair.target for pair in test]),
        "probe.tsv": _tsv(probe),
        "katalog.po": _po(catalog),
        "korrekturen.tsv": _tsv(corrections),
        "fragen.txt": new,
        "handbuch.de.txt": new,
        "endlos.txt": new,
        "begriffe.tsv": "Datei\tdocument\nNachricht\tnotice\n",
        "app.po": _catalog(pairs[103:107]),
        "katalog/menu.po": _catalog(pairs[107:109]),
        "seite.xlf": _xliff(pairs[103:105], "en"),
        "handbuch.mqxliff": _xliff(pairs[105:107], "en-us"),
    }.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(content, encoding="utf-8")
    (place / "examples").symlink_to(ROOT / "examples")
    (place / "models").symlink_to(ROOT / "src" / "knnmt" / "models")


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _tsv(pairs: Sequence[SegmentPair]) -> str:
    return _lines([f"{pair.source}\t{pair.target}" for pair in pairs])


def _po(pairs: Sequence[SegmentPair]) -> str:
    head = 'msgid ""\nmsgstr "Language: de\\nContent-Type: text/plain; charset=UTF-8\\n"\n'
    return head + "".join(f'\nmsgid "{pair.target}"\nmsgstr "{pair.source}"\n' for pair in pairs)


def _catalog(pairs: Sequence[SegmentPair]) -> str:
    """Into English, with the last entry translated."""
    entries = [f'\nmsgid "{pair.source}"\nmsgstr ""\n' for pair in pairs[:-1]]
    head = 'msgid ""\nmsgstr "Language: en\\nContent-Type: text/plain; charset=UTF-8\\n"\n'
    return head + "".join(entries) + f'\nmsgid "{pairs[-1].source}"\nmsgstr "{pairs[-1].target}"\n'


def _xliff(pairs: Sequence[SegmentPair], language: str) -> str:
    """Two units, the second translated."""
    first, second = (f"<source>{escape(pair.source)}</source>" for pair in pairs)
    return (
        f'<xliff version="1.2"><file original="x" source-language="de" target-language="{language}"><body>\n'
        f'<trans-unit id="1">{first}</trans-unit>\n'
        f'<trans-unit id="2">{second}<target>{escape(pairs[1].target)}</target></trans-unit>\n'
        "</body></file></xliff>\n"
    )


def _tmx(pairs: Sequence[SegmentPair]) -> str:
    units = "".join(
        f'<tu tuid="tu{number}"><tuv xml:lang="de"><seg>{escape(pair.source)}</seg></tuv>'
        f'<tuv xml:lang="en"><seg>{escape(pair.target)}</seg></tuv></tu>\n'
        for number, pair in enumerate(pairs, 1)
    )
    return f'<tmx version="1.4"><header srclang="de"/><body>\n{units}</body></tmx>\n'
