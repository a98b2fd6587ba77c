"""What `knnmt translate` keeps, and which terms it uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knnmt.cli import app
from knnmt.errors import SettingError

IMPOSSIBLE = [
    (["--tags", "sgml"], "--tags must be 'auto', 'xml', 'html' or 'none', got"),
    (["--tags", "xml", "--no-protect"], "leave --no-protect out"),
    (["--placeholder", "@*@", "--no-protect"], "leave --no-protect out"),
    (["--placeholder", "*"], "begins with a character of its own"),
]


def test_what_must_come_out_does_unless_told(tmp_path: Path) -> None:
    text = "%1$s von %2$s Dateien wurden nach ${ziel} kopiert."
    kept = CliRunner().invoke(app, ["translate", "--text", text], catch_exceptions=False).stdout
    assert [kept.count(each) for each in ("%1$s", "%2$s", "${ziel}")] == [1, 1, 1]
    free = CliRunner().invoke(app, ["translate", "--no-protect", "--text", text], catch_exceptions=False).stdout
    assert "${ziel}" not in free  # the model translates the name of the variable
    terms = tmp_path / "begriffe.tsv"
    terms.write_text("Nachricht\tnotice\nNachricht\tmemo\n", encoding="utf-8")
    asked = ["translate", "--jsonl", "--glossary", str(terms), "--text", "Es gibt keine Nachrichten."]
    said = json.loads(CliRunner().invoke(app, asked, catch_exceptions=False).stdout)
    assert "notices" in said["text"]
    assert [each["kind"] for each in said["warnings"]] == ["TermWarning"]
    assert "the glossary has 'notice' and 'memo' for 'Nachricht'" in said["warnings"][0]["message"]


@pytest.mark.parametrize(("options", "message"), IMPOSSIBLE)
def test_tags_that_cannot_be(options: list[str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        CliRunner().invoke(app, ["translate", *options, "--text", "x"], catch_exceptions=False)


def test_placeholders_of_ones_own(tmp_path: Path) -> None:
    document = tmp_path / "x.json"
    document.write_text('{"a": "Die Datei ~~name~~ ist da."}', encoding="utf-8")
    asked = ["translate", "--placeholder", "~~*~~"]
    said = CliRunner().invoke(app, [*asked, "--text", "Die Datei ~~name~~ ist da."], catch_exceptions=False).stdout
    assert said.count("~~name~~") == 1
    said = CliRunner().invoke(app, [*asked, str(document)], catch_exceptions=False).stdout
    assert said.count("~~name~~") == 1
    translated = tmp_path / "y.json"
    translated.write_text('{"a": "The file ~~nom~~ is there."}', encoding="utf-8")
    checked = CliRunner().invoke(app, [*asked, "--check", str(document), str(translated), "--jsonl"])
    assert "~~nom~~ not in the source" in checked.stdout
