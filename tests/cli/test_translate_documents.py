"""`knnmt translate` with documents, in processes of their own."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knnmt.cli import app, documents
from knnmt.errors import KnnmtError
from support import warm
from support.command_processes import knnmt, refused_at_once

CATALOG = 'msgid ""\nmsgstr "Language: {}\\n"\n\nmsgid "Guten Morgen!"\nmsgstr ""\n\nmsgid "Ja."\nmsgstr "Yep."\n'
DONE = CATALOG.replace('msgid "Guten Morgen!"\nmsgstr ""', '#, fuzzy\nmsgid "Guten Morgen!"\nmsgstr "Good morning!"')
XLIFF = '<xliff version="1.2"><file source-language="de" target-language="en"><body>{}</body></file></xliff>'


def test_a_catalog_comes_back_with_what_was_missing(tmp_path: Path) -> None:
    catalog, out = tmp_path / "app.po", tmp_path / "app.en.po"
    catalog.write_text(CATALOG.format("en"))
    done = knnmt("translate", catalog, "-o", out)
    assert (done.returncode, done.stdout) == (0, b"")
    assert out.read_text() == DONE.format("en")
    said = done.stderr.decode()
    assert f"knnmt: {catalog}: de-en, from de to en: as it states (to en)" in said
    assert f"knnmt: {catalog}: 1 unit translated, marked for review, 1 unchanged; wrote {out}" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.en.po", "app.po"]
    printed = knnmt("translate", out, "--retranslate")
    assert (printed.returncode, printed.stdout.decode()) == (0, DONE.format("en"))


GLOSSARY = "Morgen\tmorning\nMorgen\tdawn\n"  # which contradicts itself: a warning, whatever the model says


def test_a_warning_is_printed_once_and_names_its_unit(tmp_path: Path) -> None:
    catalog, glossary = tmp_path / "app.po", tmp_path / "terms.tsv"
    catalog.write_text(CATALOG.format("en"))
    glossary.write_text(GLOSSARY)
    said = knnmt("translate", catalog, "-o", tmp_path / "o.po", "--glossary", glossary).stderr.decode()
    assert said.count("the glossary has 'morning' and 'dawn' for 'Morgen'") == 1
    assert f"knnmt: warning: {catalog}, line 4: " in said


def test_the_rows_of_documents_are_printed_and_the_documents_written(tmp_path: Path) -> None:
    given, out, glossary = tmp_path / "in", tmp_path / "out", tmp_path / "terms.tsv"
    given.mkdir()
    (given / "a.json").write_text('{"gruß": "Guten\\tMorgen!"}', encoding="utf-8")
    (given / "b.po").write_text(CATALOG.format("en") + '\nmsgid "5"\nmsgstr ""\n')
    glossary.write_text(GLOSSARY)
    command = ("translate", given, "--output-dir", out, "--glossary", glossary)
    done = knnmt(*command, "--review")
    assert done.returncode == 0
    head, *rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert head == ["kind", "match", "coverage", "certainty", "warnings", "document", "unit", "source", "text"]
    assert [row[:4] + row[5:8] for row in rows] == [
        ["model alone", "-", "-", "-", str(given / "a.json"), "gruß", "Guten⇥Morgen!"],
        ["model alone", "-", "-", "-", str(given / "b.po"), "line 4", "Guten Morgen!"],
        ["copied", "-", "-", "-", str(given / "b.po"), "line 10", "5"],
        ["finished", "-", "-", "-", str(given / "b.po"), "line 7", "Ja."],
    ]
    assert "the glossary has 'morning' and 'dawn'" in rows[1][4]
    assert b"dawn" not in done.stderr
    assert "# knnmt: model alone; warning: the glossary has" in (out / "b.po").read_text()
    assert "1 unit translated, marked for review, 1 without words copied, 1 unchanged" in done.stderr.decode()
    objects = [json.loads(line) for line in knnmt(*command, "--jsonl").stdout.decode().splitlines()]
    assert [(each["document"], each["unit"]) for each in objects] == [(row[5], row[6]) for row in rows]
    assert objects[1]["warnings"][0]["kind"] == "TermWarning"
    assert objects[3] == {
        "document": str(given / "b.po"),
        "unit": "line 7",
        "state": "finished",
        "kind": None,
        "source": "Ja.",
        "text": "Yep.",
    }


def test_a_directory_goes_to_another_with_texts_and_a_failing_unit(tmp_path: Path) -> None:
    given, out = tmp_path / "in", tmp_path / "out"
    (given / "sub").mkdir(parents=True)
    (given / "sub" / "app.po").write_text(CATALOG.format("en"))
    (given / "a.txt").write_text("Ja.\n\n")
    (given / "b.bin").write_bytes(b"\0")
    many = f"<source>Ja.{'<x/>' * 1001}</source>"
    (given / "c.xlf").write_text(XLIFF.format(f'<trans-unit id="u7">{many}</trans-unit>'))
    done = knnmt("translate", given, "--output-dir", out)
    assert done.returncode == 1
    assert f"knnmt: error: {given / 'c.xlf'}, u7: it has more than 1,000 inline codes" in done.stderr.decode()
    assert (out / "sub" / "app.po").read_text() == DONE.format("en")
    assert (out / "a.txt").read_text() == "Yes.\n\n"
    assert (out / "c.xlf").read_text() == (given / "c.xlf").read_text()
    assert not (out / "b.bin").exists()


def test_the_language_in_a_name_becomes_that_of_the_target(tmp_path: Path) -> None:
    given, out = tmp_path / "in", tmp_path / "out"
    (given / "values-de").mkdir(parents=True)
    strings = '<resources><string name="a">{}</string></resources>'
    (given / "values-de" / "strings.xml").write_text(strings.format("Ja."))
    (given / "film.de.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nJa.\n")
    (given / "app.de.po").write_text(CATALOG.format("en"))
    done = knnmt("translate", given, "--output-dir", out)
    assert done.returncode == 0
    assert (out / "values-en" / "strings.xml").read_text() == strings.format("Yes.")
    assert (out / "film.en.srt").read_text().endswith("\nYes.\n")
    assert (out / "app.de.po").read_text() == DONE.format("en")  # which has both languages
    assert f"wrote {out / 'film.en.srt'}" in done.stderr.decode()
    film = given / "film.de.srt"
    beside = knnmt("translate", film, "--output-dir", given)
    assert (beside.returncode, (given / "film.en.srt").exists()) == (0, True)
    again = knnmt("translate", film, "--output-dir", given)
    assert again.returncode == 1
    assert f"would be written to {given / 'film.en.srt'}, which is another document" in again.stderr.decode()
    (out / "film.en.srt").unlink()
    (given / "film.de-AT.srt").write_text(film.read_text())
    two = knnmt("translate", film, given / "film.de-AT.srt", "--output-dir", out)
    assert (two.returncode, two.stderr.decode().count("which is another document")) == (1, 1)


def test_of_several_one_that_cannot_be_read_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    given, out = tmp_path / "in", tmp_path / "out"
    given.mkdir()
    (given / "a.docx").write_bytes(b"no archive")
    (given / "app.po").write_text(CATALOG.format("en"))
    done = knnmt("translate", given, "--output-dir", out)
    assert done.returncode == 1
    assert f"knnmt: error: {given / 'a.docx'}: expected a DOCX archive" in done.stderr.decode()
    assert (out / "app.po").read_text() == DONE.format("en")
    assert not (out / "a.docx").exists()


def test_what_cannot_work_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    catalog = tmp_path / "app.po"
    catalog.write_text(CATALOG.format("en"))
    text = tmp_path / "a.txt"
    text.write_text("Ja.\n")
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    for arguments, says in (
        ([catalog, catalog], "several documents need --output-dir"),
        ([tmp_path], "several documents need --output-dir"),
        ([catalog, "--scores", "--n-best", "2"], "--n-best, --scores: only for lines of text"),
        ([catalog, "--review"], "--review prints rows on standard output, where the document would go, too"),
        ([catalog, "--jsonl"], "--jsonl prints rows on standard output, where the document would go, too"),
        ([catalog, "-o", tmp_path], "found a directory"),
        ([catalog, "-o", "x", "--output-dir", "y"], "found both"),
        ([catalog, catalog, "--output-dir", "y"], "would both be written"),
        ([text, "--output-dir", tmp_path], "its text would be lost"),
        ([text, "--output-dir", text], "expected a directory, found a file"),
        ([text, "--output-dir", dangling], "or a link to nothing"),
        (["--output-dir", "y"], "--output-dir needs documents"),
        (["--retranslate", text], "--retranslate is for documents"),
        (["--ignore-stated-languages", text], "--ignore-stated-languages is for documents"),
    ):
        with pytest.raises(KnnmtError, match=says):
            CliRunner().invoke(app, ["translate", *map(str, arguments)], catch_exceptions=False)
    catalog.write_text('msgid "a"\n')
    assert "app.po, line 1: expected a msgstr" in refused_at_once("translate", catalog)


def test_a_catalog_of_the_other_direction_asks_for_another_model(tmp_path: Path) -> None:
    catalog = tmp_path / "app.po"
    catalog.write_text(CATALOG.format("de"))
    done = knnmt("translate", catalog, "-m", "de-en")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"states that it goes from en to de, but the model de-en translates de to en" in done.stderr
    assert b"--model" in done.stderr
    assert b"add --ignore-stated-languages" in done.stderr


def test_stated_languages_are_ignored_on_request(tmp_path: Path) -> None:
    catalog, out = tmp_path / "app.po", tmp_path / "out.po"
    catalog.write_text(CATALOG.format("fr"))
    done = knnmt("translate", catalog, "-m", "de-en", "-o", out, "--ignore-stated-languages")
    assert (done.returncode, out.read_text()) == (0, DONE.format("fr"))
    assert f"knnmt: {catalog}: de to en, whatever it states (to fr)" in done.stderr.decode()


@pytest.mark.parametrize("place", ["/dev/stdout", "same"])
def test_a_document_may_be_written_to_a_pipe_or_in_its_own_place(place: str, tmp_path: Path) -> None:
    catalog = tmp_path / "app.po"
    catalog.write_text(CATALOG.format("en"))
    done = knnmt("translate", catalog, "-o", catalog if place == "same" else place)
    assert done.returncode == 0
    found = catalog.read_text() if place == "same" else done.stdout.decode()
    assert found == DONE.format("en")


def test_a_killed_run_goes_on_and_ends_as_if_nobody_had_disturbed_it(tiny_checkpoint: Path, tmp_path: Path) -> None:
    words = ("".join("abcdefghij"[int(digit)] for digit in str(number)) for number in range(600))
    entries = "".join(f'msgid "wort {word}"\nmsgstr ""\n\n' for word in words)
    catalog, out, left = tmp_path / "app.po", tmp_path / "out" / "app.po", tmp_path / "out" / "app.po.translating"
    catalog.write_text(CATALOG.format("en").split('msgid "Guten', 1)[0] + entries)
    options = ["--beam", "1", "--max-tokens", "4", "--threads", "1"]
    command = ["translate", str(catalog), "-m", str(tiny_checkpoint), *options]
    undisturbed = knnmt(*command, "-o", tmp_path / "whole.po")
    assert undisturbed.returncode == 0
    running = warm.Popen([sys.executable, "-m", "knnmt", *command, "-o", str(out)])
    while not (left.exists() and left.read_bytes().count(b"\n") > 256) and running.poll() is None:
        time.sleep(0.01)
    running.kill()
    running.wait()
    assert left.exists(), "it was killed before its end"
    assert not out.exists()
    assert 256 <= left.read_bytes().count(b"\n") - 1 < 600
    again = knnmt(*command, "-o", out)
    assert again.returncode == 0
    assert out.read_bytes() == (tmp_path / "whole.po").read_bytes()
    assert not left.exists()


def test_a_check_needs_no_model(tmp_path: Path) -> None:
    catalog, page = tmp_path / "app.po", tmp_path / "page.html"
    catalog.write_text(CATALOG.format("en") + '\nmsgid "Datei %s"\nmsgstr "File"\n')
    said = found("--check", catalog, "--html", page)
    assert f"{catalog}, line 4: untranslated: has no translation" in said
    assert f"{catalog}, line 10: placeholder: %s once in the source, not in the translation" in said
    assert f"{catalog}: 2 translated, 0 fuzzy, 1 untranslated; untranslated 1, placeholder 1" in said
    assert "Datei %s" in page.read_text()
    objects = [json.loads(line) for line in found("--check", catalog, "--jsonl").splitlines()]
    assert [(each["unit"], each["kind"]) for each in objects] == [
        ("line 4", "untranslated"),
        ("line 10", "placeholder"),
    ]
    with pytest.raises(KnnmtError, match="add --check"):
        CliRunner().invoke(app, ["translate", str(catalog), "--html", str(page)], catch_exceptions=False)
    assert "name some" in refused_at_once("translate", "--check")


def found(*arguments: str | Path) -> str:
    """What a check says that finds something."""
    done = knnmt("translate", *arguments)
    assert (done.returncode, done.stderr) == (1, b"")
    return done.stdout.decode()


def test_documents_of_one_language_are_checked_two_by_two(tmp_path: Path) -> None:
    german, english = tmp_path / "a.de.json", tmp_path / "a.en.json"
    german.write_text('{"a": "Datei {0}", "b": "Ja"}')
    english.write_text('{"a": "File {0}", "b": "Yes"}')
    done = knnmt("translate", "--check", english, german)
    assert (done.returncode, done.stdout.decode().count("2 translated, 0 fuzzy, 0 untranslated; no findings")) == (
        0,
        1,
    )
    english.write_text('{"a": "File"}')
    said = found("--check", german, english)
    assert "a: placeholder: {0} once in the source" in said
    assert "b: untranslated" in said


def test_a_memory_of_any_languages_is_taken_between_those_of_the_model(tmp_path: Path) -> None:
    memory, out = tmp_path / "a.tmx", tmp_path / "b.tmx"
    unit = '<tu><tuv xml:lang="de-AT"><seg>Ja.</seg></tuv><tuv xml:lang="fr"><seg>Oui.</seg></tuv>{}</tu>'
    whole = f'<tmx version="1.4"><header srclang="*all*"/><body>{unit}</body></tmx>'
    memory.write_text(whole.format(""))
    assert knnmt("translate", memory, "-o", out, "--source-lang", "de").returncode == 0
    assert out.read_text() == whole.format('<tuv xml:lang="en" creationtool="knnmt"><seg>Yes.</seg></tuv>')


def test_what_was_changed_in_the_meantime_is_not_written_over(tmp_path: Path) -> None:
    catalog, other = tmp_path / "app.po", tmp_path / "other.po"
    catalog.write_text("as it is now")
    documents._require_unchanged(catalog, catalog, b"as it is now")
    documents._require_unchanged(catalog, other, b"as it was read")
    with pytest.raises(KnnmtError, match="the file changed while it was translated, so nothing was written"):
        documents._require_unchanged(catalog, catalog, b"as it was read")
