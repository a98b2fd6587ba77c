"""The options of a command in groups. Those that most people need come first."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

_ARGUMENTS, _OPTIONS = "Arguments", "Options"
READING = "Reading memories"
MEMORY = "With a memory"
DECODING = "Decoding and speed"
MACHINE = "Machine and cluster"
RESEARCH = "Retrieval, for research"


class CommandInPanels(TyperCommand):
    """A command whose help shows each option in the panel that it names (`rich_help_panel`)."""

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
