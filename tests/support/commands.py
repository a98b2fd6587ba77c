"""The commands of `knnmt`, run in this process, for PyTorch is loaded already."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from knnmt.cli import app
from knnmt.errors import KnnmtError


def all_commands() -> dict[str, Any]:
    """The commands of `knnmt` by their names, with those that are registered."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("knnmt", ["models"])
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def completed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command with what it printed."""
    command = [str(each) for each in arguments]
    with warnings.catch_warnings():
        done = CliRunner().invoke(app, command)
    if isinstance(done.exception, KnnmtError):  # as `main` tells it
        return subprocess.CompletedProcess(command, 1, done.stdout, f"{done.stderr}knnmt: error: {done.exception}\n")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)


def succeeds_silently(*arguments: str | Path) -> str:
    done = completed(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def fails(*arguments: str | Path) -> str:
    done = completed(*arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr + done.stdout


def succeeds(*arguments: str | Path, text: str = "Satz 3") -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False, input=f"{text}\n")
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*arguments: str | Path) -> str:
    with pytest.raises(KnnmtError) as error:
        CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    return str(error.value)


def run(*arguments: str | Path, expected: int = 0) -> str:
    """All that a command with this exit status printed. Its own errors are raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False, input="Satz 3\n")
    assert done.exit_code == expected, done.output
    return done.output
