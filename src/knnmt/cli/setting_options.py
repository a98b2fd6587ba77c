"""The options of a command's settings, made from their only descriptions (`translator/settings.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from knnmt.cli.memories import typed_parameters
from knnmt.cli.panels import DECODING, MEMORY, RESEARCH
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.settings import Description, Group, Settings, Use, described, spelled
from knnmt.translator.settings import Preset, TranslationSettings, translation_settings

_PANELS: dict[Group, str | None] = {"text": None, "decoding": DECODING, "memory": MEMORY, "retrieval": RESEARCH}


def takes_settings(
    *uses: Use, groups: tuple[Group, ...] = tuple(_PANELS), usual: RetrievalSettings | Preset | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every setting of some uses and groups, in place of its parameter `settings`.

    Args:
        usual: what counts if an option is not given, if that is not the default of the setting
    """
    defaults = translation_settings(usual).given()
    known = described(TranslationSettings)
    names = {
        name: option
        for option, name in spelled(TranslationSettings).items()
        if known[name].group in groups and {*uses} & {*known[name].uses}
    }
    options = [_parameter(known[name], option, name, defaults) for name, option in names.items()]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for each in typed_parameters(command):
            parameters += options if each.name == "settings" else [each]

        def with_settings(**given: Any) -> None:
            asked = {name: given.pop(name) for name in names}
            asked = {name: value for name, value in asked.items() if value is not None}
            for name, value in asked.items():
                asked[name] = tuple(value) if known[name].many else value
                known[name].check(f"--{names[name]}", asked[name])  # under the name that was typed
            command(settings=TranslationSettings(**asked), **given)

        with_settings.__doc__ = command.__doc__
        with_settings.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
        )
        with_settings.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_settings

    return decorated


def options_of(settings: Settings, *groups: Group) -> list[str]:
    """The options that were given, as typed; only those of the groups if some are named."""
    known, given = described(type(settings)), settings.given()
    return [
        f"--{option}"
        for option, name in spelled(type(settings)).items()
        if name in given and (not groups or known[name].group in groups)
    ]


def options_not_for(settings: TranslationSettings, use: Use) -> list[str]:
    """The options that were given, as typed, but cannot be given for this use."""
    known, given = described(TranslationSettings), settings.given()
    return [
        f"--{option}"
        for option, name in spelled(TranslationSettings).items()
        if name in given and use not in known[name].uses
    ]


def _parameter(each: Description, option: str, name: str, usual: Mapping[str, Any]) -> inspect.Parameter:
    default = usual.get(name, each.default)
    is_switch = each.kind is bool and default is False
    flags = f"--{option}" if is_switch or each.kind is not bool else f"--{option}/--no-{option}"
    metavar = each.metavar or ("|".join(map(str, each.choices)) or None)
    info = typer.Option(
        flags,
        help=each.help + _default_in_words(each, option, default),
        metavar=metavar,
        min=each.least if each.kind is int else None,
        max=each.most if each.kind is int and each.most is not None and each.group != "retrieval" else None,
        show_default=False,
        rich_help_panel=_PANELS[each.group],
        parser=None if each.kind is bool else each.read,
    )
    kind = list[str] if each.many else each.kind
    annotation = Annotated[kind | None, info]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _default_in_words(each: Description, option: str, default: Any) -> str:
    if each.many:
        return " Can be repeated."
    if each.kind is bool and default is not None:
        words = option if default else f"no-{option}"
        return f"  [default: {words}]" if default or each.default else ""
    words = each.otherwise if default is None else str(default)
    return f"  [default: {words}]" if words else ""
