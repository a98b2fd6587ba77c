"""What `--help` shows: first what most people need, in words that need no paper."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from knnmt.cli import app
from support.commands import all_commands

VERBS = sorted(all_commands())


def shown(verb: str) -> str:
    return CliRunner().invoke(app, [verb, "--help"], catch_exceptions=False).stdout


def test_settings_of_researchers_come_last() -> None:
    parts = re.split(r"^(\w.*):\n", shown("translate"), flags=re.MULTILINE)
    panels = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(panels) == [
        "Arguments",
        "Options",
        "With a memory",
        "Decoding and speed",
        "Machine and cluster",
        "Retrieval, for research",
    ]
    for panel, option in (
        ("Options", "--datastore"),
        ("Options", "--glossary"),
        ("With a memory", "--exact-matches"),
        ("Decoding and speed", "--beam"),
        ("Retrieval, for research", "--temperature"),
        ("Retrieval, for research", "--exact "),
    ):
        assert [name for name, text in panels.items() if re.search(rf"^  (-\w, )?{option}", text, re.MULTILINE)] == [
            panel
        ]


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_no_equations(verb: str) -> None:
    said = shown(verb)
    assert f" {verb} " in said.splitlines()[0]
    assert not re.search(r"equation \d", said, re.IGNORECASE)
