"""Commands that packages register as entry points. They are loaded when they are called or listed."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from knnmt.cli.panels import CommandInPanels
from knnmt.extensions import COMMANDS, named, registered


class WithRegisteredCommands(TyperGroup):
    """The commands of `knnmt`, and those that installed packages register."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands."""
        return [*super().list_commands(ctx), *registered(COMMANDS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in registered(COMMANDS):
            return own
        app = typer.Typer(rich_markup_mode=None, add_completion=False, context_settings={**self.context_settings})
        app.command(cmd_name, cls=CommandInPanels)(named(cmd_name, COMMANDS, "command"))
        return typer.main.get_command(app)
