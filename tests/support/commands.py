"""The commands of `knnmt`."""

from __future__ import annotations

from typing import Any

import typer.main


def all_commands() -> dict[str, Any]:
    """The commands of `knnmt` by their names, with those that are registered."""
    from knnmt.cli import app

    group: Any = typer.main.get_command(app)
    context = group.make_context("knnmt", ["models"])
    return {name: group.get_command(context, name) for name in group.list_commands(context)}
