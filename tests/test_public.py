from __future__ import annotations

import subprocess
import sys

import pytest

import knnmt


def test_what_is_public_is_what_can_be_imported() -> None:
    assert sorted(knnmt.__all__) == dir(knnmt)
    for name in knnmt.__all__:
        assert getattr(knnmt, name) is not None
    with pytest.raises(AttributeError, match=r"no attribute 'Tranlator'; it has .*Translator"):
        knnmt.Tranlator  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, knnmt; print({'torch', 'numpy', 'typer', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
