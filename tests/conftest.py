"""What tests of several packages need: the shipped model, and small random checkpoints made on the spot.

PyTorch is imported where it is used: the process that hands out tests to others runs none.
"""

from __future__ import annotations

import gc
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import typer.main
import typer.testing

import warm
from made_ray import MadeRay

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

    from knnmt.engine.transformer import TransformerEngine
    from knnmt.translator.translator import Translator

ROOT = Path(__file__).parent.parent
MakeCheckpoint = Callable[..., Path]
StartService = Callable[..., "TestClient"]
# No deadline: a busy machine is no failure. `make soak` runs the property tests by the thorough profile.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)
hypothesis.settings.load_profile("quick")
_NEEDING_A_GPU = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Of the processes that pytest-xdist starts for all tests, the second reads the files from the last to the first.

    Whoever reads a file first rewrites its assertions, which takes as long as everything else before the first test.
    """
    everything = [Path(each).resolve() for each in config.args] == [ROOT / "tests"]
    if everything and os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
        config.args = [str(file) for file in sorted((ROOT / "tests").rglob("test_*.py"), reverse=True)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `cuda` are left out where there is no GPU, and counted; `-m cuda` skips them by name."""
    import torch

    # All processes must find the same order. Files of no package come first: they have tests that take seconds, at
    # whose end one core would wait for the other.
    items.sort(key=lambda item: (item.path.parent != ROOT / "tests", item.path.parts))
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
    from emulated_kernels import kernels_on_a_cpu

    return kernels_on_a_cpu(tmp_path_factory)


@pytest.fixture(scope="session")
def engine() -> TransformerEngine:
    """The shipped model."""
    return own_engine("de-en")


@pytest.fixture(scope="session", autouse=True)
def load_the_shipped_model_once() -> Iterator[None]:
    """Hundreds of tests ask for it."""
    from loaded_once import ASKING, sharing

    shared = sharing()
    with pytest.MonkeyPatch.context() as patched:
        for module in ASKING:
            patched.setattr(f"{module}.load_engine", shared)
        yield


@pytest.fixture(scope="session", autouse=True)
def read_the_command_line_once() -> Iterator[None]:
    """`CliRunner` would make all commands of their functions for each one that it runs, and tests run hundreds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("typer.testing._get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def wait_for_no_disk() -> Iterator[None]:
    """Only a power cut shows whether a file has reached the disk, and cores would wait for it thousands of times.

    What takes the place of `fsync` fails for a file that is not open, too. Processes that tests kill do wait.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", os.fstat)
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


def write_checkpoint(directory: Path, **overrides: Any) -> None:
    """A small random Marian checkpoint, always the same."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    settings = {
        "vocab_size": 231,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 40,
        "activation_function": "swish",
        "scale_embedding": True,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "pad_token_id": 230,
        "decoder_start_token_id": 230,
        "init_std": 0.35,  # large enough that the next token is rarely a toss-up
    }
    torch.manual_seed(11)
    model = MarianMTModel(MarianConfig(**{**settings, **overrides})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases and norms start as zeros and ones, which would hide mistakes
                parameter.add_(torch.randn_like(parameter) * 0.2)
        model.final_logits_bias.normal_(std=0.3)
        model.final_logits_bias[0, 0] += 7  # or hardly any hypothesis would end by itself
    model.save_pretrained(directory)
    edit_json(directory / "generation_config.json", num_beams=4, max_length=settings["max_position_embeddings"])
    write_letter_tokenizer(directory / "tokenizer.json")


def write_letter_tokenizer(path: Path) -> None:
    """A tokenizer of 231 ids in which every letter is a token: end 0, unknown 229, padding 230."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    letters = {chr(code): code - 31 for code in range(32, 127)} | {letter: 96 + i for i, letter in enumerate("äöüßÄÖÜ")}
    fillers = {f"<{number}>": number for number in range(103, 229)}
    vocabulary = {"</s>": 0, **letters, **fillers, "<unk>": 229, "<pad>": 230}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    tokenizer.add_special_tokens(["</s>", "<unk>", "<pad>"])
    tokenizer.save(str(path))


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file; None removes one."""
    content = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}), encoding="utf-8")


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
def prepared_store(tmp_path_factory: pytest.TempPathFactory, tiny_translator: Translator) -> Path:
    """A store of the small model, with 20 pairs and its estimated settings, as `knnmt index` leaves it."""
    from datastore_pairs import some_pairs

    from knnmt.datastore.store import Datastore
    from knnmt.fitting.index_preparation import prepare

    store = Datastore.build(tmp_path_factory.mktemp("prepared") / "s", some_pairs(20), tiny_translator.engine)
    prepare(store, tiny_translator.engine)
    return store.path


@pytest.fixture
def served_store(tmp_path: Path, prepared_store: Path) -> Path:
    """A copy of that store, which a test may change."""
    return Path(shutil.copytree(prepared_store, tmp_path / "s"))


@pytest.fixture
def start_service(tmp_path: Path, tiny_translator: Translator) -> Iterator[StartService]:
    """start_service(stores={...}, ...) serves stores on the small model, without a network, until the test ends."""
    from fastapi.testclient import TestClient

    from knnmt.service.app import make_app
    from knnmt.service.config import ServiceConfig
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


def all_commands() -> dict[str, Any]:
    """The commands of `knnmt` by their names, with those that are registered."""
    from knnmt.cli import app

    group: Any = typer.main.get_command(app)
    context = group.make_context("knnmt", ["models"])
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def own_engine(model: str | Path) -> TransformerEngine:
    """A checkpoint that our own transformer runs, on the CPU."""
    from knnmt.engine.loading import load_engine
    from knnmt.engine.transformer import TransformerEngine

    loaded = load_engine(model, device="cpu")
    assert isinstance(loaded, TransformerEngine)
    return loaded


def domain_lines(data: Path, domain: str, count: int, side: int = 0) -> list[str]:
    """The first lines of a domain's development set: side 0 is German, 1 English."""
    with lzma.open(data / domain / "dev.tsv.xz", "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t")[side] for line in islice(lines, count)]
