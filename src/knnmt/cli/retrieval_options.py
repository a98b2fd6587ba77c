"""The options of retrieval, made from the only description of the settings (`retrieval/settings.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from knnmt.cli.memories import typed_parameters
from knnmt.cli.panels import RESEARCH
from knnmt.retrieval.settings import Description, RetrievalSettings, described, spelled


def takes_retrieval_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every setting of retrieval, in place of its parameter `settings`."""
    options = [_parameter(option, name) for option, name in spelled().items()]
    parameters: list[inspect.Parameter] = []
    for each in typed_parameters(command):
        parameters += options if each.name == "settings" else [each]

    def with_settings(**given: Any) -> None:
        asked = {each.name: given.pop(each.name) for each in options}
        asked = {name: value for name, value in asked.items() if value is not None}
        for option, name in spelled().items():
            if name in asked:
                described()[name].check(f"--{option}", asked[name])  # under the name that was typed
        command(settings=RetrievalSettings(**asked), **given)

    with_settings.__doc__ = command.__doc__
    with_settings.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
    )
    with_settings.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_settings


def options_of(settings: RetrievalSettings) -> list[str]:
    """The options that were given, as typed."""
    return [f"--{option}" for option, name in spelled().items() if name in settings.given()]


def _parameter(option: str, name: str) -> inspect.Parameter:
    each: Description = described()[name]
    told = typer.Option(
        f"--{option}/--no-{option}" if each.kind is bool else f"--{option}",
        help=each.help,
        metavar=each.metavar,
        min=each.least if each.kind is int else None,
        show_default=False,
        rich_help_panel=RESEARCH,
        parser=None if each.kind is bool else each.read,
    )
    annotation = Annotated[each.kind | None, told]  # type: ignore[name-defined]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
