from __future__ import annotations

import re

from knnmt import errors


def test_the_drawn_tree_is_the_real_one() -> None:
    """Each class stands in the module's drawing, at the depth it really has."""
    drawn = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^ {4}([│├└─ ]*)([A-Z]\w+)", line)
        if match:
            drawn[match.group(2)] = len(match.group(1)) // 4
    real = {
        name: len([base for base in value.__mro__ if base.__module__ == errors.__name__]) - 1
        for name, value in vars(errors).items()
        if isinstance(value, type)
    }
    assert drawn == real


def test_a_missing_package_comes_with_the_command_that_installs_it() -> None:
    error = errors.MissingDependencyError("lib", "reading", "hub")
    assert str(error) == "reading needs the package 'lib', which is not installed: pip install 'knnmt[hub]'"
