"""`knnmt` without `--model`: the languages of lines, documents and memories choose, and one line says so."""

from __future__ import annotations

import json
from pathlib import Path

from support.command_processes import knnmt, lines

CATALOG = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: {}\\n"\n\nmsgid "{}"\nmsgstr ""\n'


def test_lines_choose(tmp_path: Path) -> None:
    english = tmp_path / "a.txt"
    english.write_text("OK\nSave the file.\n", encoding="utf-8")
    for arguments, stdin, expected, said in (
        (["translate"], "Datei speichern\n", "Save File", "de-en, from de to en: the text looks German"),
        (["translate", "-t", "Save the file."], "", "Speichern Sie die Datei.", "en-de, from en to de: the text"),
        (["translate", english], "", "Speichern Sie die Datei.", f"en-de, from en to de: {english} looks English"),
        (["translate", "--target-lang", "de", "-t", "Cancel"], "", "Abbrechen", "en-de, from en to de: as the options"),
    ):
        done = knnmt(*arguments, stdin=stdin.encode())
        assert lines(done.stdout)[-1] == expected
        assert done.stderr.decode().startswith(f"knnmt: {said}")
        assert done.stderr.count(b"\n") == 1


def test_what_is_not_clear_is_asked_for_and_other_languages_get_a_command() -> None:
    for arguments, expected in (
        (
            ["-t", "OK"],
            "the text: the source language is not clear. Add --source-lang de or --source-lang en (",
        ),
        (["-t", "OK", "--target-lang", "fr"], "name another model: --model Helsinki-NLP/opus-mt-en-fr"),
    ):
        done = knnmt("translate", *arguments)
        assert (done.returncode, done.stdout) == (1, b"")
        assert expected in done.stderr.decode()


def test_documents_each_choose(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "de.po").write_text(CATALOG.format("de", "Cancel"), encoding="utf-8")
    (tmp_path / "in" / "en.po").write_text(CATALOG.format("en", "Abbrechen"), encoding="utf-8")
    (tmp_path / "in" / "fr.po").write_text(CATALOG.format("fr", "Cancel"), encoding="utf-8")
    (tmp_path / "in" / "film.de.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nOK.\n", encoding="utf-8")
    terms = tmp_path / "terms.tsv"
    terms.write_text("Cancel\tStopp\n", encoding="utf-8")
    done = knnmt("translate", tmp_path / "in", "--output-dir", tmp_path / "out", "--glossary", terms)
    said = done.stderr.decode()
    assert done.returncode == 1  # because of the French catalog
    assert "fr.po: no shipped model translates from en to fr (as it states (to fr))" in said
    assert "de.po: en-de, from en to de: as it states (to de)" in said
    assert "film.de.srt: de-en, from de to en: as its name says" in said
    assert 'msgstr "Stopp"' in (tmp_path / "out" / "de.po").read_text(encoding="utf-8")
    assert 'msgstr "Cancel"' in (tmp_path / "out" / "en.po").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "film.en.srt").exists()


def test_a_check_takes_the_languages_of_its_documents(tmp_path: Path) -> None:
    (tmp_path / "app.en.json").write_text('{"a": "Open %s"}', encoding="utf-8")
    (tmp_path / "app.de.json").write_text('{"a": "Öffnen"}', encoding="utf-8")
    done = knnmt("translate", "--check", tmp_path / "app.en.json", tmp_path / "app.de.json", "--jsonl")
    assert "%s" in json.loads(done.stdout.splitlines()[0])["message"]


def test_memories_choose_the_model_of_a_store_and_of_an_evaluation(tmp_path: Path) -> None:
    memory, store = tmp_path / "m.tsv", tmp_path / "s"
    memory.write_text("Open the window.\tDas Fenster öffnen.\nCancel\tAbbruch\n", encoding="utf-8")
    made = knnmt("build", memory, "-o", store)
    assert lines(made.stdout)[0] == "model      en-de, from en to de: the sources look English"
    assert lines(knnmt("translate", "-d", store, "-t", "Cancel").stdout) == ["Abbruch"]
    (other := tmp_path / "en.po").write_text('msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "Ja"\nmsgstr ""\n')
    said = knnmt("translate", "-d", store, other).stderr.decode()
    assert f"but the store {store} translates en to de." in said
    assert "use a store of these languages, or leave --datastore out" in said
    report = knnmt("evaluate", "--pairs", memory, "--base")
    assert b"en-de" in report.stdout
    with_store = knnmt("evaluate", "--pairs", memory, "-d", store)
    assert with_store.returncode == 0, with_store.stderr
