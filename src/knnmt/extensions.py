"""Custom code, by the name that a user typed: `package.module:Name`, or a name that a package registers.

Importing runs code. So names come from a command line or a call, never from a store, a memory or a checkpoint.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from typing import Any

from knnmt.errors import SettingError

COMBINERS, GATES, INDEX_KINDS = "knnmt.combiners", "knnmt.gates", "knnmt.index_kinds"
NETWORKS = "knnmt.networks"
COMMANDS, METRICS, SYSTEMS = "knnmt.commands", "knnmt.metrics", "knnmt.systems"
_modules: set[str] = set()  # named in this process


def names_code(text: str) -> bool:
    """Whether a text has the form `package.module:Name`."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def registered(group: str) -> list[str]:
    """The names that installed packages register in a group."""
    return sorted({each.name for each in entry_points(group=group)})


def named(text: str, group: str, what: str) -> Any:
    """The object that a text names: an attribute of a module, or what an installed package registers in `group`.

    Modules are looked up as Python does, and last in the current directory. what: for messages, such as "combiner"
    """
    found = {each.name: each for each in entry_points(group=group)}
    if text in found:
        _modules.add(found[text].module)
        try:
            return found[text].load()
        except Exception as error:  # the module may raise anything when it is imported
            raise SettingError(f"the {what} {text!r}, {found[text].value}, cannot be loaded: {error}") from error
    if not names_code(text):
        known = f"; installed packages register {', '.join(sorted(found))}" if found else ""
        raise SettingError(f"there is no {what} {text!r}: expected package.module:Name, or a registered name{known}")
    module, _, name = text.partition(":")
    _modules.add(module)
    here = str(Path.cwd())
    sys.path.append(here)  # last, and only for this import: nothing in the directory replaces what is installed
    try:
        return attrgetter(name)(importlib.import_module(module))
    except ModuleNotFoundError as error:
        raise SettingError(
            f"{what} {text!r}: there is no module {error.name!r}, neither installed nor in {here}"
        ) from error
    except AttributeError as error:
        raise SettingError(f"{what} {text!r}: {error}") from error
    except Exception as error:  # the module may raise anything when it is imported
        raise SettingError(f"{what} {text!r} cannot be loaded: {type(error).__name__}: {error}") from error
    finally:
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(here)]  # the last: it may be there twice


def module_that_failed(error: BaseException) -> str | None:
    """The custom module that an exception comes from or passed through, if one was named."""
    passed = {frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)}
    return min(_modules & passed, default=None)
