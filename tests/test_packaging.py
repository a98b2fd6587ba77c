"""The package as others get it: a wheel in an empty environment, and the bare sources beside only what they need."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support import ROOT
from support.light_core import FOUR_PACKAGES
from support.made_stores import made_store, random_keys, random_values

LIGHT_CORE = (
    FOUR_PACKAGES
    + """
import knnmt
print(knnmt.__file__)
print(knnmt.Translator(device="cpu").translate("Danke!").text)
from pathlib import Path
from knnmt.compression.pca import reduce
from knnmt.compression.pruning import prune
from knnmt.index.store_index import StoreIndex
reduced, _ = reduce(knnmt.Datastore.open(sys.argv[1]), Path(sys.argv[2]) / "reduced", 8)
print(prune(reduced, Path(sys.argv[2]) / "pruned", StoreIndex(reduced).search).manifest.transforms)
from knnmt.adapting.cache_tuning import beam_states
from knnmt.adapting.development import search_text
from knnmt.retrieval.open_store import OpenStore
from knnmt.adapting.tuning_by_likelihood import tune_positions
translator = knnmt.Translator(device="cpu")
pairs = [knnmt.SegmentPair(f"Das ist Satz {n}.", f"This is sentence {n}.", "own") for n in range(6)]
opened = OpenStore(knnmt.Datastore.build(Path(sys.argv[2]) / "own", pairs[:4], translator.engine))
config = tune_positions(search_text(translator.engine, opened, pairs[4:]).positions()).fading.fading
print(beam_states(translator, opened, config, ["Das ist Satz 9."]).states.shape[1])
from knnmt.adapting.gate_training import GateConfig, gate_text, train_gate
texts = [gate_text(translator.engine, opened, some, config, ("confidence",)) for some in (pairs[4:5], pairs[5:])]
train_gate(opened, *texts, config, GateConfig(epochs=1)).gate.write(opened.datastore.path)
gated = knnmt.retrieval.settings.RetrievalSettings(gate=0.5)
print(translator.memories.retrieval(opened.datastore, gated).config.signature())
"""
)


def clean_environment(**extra: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}, **extra}


def test_the_sources_alone_translate_reduce_prune_tune_and_train_with_four_packages(tmp_path: Path) -> None:
    store = made_store(tmp_path / "made.store", random_keys(60, 32), random_values(60)).path
    done = subprocess.run(
        [sys.executable, "-c", LIGHT_CORE, str(store), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd="/",
        env=clean_environment(PYTHONPATH=str(ROOT / "src")),
    )
    assert done.stderr == ""
    place, text, transforms, dim, signature = done.stdout.splitlines()
    assert Path(place) == ROOT / "src" / "knnmt" / "__init__.py"
    assert text == "Thank you!"
    assert transforms == "('pca:8', 'prune:k=2,seed=0')"
    assert dim == "320"
    assert signature.endswith("|gate:0.5")


PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check"]


def done_in(place: Path, *command: str | Path, **extra: str) -> str:
    environment = clean_environment(**extra)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=place, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def made_wheel(place: Path, *options: str) -> Path:
    place.mkdir()
    done_in(place, sys.executable, *PIP, "wheel", "--no-deps", *options, "--wheel-dir", place, ROOT)
    (wheel,) = place.glob("knnmt-*.whl")
    return wheel


def test_a_wheel_holds_what_it_needs_and_translates(tmp_path: Path) -> None:
    """Made and used with the packages of this environment; `make soak` makes and installs it in empty ones."""
    wheel = made_wheel(tmp_path / "a wheel", "--no-build-isolation")
    held = set(zipfile.ZipFile(wheel).namelist())
    models = (ROOT / "src" / "knnmt" / "models").glob("*/*")
    model_files = [path.relative_to(ROOT / "src").as_posix() for path in models]
    assert {"knnmt/models/de-en/model.safetensors", "knnmt/models/en-de/model.safetensors"} <= set(model_files)
    assert set(model_files) <= held
    licences = {name.partition(".dist-info/licenses/")[2] for name in held if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE", *(f"src/{name}" for name in model_files if name.endswith("/README.md"))}
    assert {"knnmt/py.typed", "knnmt/__init__.pyi"} <= held
    assert {"knnmt/translator/page.css", "knnmt/translator/page.js"} <= held
    page = {f"knnmt/service/page/{each.name}" for each in (ROOT / "src" / "knnmt" / "service" / "page").iterdir()}
    assert "knnmt/service/page/index.html" in page
    assert page <= held
    assert not [name for name in held if name.startswith(("tests", "benchmarks"))]
    assert {"knnmt/native/search.cpp", "knnmt/native/step.cpp", "knnmt/native/vectors.h"} <= held
    assert {"knnmt/native/gpu/mix.cu", "knnmt/native/gpu/select.cu"} <= held
    assert wheel.stem.endswith("-none-any") != any(name.endswith(".so") for name in held)

    place = tmp_path / "a b"
    zipfile.ZipFile(wheel).extractall(place)
    (entries,) = place.glob("knnmt-*.dist-info/entry_points.txt")
    assert "knnmt = knnmt.__main__:main" in entries.read_text(encoding="utf-8")
    where = "import knnmt; print(knnmt.__file__); print(knnmt.Translator(device='cpu').translate('Danke!').text)"
    said = done_in(tmp_path, sys.executable, "-c", where, PYTHONPATH=str(place))
    assert said.splitlines() == [str(place / "knnmt" / "__init__.py"), "Thank you!"]


@pytest.mark.soak
def test_a_wheel_installs_in_an_empty_environment_and_translates(tmp_path: Path) -> None:
    wheel = made_wheel(tmp_path / "a wheel")
    place = tmp_path / "a b"
    done_in(tmp_path, sys.executable, "-m", "venv", place)
    done_in(tmp_path, place / "bin" / "python", *PIP, "install", "--constraint", ROOT / "constraints.txt", wheel)
    assert done_in(tmp_path, place / "bin" / "knnmt", "--version").startswith("knnmt ")
    (tmp_path / "in.txt").write_text("Danke!\n", encoding="utf-8")
    assert done_in(tmp_path, place / "bin" / "knnmt", "translate", "in.txt") == "Thank you!\n"


@pytest.mark.soak
def test_a_fresh_clone_in_a_path_with_a_space_runs_the_demo_twice(tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    for _ in range(2):
        done = subprocess.run(["make", "demo"], cwd=clone, capture_output=True, text=True, env=clean_environment())
        assert done.returncode == 0, done.stderr
        assert "with the memory   BLEU" in done.stdout
