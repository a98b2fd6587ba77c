"""Collects the patterns of the package. A new pattern is among them without being listed anywhere.

A pattern is compiled when its module is imported, and stands in the module or a class, alone or in a collection. A
pattern that is made inside a function is read from the source: it consists of constants and of texts that are escaped.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import knnmt
import knnmt_lab
from knnmt.datastore.concordance import _pattern
from knnmt.protection.placeholder_kinds import KINDS
from knnmt.protection.placeholder_syntax import PlaceholderSyntax
from knnmt.protection.placeholders import _expression

_AT_ONE_PLACE = {"match", "fullmatch"}
_FUNCTIONS = {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}


@dataclass(frozen=True)
class PackagePattern:
    """A pattern of the package.

    searched: whether it is more than matched at given places
    """

    place: str
    pattern: re.Pattern[Any]
    searched: bool


@dataclass(frozen=True)
class _Module:
    module: ModuleType
    tree: ast.Module


@cache
def _modules() -> list[_Module]:
    roots = [Path(each.__file__ or "").parent for each in (knnmt, knnmt_lab)]
    files = (path for root in roots for path in sorted(root.rglob("*.py")) if path.stem != "__main__")
    paths = {path: path.relative_to(roots[0].parent).with_suffix("") for path in files}
    names = {path: ".".join(place.parts).removesuffix(".__init__") for path, place in paths.items()}
    return [_Module(importlib.import_module(name), ast.parse(path.read_text("utf-8"))) for path, name in names.items()]


def compiled() -> Iterator[PackagePattern]:
    """The patterns of modules and classes."""
    for each in _modules():
        for name, value in vars(each.module).items():
            if isinstance(value, re.Pattern):
                yield PackagePattern(f"{each.module.__name__}.{name}", value, _is_searched(name, value))
            elif not isinstance(value, type) or value.__module__ == each.module.__name__:
                for pattern in _inside(value):
                    yield PackagePattern(f"{each.module.__name__}.{name}", pattern, searched=True)


def _inside(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict | list | tuple | set | frozenset):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _inside(each, depth)
    elif depth < 2 and str(getattr(value, "__module__", "")).startswith("knnmt"):
        yield from _inside(dict(getattr(value, "__dict__", {})), depth + 1)


def _is_searched(name: str, pattern: re.Pattern[Any]) -> bool:
    return any(
        not at_one_place and (isinstance(node, ast.Attribute) or vars(module).get(name) is pattern)
        for module, node, at_one_place in _uses().get(name, [])
    )


@cache
def _uses() -> dict[str, list[tuple[ModuleType, ast.expr, bool]]]:
    """Where names are used, and whether only to match at one place."""
    uses: dict[str, list[tuple[ModuleType, ast.expr, bool]]] = {}
    for each in _modules():
        for parent in ast.walk(each.tree):
            at_one_place = isinstance(parent, ast.Attribute) and parent.attr in _AT_ONE_PLACE
            for child in ast.iter_child_nodes(parent):
                if isinstance(child, ast.Name | ast.Attribute) and isinstance(child.ctx, ast.Load):
                    name = child.id if isinstance(child, ast.Name) else child.attr
                    uses.setdefault(name, []).append((each.module, child, at_one_place))
    return uses


def made_in_functions() -> Iterator[PackagePattern | str]:
    """The patterns that functions make; of one that cannot be read from the source, only where it is."""
    for each in _modules():
        for function in ast.walk(each.tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                for call in ast.walk(function):
                    if isinstance(call, ast.Call) and (kind := _function(call)) in _FUNCTIONS:
                        place = f"{each.module.__name__}.{getattr(function, 'name', 'lambda')}"
                        text = _text(call.args[0], each.module)
                        flags = sum(getattr(re, name) for name in _flags(call))
                        yield (
                            place
                            if text is None
                            else PackagePattern(place, re.compile(text, flags), kind not in _AT_ONE_PLACE)
                        )


def _function(call: ast.Call) -> str:
    function = call.func
    from_re = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re"
    return function.attr if isinstance(function, ast.Attribute) and from_re else ""


def _flags(call: ast.Call) -> list[str]:
    return [each.attr for each in ast.walk(call) if isinstance(each, ast.Attribute) and each.attr.isupper()]


def _text(node: ast.expr, module: ModuleType) -> Any:
    """The text of a pattern, in which escaped texts are one letter; None if it cannot be read."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and isinstance(vars(module).get(node.id), str):
        return vars(module)[node.id]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "escape":
        return "x"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        return _joined(node.func.value, node.args[0], module)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, module)
    if isinstance(node, ast.JoinedStr):
        parts = [_text(each, module) for each in node.values]
        return None if None in parts else "".join(parts)
    return None


def _joined(between: ast.expr, parts: ast.expr, module: ModuleType) -> Any:
    """Two of the texts that are joined: `map(re.escape, texts)` or a pattern for each text."""
    separator, each = _text(between, module), None
    if isinstance(parts, ast.GeneratorExp):
        each = _text(parts.elt, module)
    elif isinstance(parts, ast.Call) and ast.unparse(parts.args[0]) == "re.escape":
        each = "x"
    if separator is None or each is None:
        return None
    return separator.join([each, each] if isinstance(separator, str) else [each.encode()] * 2)


_EVERY_KIND = tuple(dict.fromkeys(each for kind in KINDS for each in kind.where.split()))
EXAMPLES: dict[str, list[re.Pattern[Any]]] = {
    "knnmt.datastore.concordance._pattern": [_pattern(["\u00e9t\u00e9"])],
    "knnmt.datastore.store.matching": [],  # an expression that the owner of a store types
    "knnmt.protection.placeholders._expression": [
        *_expression(PlaceholderSyntax(_EVERY_KIND)),
        *_expression(PlaceholderSyntax(("text",), ("~~*~~", "#*", "[*|*]"))),
    ],
}
"""What functions make whose patterns cannot be read from the source."""


def of_the_package() -> list[PackagePattern]:
    made = [each for each in made_in_functions() if isinstance(each, PackagePattern)]
    examples = (PackagePattern(place, each, True) for place, found in EXAMPLES.items() for each in found)
    return list(dict.fromkeys((*compiled(), *made, *examples)))
