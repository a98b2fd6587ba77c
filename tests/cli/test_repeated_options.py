"""Options that are given several times: an error, unless an option takes several values."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from knnmt.cli import app
from knnmt.errors import SettingError
from support.commands import all_commands

COMMANDS = all_commands()
OPTIONS = {
    verb: [each for each in command.params if each.param_type_name == "option"] for verb, command in COMMANDS.items()
}


def refusal(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert isinstance(done.exception, SettingError), done.output
    return str(done.exception)


def test_a_second_store_is_an_error_that_names_merge() -> None:
    for ways in (("-d", "a", "-d", "b"), ("-d", "a", "--datastore", "b"), ("--datastore=a", "-db", "-d", "b")):
        said = refusal("translate", *ways, "--text", "Ja.")
        count = sum(each.startswith("-") for each in ways)
        assert said.startswith(f"--datastore was given {count} times, but knnmt translate takes one value"), said
        assert said.endswith("make one store of their stores with knnmt merge")


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_option_with_one_value_can_be_given_once(verb: str) -> None:
    for option in OPTIONS[verb]:
        if not option.multiple and not option.is_flag:
            name = max(option.opts, key=len)
            said = refusal(verb, name, "1", name, "1")
            assert said.startswith(f"{name} was given 2 times, but knnmt {verb} takes one value")


def test_lists_and_switches_can_be_repeated(tmp_path: Path, tiny_checkpoint: Path) -> None:
    given = ["--model", str(tiny_checkpoint), "--max-tokens", "3", "--jsonl", "--jsonl", "-t", "eins", "-t", "zwei"]
    done = CliRunner().invoke(app, ["translate", *given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 2
