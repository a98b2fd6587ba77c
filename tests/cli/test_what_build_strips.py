"""A catalog with accelerators and units of several lines, through the commands."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from knnmt.cli import app

HEADER = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
ENTRIES = [
    ("&Dossier", "&Datei"),
    ("Keep _thus…", "Speichern _unter …"),
    ("The hoard is bare.\nReplenish the hoard.\n", "Das Magazin ist leer.\nDas Magazin nachfüllen.\n"),
]


def knnmt(*arguments: str | Path) -> str:
    """What a command prints that succeeds."""
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    return done.stdout


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def test_a_catalog_is_built_translated_searched_and_exported(tmp_path: Path) -> None:
    catalog, store, lines = tmp_path / "a.po", tmp_path / "s", tmp_path / "lines.txt"
    entries = "".join(f"\nmsgid {quoted(one)}\nmsgstr {quoted(other)}\n" for one, other in ENTRIES)
    catalog.write_text(HEADER + entries, encoding="utf-8")
    built = knnmt("build", catalog, "--source-lang", "de", "-o", store, "--no-estimate")
    assert "read       3 pairs" in built
    assert "5 sentences" in built

    lines.write_text("Speichern &unter …\n Datei\u00a0\nDas Magazin nachfüllen.\n", encoding="utf-8")
    settings = ("--k", "4", "--lambda", "0.95", "--temperature", "5")
    translated = knnmt("translate", "-d", store, *settings, lines)
    assert translated == "Keep &thus…\n Dossier\u00a0\nReplenish the hoard.\n"

    whole = knnmt("translate", "-d", store, *settings, "--jsonl", "--text", ENTRIES[2][1])
    assert json.loads(whole)["text"] == ENTRIES[2][0]

    assert "wrote 3 pairs" in knnmt("export", store, "-o", tmp_path / "out.tmx")
    written = (tmp_path / "out.tmx").read_text(encoding="utf-8")
    assert "<seg>&amp;Datei</seg>" in written
    assert "<seg>The hoard is bare.\nReplenish the hoard.\n</seg>" in written

    assert knnmt("inspect", store, "--search", "Speichern unter").count("source  Speichern _unter …") == 1
    assert "removed    1 sentence" in knnmt("remove", store, "--source-text", "Datei")
    assert "removed    3 sentences" in knnmt("remove", store, "--match", "leer")
    assert "sound" in knnmt("verify", store)


def test_accelerators_are_text_where_that_is_asked_for(tmp_path: Path) -> None:
    memory, store, lines = tmp_path / "a.tsv", tmp_path / "s", tmp_path / "lines.txt"
    memory.write_text("&Datei\t&Dossier\n", encoding="utf-8")
    knnmt("build", memory, "--source-lang", "de", "-o", store, "--no-estimate", "--keep-accelerators")
    lines.write_text("&Datei\n", encoding="utf-8")
    settings = ("--k", "4", "--lambda", "0.95", "--temperature", "5", "--jsonl", "--match", "--exact-matches", "ignore")
    (line,) = knnmt("translate", "-d", store, *settings, lines).splitlines()
    found = json.loads(line)
    assert found["text"] == "&Dossier"
    assert found["tokens"][0] == "▁&"
    assert found["match"]["exact"]
