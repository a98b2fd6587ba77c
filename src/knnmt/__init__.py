"""knnmt: nearest-neighbour machine translation.

import knnmt
print(knnmt.adapt("memory.tmx", "own.store"))
print(knnmt.Translator(datastore="own.store").translate("Guten Morgen!").text)

Names are loaded when first used, so that `import knnmt` costs nothing. `__init__.pyi` lists them.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from knnmt.threads import TORCH_SPINS, loading
from knnmt.version import __version__ as __version__


@cache
def _homes() -> dict[str, str]:
    """The module of each public name."""
    import ast

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [each for each in stub.body if isinstance(each, ast.ImportFrom)]
    return {name.name: str(each.module) for each in imports for name in each.names}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return sorted(_homes())
    if name not in _homes():
        raise AttributeError(f"module 'knnmt' has no attribute {name!r}; it has {', '.join(sorted(_homes()))}")
    with loading("torch", TORCH_SPINS):
        return getattr(import_module(_homes()[name]), name)


def __dir__() -> list[str]:
    return sorted(_homes())
