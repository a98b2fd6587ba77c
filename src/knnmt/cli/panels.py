"""The options of a command: in groups, those that most people need first, and each given once unless it is a list."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperOption

from knnmt.errors import SettingError

_ARGUMENTS, _OPTIONS = "Arguments", "Options"
READING = "Reading memories"
MEMORY = "With a memory"
DECODING = "Decoding and speed"
MACHINE = "Machine and cluster"
RESEARCH = "Retrieval, for research"


class CommandInPanels(TyperCommand):
    """A command whose help shows each option in the panel that it names (`rich_help_panel`).

    An option with one value that is given several times is an error. Otherwise the last value would count in silence.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options."""
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        for each, times in Counter(given).items():
            if times > 1 and isinstance(each, TyperOption) and not each.multiple and not each.is_flag:
                name = max(each.opts, key=len)
                message = (
                    f"{name} was given {times} times, but {ctx.command_path} takes one value: leave the others out"
                )
                if name == "--datastore":
                    message += ". To use several memories, make one store of their stores with knnmt merge"
                raise SettingError(message)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the panels that have something to show."""
        panels: dict[str, list[tuple[str, str]]] = {
            name: [] for name in (_ARGUMENTS, _OPTIONS, READING, MEMORY, DECODING, MACHINE, RESEARCH)
        }
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is not None:
                usual = _ARGUMENTS if each.param_type_name == "argument" else _OPTIONS
                panels[getattr(each, "rich_help_panel", None) or usual].append(record)
        for name, records in panels.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
