"""Which compiled code is loaded, and what is said if it cannot be used."""

from __future__ import annotations

import ctypes.util
import re
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from knnmt import native
from knnmt.errors import IgnoredSettingWarning, OldBuildWarning
from support import ROOT
from support.native_builds import INT8_SOURCES


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


def test_a_build_for_another_cpu_is_named(builds: Path) -> None:
    (builds / "knnmt-another.so").write_bytes(b"for a CPU that this one is not")
    with pytest.warns(OldBuildWarning, match=r"\(knnmt-another\.so\).*another CPU.*pip install"):
        assert native.library() is None


def test_an_installation_builds_what_is_loaded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    building = runpy.run_path(str(ROOT / "hatch_build.py"))
    every = list(building["builds_for"]("all"))
    assert list(building["builds_for"]("this")) == [name for name in every if name in native.fitting_builds()][:1]
    assert [name for name in every if name in native.fitting_builds()] == native.fitting_builds()


def test_nothing_is_said_without_builds(builds: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.library() is None


def test_amx_is_chosen_where_the_cpu_has_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    flags = {"avx512_vnni", "amx_tile", "amx_int8"}
    for missing in ("", *flags):
        monkeypatch.setattr(native, "_cpu_flags", lambda missing=missing: frozenset(flags - {missing}))
        assert ("avx512amx" in native.fitting_builds()) == (not missing)
    monkeypatch.setattr(native, "_cpu_flags", lambda: frozenset(flags))
    assert native.fitting_builds() == ["avx512amx", "avx512vnni", "avx512", "avx2"]


def test_a_build_can_be_named(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "load", lambda name: name)
    for wanted, loaded in (("slow", "slow"), ("", "fast")):
        monkeypatch.setenv("KNNMT_NATIVE", wanted)
        native.library.cache_clear()
        assert str(native.library()) == loaded
    for wanted in ("another", "1", "../slow", " slow"):  # what does not fit this CPU is no name
        monkeypatch.setenv("KNNMT_NATIVE", wanted)
        native.library.cache_clear()
        with pytest.warns(IgnoredSettingWarning, match=f"={wanted} names no build .* name one of fast, slow, or set 0"):
            assert str(native.library()) == "fast"
    assert not list(builds.iterdir())


def test_a_build_that_was_named_and_is_missing_is_missed(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNNMT_NATIVE", "slow")
    with pytest.warns(OldBuildWarning, match=r"\(knnmt-slow\.so\) is missing.*pip install"):
        assert native.library() is None
    assert not list(builds.iterdir())


def test_builds_of_the_same_vectors_differ_in_products_in_int8_alone() -> None:
    """So that most tests need one build of each kind of vectors."""
    sources = Path(native.__file__).parent.glob("*.[ch]*")
    asking = {path.name for path in sources if re.search("VNNI|AMX|DOTPROD", path.read_text(encoding="utf-8"))}
    assert asking == INT8_SOURCES


def test_the_build_for_amx_has_its_tiles() -> None:
    """Or a compiler that does not know them would make one that does the same without."""
    found = native.load("avx512amx")
    if found is None:
        pytest.skip("not built")
    assert b"\xc4\xe2\x78\x49\xc0" in Path(found._name).read_bytes()  # tilerelease


@pytest.mark.skipif(native.library() is None, reason="nothing was compiled")
def test_a_build_of_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.load(native.fitting_builds()[-1]) is not None
    monkeypatch.setattr(native, "source_digest", lambda: "0")
    assert native.load(native.fitting_builds()[-1]) is None
    assert native.load("of no CPU") is None


@pytest.mark.skipif(native.library() is None, reason="nothing was compiled")
def test_a_library_that_lacks_what_is_asked_for_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = ctypes.util.find_library("m")
    if library is None:
        pytest.skip("no library at hand that is not ours")
    (tmp_path / "knnmt-other.so").write_bytes((native._HERE / f"knnmt-{native.fitting_builds()[-1]}.so").read_bytes())
    monkeypatch.setattr(native, "_HERE", tmp_path)
    assert native.load("other") is None  # its sources are others: there are none here
    monkeypatch.setattr(ctypes, "CDLL", lambda _: ctypes.cdll.LoadLibrary(library))
    assert native.load("other") is None


def test_the_environment_can_switch_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNNMT_NATIVE", "0")
    assert native.library.__wrapped__() is None
