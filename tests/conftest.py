"""What tests of several packages need: the shipped model, and small random checkpoints made on the spot.

PyTorch is imported where it is used: the process that hands out tests to others runs none.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import typer.main

from support import ROOT, warm
from support.checkpoints import MakeCheckpoint, edit_json, own_engine, write_checkpoint
from support.made_ray import MadeRay

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

    from knnmt.engine.transformer import TransformerEngine
    from knnmt.translator.translator import Translator
    from support.opened_pages import Windows
    from support.services import StartService

# No deadline: a busy machine is no failure. `make soak` runs the property tests by the thorough profile.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)
hypothesis.settings.load_profile("quick")
_NEEDING_A_GPU = pytest.StashKey[int]()
# Tests run hundreds of commands, and `typer.testing`, which they import later, would make all commands for each one.
typer.main.get_command = cache(typer.main.get_command)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `cuda` are left out where there is no GPU, and counted; `-m cuda` skips them by name."""
    import torch

    if torch.cuda.is_available():
        return
    needing = [item for item in items if item.get_closest_marker("cuda")]
    if config.option.markexpr == "cuda":
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="needs CUDA"))
        return
    config.hook.pytest_deselected(items=needing)
    items[:] = [item for item in items if item not in set(needing)]
    config.stash[_NEEDING_A_GPU] = len(needing)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Half a million objects of modules and tests stay: no garbage is looked for among them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # in a process that pytest-xdist started, which prints nothing
        session.config.workeroutput["needing a GPU"] = session.config.stash.get(_NEEDING_A_GPU, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_NEEDING_A_GPU] = getattr(node, "workeroutput", {}).get("needing a GPU", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left_out := config.stash.get(_NEEDING_A_GPU, 0):
        terminalreporter.write_line(
            f"{left_out} tests need a GPU and were left out: `make test-cuda` where there is one"
        )


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """As `knnmt.native.gpu.kernel`, but on a CPU."""
    from support.emulated_kernels import kernels_on_a_cpu

    return kernels_on_a_cpu(tmp_path_factory)


@pytest.fixture(scope="session")
def engine() -> TransformerEngine:
    """The shipped model."""
    return own_engine("de-en")


@pytest.fixture(scope="session", autouse=True)
def load_the_shipped_model_once() -> Iterator[None]:
    """Hundreds of tests ask for it."""
    from support.loaded_once import ASKING, sharing

    shared = sharing()
    with pytest.MonkeyPatch.context() as patched:
        for module in ASKING:
            patched.setattr(f"{module}.load_engine", shared)
        yield


@pytest.fixture(scope="session", autouse=True)
def wait_for_no_disk() -> Iterator[None]:
    """Only a power cut shows whether a file has reached the disk, and cores would wait for it thousands of times.

    Processes that tests kill do wait.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("knnmt.output_files.sync", os.fstat)  # which fails for a file that is not open, too
        yield


@pytest.fixture
def warm_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes whose speed is measured need not import PyTorch first."""
    started = SimpleNamespace(Popen=warm.Popen, PIPE=subprocess.PIPE)
    monkeypatch.setattr("knnmt_lab.bench.process.subprocess", started)


@pytest.fixture
def made_ray(monkeypatch: pytest.MonkeyPatch) -> MadeRay:
    """A cluster whose workers are this process."""
    made = MadeRay()
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


@pytest.fixture(scope="session")
def domain_data() -> Path:
    """Real domain text, where there is any: KNNMT_DATA, by default ../shared beside the checkout."""
    data = Path(os.environ.get("KNNMT_DATA", ROOT.parent / "shared")) / "data"
    if not data.is_dir():
        pytest.skip("no domain text: set KNNMT_DATA")
    return data


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> MakeCheckpoint:
    """make_checkpoint(**config) writes a small random Marian checkpoint and returns its directory."""
    made: dict[str, Path] = {}

    def make(generation: dict[str, Any] | None = None, **overrides: Any) -> Path:
        asked = repr(sorted(overrides.items()))
        if asked not in made:
            made[asked] = tmp_path_factory.mktemp("made")
            write_checkpoint(made[asked], **overrides)
        directory = tmp_path_factory.mktemp("checkpoint")
        shutil.copytree(made[asked], directory, dirs_exist_ok=True)
        edit_json(directory / "generation_config.json", **(generation or {}))
        return directory

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    """A random model of 32 dimensions whose tokens are letters."""
    return make_checkpoint()


@pytest.fixture(scope="session")
def short_checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    """The same, but that translations have at most 11 tokens, for tests that make many and look at no ends."""
    return make_checkpoint(generation={"max_length": 12})


@pytest.fixture(scope="session")
def overflowing_checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    """The same, but that numbers overflow in every sentence with an ß; no translation has one."""
    from safetensors.torch import load_file, save_file

    file = make_checkpoint() / "model.safetensors"
    weights = load_file(file)
    letter = 96 + "äöüßÄÖÜ".index("ß")
    weights["model.shared.weight"][letter] = 1e25
    weights["final_logits_bias"][0, letter] = -3e38
    save_file(weights, file, metadata={"format": "pt"})
    return file.parent


@pytest.fixture(scope="session")
def tiny(tiny_checkpoint: Path) -> TransformerEngine:
    return own_engine(tiny_checkpoint)


@pytest.fixture(scope="session")
def tiny_translator(tiny_checkpoint: Path) -> Iterator[Translator]:
    from knnmt.translator.translator import Translator

    with Translator(tiny_checkpoint, device="cpu") as translator:
        yield translator


@pytest.fixture(scope="session")
def built_store(tmp_path_factory: pytest.TempPathFactory, tiny: TransformerEngine) -> Callable[[int], Path]:
    """built_store(20) is a store of the small model with 20 pairs, made once: who changes it makes a copy."""
    from knnmt.datastore.store import Datastore
    from support.datastore_pairs import some_pairs

    @cache
    def built(pairs: int) -> Path:
        return Datastore.build(tmp_path_factory.mktemp("built") / "own.store", some_pairs(pairs), tiny).path

    return built


@pytest.fixture(scope="session")
def model(tiny_checkpoint: Path) -> list[str]:
    """The option that names the small model."""
    return ["--model", str(tiny_checkpoint)]


@pytest.fixture(scope="session")
def prepared_store(tmp_path_factory: pytest.TempPathFactory, tiny_translator: Translator) -> Path:
    """A store of the small model, with 20 pairs and its estimated settings, as `knnmt index` leaves it."""
    from knnmt.calibration.index_choice import prepare
    from knnmt.datastore.store import Datastore
    from support.datastore_pairs import some_pairs

    store = Datastore.build(tmp_path_factory.mktemp("prepared") / "s", some_pairs(20), tiny_translator.engine)
    prepare(store, tiny_translator.engine)
    return store.path


@pytest.fixture
def served_store(tmp_path: Path, prepared_store: Path) -> Path:
    """A copy of that store, which a test may change."""
    return Path(shutil.copytree(prepared_store, tmp_path / "s"))


@pytest.fixture(scope="module")
def stored_page(tmp_path_factory: pytest.TempPathFactory, tiny_translator: Translator) -> Path:
    """The store of the page's domains."""
    from support.opened_pages import stored

    return stored(tmp_path_factory.mktemp("page"), tiny_translator)


@pytest.fixture(scope="module")
def open_page(stored_page: Path, tiny_translator: Translator) -> Iterator[Windows]:
    """open_page() opens the page in a window of a browser of its own."""
    from support.opened_pages import Windows, browsing, site

    with ExitStack() as stack:
        address = stack.enter_context(site(stored_page, tiny_translator))
        yield Windows(stack, stack.enter_context(browsing()), address)


@pytest.fixture
def nothing_strange(open_page: Windows) -> Iterator[None]:
    """Fail if a page failed, or asked anybody else."""
    yield
    open_page.require_nothing_strange()


@pytest.fixture
def start_service(tmp_path: Path, tiny_translator: Translator) -> Iterator[StartService]:
    """start_service(stores={...}, ...) serves stores on the small model, without a network, until the test ends."""
    from fastapi.testclient import TestClient

    from knnmt.service.config import ServiceConfig
    from knnmt.service.http.app import make_app
    from knnmt.service.service import Service

    with ExitStack() as stack:

        def start(**settings: Any) -> TestClient:
            config = ServiceConfig(data=tmp_path / "data", **settings)
            service = Service(config, tiny_translator)
            return stack.enter_context(TestClient(make_app(service), base_url="http://127.0.0.1"))

        yield start


@pytest.fixture
def client(start_service: StartService, served_store: Path) -> TestClient:
    """Of a service with one domain, `small`."""
    return start_service(stores={"small": served_store})
