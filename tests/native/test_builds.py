"""Which compiled code is loaded, and what is said if it cannot be used."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from knnmt import native
from knnmt.errors import OldBuildWarning


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in place of the package's builds."""
    monkeypatch.setattr(native, "_HERE", tmp_path)
    monkeypatch.setattr(native, "fitting_builds", lambda: ["fast", "slow"])
    monkeypatch.delenv("KNNMT_NATIVE", raising=False)
    native.library.cache_clear()
    yield tmp_path
    native.library.cache_clear()


def test_a_build_that_cannot_be_used_is_named(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (builds / "knnmt-slow.so").write_bytes(b"not a library")
    with pytest.warns(OldBuildWarning, match=r"\(knnmt-slow\.so\).*pip install"):
        assert native.library() is None
    monkeypatch.setenv("KNNMT_NATIVE", "0")
    native.library.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.library() is None


def test_nothing_is_said_without_builds(builds: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.library() is None
