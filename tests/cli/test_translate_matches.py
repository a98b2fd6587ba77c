"""`knnmt translate` takes over what the memory holds, and says what each translation is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_processes import knnmt, refused_at_once
from support.commands import succeeds

ENTRIES = [
    ("Schließen", "Shut", None),
    ("Schließen", "Seal", None),
    ("Öffnen", "Unlatch", "menu"),
    ("Öffnen", "Unveiling", "noun"),
    ("Seite 3 von %s ist leer", "Sheet 3 of %s is bare", None),
]


def catalog(entries: list[tuple[str, str, str | None]]) -> str:
    parts = ['msgid ""\nmsgstr "Language: en\\n"\n']
    for source, target, context in entries:
        named = f'msgctxt "{context}"\n' if context else ""
        parts.append(f'{named}msgid "{source}"\nmsgstr "{target}"\n')
    return "\n".join(parts)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("memory")
    for number, entries in enumerate((ENTRIES[:1], ENTRIES[1:])):
        (place / f"{number}.po").write_text(catalog(entries), encoding="utf-8")
    succeeds("build", place / "0.po", place / "1.po", "-o", place / "s", "--no-estimate")
    return place / "s"


def translated(*arguments: object) -> list[str]:
    return succeeds("translate", *map(str, arguments)).splitlines()


def test_exact_matches_are_used_unless_told_otherwise(store: Path) -> None:
    asked = ["-d", store, "--review", "--text", "Schließen", "--text", " ", "--text", "Danke!"]
    taken, empty, decoded = [line.split("\t") for line in translated(*asked)]
    assert taken == ["exact match", "100", "-", "50", "Seal"]
    assert empty == ["-", "-", "-", "-", " "]
    assert decoded[:4] == ["with memory", "-", "0", "-"]  # nobody measured how sure it is
    _, _, (_, _, covered, _, _) = [line.split("\t") for line in translated(*asked, "--segments", "1")]
    assert 0 <= int(covered) < 100
    kinds = [line.split("\t")[0] for line in translated(*asked, "--exact-matches", "ignore")]
    assert kinds == ["with memory", "-", "with memory"]
    kinds = [line.split("\t")[0] for line in translated(*asked, "--exact-matches", "prefer")]
    assert kinds == ["with memory", "-", "with memory"]
    assert translated("--review", "--text", "Danke!") == ["model alone\t-\t-\t-\tThank you!"]


def test_other_targets_are_alternatives_and_take_no_lines_of_their_own(store: Path) -> None:
    asked = ["-d", store, "--text", "Schließen"]
    assert translated(*asked) == ["Seal"]
    assert translated(*asked, "--n-best", "3") == ["1\tSeal", "1\tShut"]
    (line,) = translated(*asked, "--jsonl")
    found = json.loads(line)
    assert (found["kind"], found["text"], found["tokens"]) == ("exact match", "Seal", [])
    assert found["certainty"] == 50  # of two targets that have nothing in common
    assert [each["text"] for each in found["alternatives"]] == ["Shut"]
    assert found["match"]["score"] == 100
    assert "1.po#" in found["match"]["origin"]


def test_fuzzy_matches_are_repaired(store: Path) -> None:
    asked = ["-d", store, "--review", "--text", "Seite 7 von %d ist leer", "--text", "Seite 7 von %d ist voll"]
    repaired, decoded = translated(*asked, "--match-threshold", "60")
    assert repaired == "repaired match\t66\t-\t98\tSheet 7 of %d is bare"
    assert decoded.startswith("with memory\t")


def test_documents_go_the_same_way_with_their_contexts(store: Path, tmp_path: Path) -> None:
    given = [
        ("Schließen", "", None),
        ("Öffnen", "", "menu"),
        ("Öffnen", "", "noun"),
        ("Seite 8 von %s ist leer", "", None),
    ]
    (tmp_path / "app.po").write_text(catalog(given), encoding="utf-8")
    command = ["-d", store, tmp_path / "app.po", "-o", tmp_path / "out.po", "--match-threshold", "60"]
    done = knnmt("translate", *map(str, command))
    assert (done.returncode, done.stdout) == (0, b"")
    assert "app.po: least certain: line 4 (50 %), line 15 (98 %)\n" in done.stderr.decode()
    written = (tmp_path / "out.po").read_text(encoding="utf-8")
    targets = [line for line in written.splitlines() if line.startswith("msgstr")][1:]
    assert targets == [f'msgstr "{each}"' for each in ("Seal", "Unlatch", "Unveiling", "Sheet 8 of %s is bare")]


def test_what_cannot_be_is_refused(store: Path) -> None:
    for arguments, says in (
        (["--exact-matches", "use"], "--exact-matches: only used with a memory"),
        (["--match-threshold", "95"], "--match-threshold: only used with a memory"),
        (["-d", store, "--exact-matches", "always"], "must be 'use', 'prefer' or 'ignore', got 'always'"),
        (["-d", store, "--exact-matches", "ignore", "--match-threshold", "95"], "takes none"),
    ):
        assert says in refused_at_once("translate", *arguments, "--text", "Ja.")
