"""For processes that shall have the packages of the light core and no others: the first lines of their script."""

from __future__ import annotations

FOUR_PACKAGES = """
import sys
from importlib.machinery import PathFinder
allowed = {"torch", "numpy", "safetensors", "tokenizers", "torchgen", "knnmt",
           # what torch itself brings
           "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock"}
class Light(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        top = name.partition(".")[0]
        found = top in allowed or top in sys.stdlib_module_names or top.startswith("_")
        return PathFinder.find_spec(name, path, target) if found else None
sys.meta_path[:] = [Light if each is PathFinder else each for each in sys.meta_path]
"""
