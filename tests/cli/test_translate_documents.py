"""`knnmt translate` with documents, in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_commands import knnmt
from test_translate_input import refused_at_once

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
    assert f"knnmt: {catalog}: de to en, as it states (to en)" in said
    assert f"knnmt: {catalog}: 1 units translated, marked for review, 1 left as they were; wrote {out}" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.en.po", "app.po"]
    printed = knnmt("translate", out, "--retranslate")
    assert (printed.returncode, printed.stdout.decode()) == (0, DONE.format("en"))


def test_a_directory_goes_to_another_with_texts_and_a_failing_unit(tmp_path: Path) -> None:
    given, out = tmp_path / "in", tmp_path / "out"
    (given / "sub").mkdir(parents=True)
    (given / "sub" / "app.po").write_text(CATALOG.format("en"))
    (given / "a.txt").write_text("Ja.\n\n")
    (given / "b.bin").write_bytes(b"\0")
    icu = "<source>{n, plural, other {Dateien}}</source>"
    (given / "c.xlf").write_text(XLIFF.format(f'<trans-unit id="u7">{icu}</trans-unit>'))
    done = knnmt("translate", given, "--output-dir", out)
    assert done.returncode == 1
    assert f"knnmt: error: {given / 'c.xlf'}, u7: an ICU message" in done.stderr.decode()
    assert (out / "sub" / "app.po").read_text() == DONE.format("en")
    assert (out / "a.txt").read_text() == "Yes.\n\n"
    assert (out / "c.xlf").read_text() == (given / "c.xlf").read_text()
    assert not (out / "b.bin").exists()


def test_what_cannot_work_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    catalog = tmp_path / "app.po"
    catalog.write_text(CATALOG.format("en"))
    text = tmp_path / "a.txt"
    text.write_text("Ja.\n")
    for arguments, says in (
        ([catalog, catalog], "several documents need --output-dir"),
        ([tmp_path], "several documents need --output-dir"),
        ([catalog, "--jsonl", "--scores"], "--scores, --jsonl: only for lines of text"),
        ([catalog, "-o", tmp_path], "found a directory"),
        ([catalog, "-o", "x", "--output-dir", "y"], "found both"),
        ([catalog, catalog, "--output-dir", "y"], "would both be written"),
        ([text, "--output-dir", tmp_path], "its text would be lost"),
        (["--output-dir", "y"], "--output-dir is for documents"),
        (["--retranslate", text], "--retranslate is for documents"),
    ):
        assert says in refused_at_once("translate", *arguments)
    catalog.write_text('msgid "a"\n')
    assert "app.po, line 1: expected a msgstr" in refused_at_once("translate", catalog)


def test_a_catalog_of_the_other_direction_asks_for_another_model(tmp_path: Path) -> None:
    catalog = tmp_path / "app.po"
    catalog.write_text(CATALOG.format("de"))
    done = knnmt("translate", catalog)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"goes from en to de, as it states, and the model de-en translates de to en" in done.stderr
    assert b"--model" in done.stderr


@pytest.mark.parametrize("place", ["/dev/stdout", "same"])
def test_a_document_may_be_written_to_a_pipe_or_in_its_own_place(place: str, tmp_path: Path) -> None:
    catalog = tmp_path / "app.po"
    catalog.write_text(CATALOG.format("en"))
    done = knnmt("translate", catalog, "-o", catalog if place == "same" else place)
    assert done.returncode == 0
    found = catalog.read_text() if place == "same" else done.stdout.decode()
    assert found == DONE.format("en")
