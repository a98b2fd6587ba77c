"""Products in int8 beside a numpy reference, in every build that runs here and in PyTorch; the engine around them."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knnmt import Translator, native
from knnmt.datastore.building import write_store
from knnmt.datastore.store import Datastore
from knnmt.decoding.search import search
from knnmt.engine import product
from knnmt.engine.forced import force
from knnmt.engine.loading import load_engine
from knnmt.engine.product import Int8Projection
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from support.datastore_pairs import some_pairs
from support.native_builds import assert_rows_are_alone, builds_that_run

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@pytest.fixture(params=[*builds_that_run(), "PyTorch"])
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL | None:
    found = None if request.param == "PyTorch" else native.load(request.param)
    monkeypatch.setattr(product, "library", lambda: found)
    return found


def in_steps(rows: Array, most: int) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], Array]:
    largest = np.abs(rows).max(1)
    steps = np.divide(np.float32(most), largest, where=largest > 0, out=np.zeros_like(largest))
    return np.rint(rows * steps[:, None]).astype(np.int64), largest / np.float32(most)


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, fine: bool = False) -> torch.Tensor:
    numbers, steps = in_steps(x.numpy(), 127 * 128 if fine else 127)
    codes, scales = in_steps(weight.numpy(), 127)
    sums = (numbers @ codes.T).astype(np.float32)
    y = sums * (scales * steps[:, None])
    return torch.from_numpy(y if bias is None else y + bias.numpy())


@pytest.mark.usefixtures("build")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(
    rows=st.integers(1, 19),
    inputs=st.integers(1, 150),
    outputs=st.integers(1, 140),
    bias=st.booleans(),
    fine=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_is_what_numpy_finds_in_every_bit(
    rows: int, inputs: int, outputs: int, bias: bool, fine: bool, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    x, weight = torch.randn(rows, inputs, generator=random), torch.randn(outputs, inputs, generator=random)
    x[seed % rows] = 0  # a row of nothing
    weight[seed % outputs] = 0
    b = torch.randn(outputs, generator=random) if bias else None
    assert torch.equal(Int8Projection(weight, b, fine)(x), reference(x, weight, b, fine))


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("rows", [1, 3, 5, 8, 9, 16, 17, 40])
@pytest.mark.parametrize("fine", [False, True])
def test_many_inputs_are_multiplied_in_blocks(rows: int, fine: bool) -> None:
    """Of few rows and of many, with panels that do not fill the last group."""
    for inputs, outputs in ((512, 64), (1023, 100), (2049, 33)):
        x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
        x /= x.abs().amax(1, keepdim=True)  # so small that float32 holds all sums
        assert torch.equal(Int8Projection(weight, None, fine)(x), reference(x, weight, None, fine))


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(("rows", "inputs", "fine"), [(83, 8190, True), (83, 8190, False), (699, 1021, False)])
def test_more_rows_than_stay_near_are_multiplied_in_blocks(rows: int, inputs: int, fine: bool) -> None:
    x, weight = torch.randn(rows, inputs), torch.randn(50, inputs)
    assert torch.equal(Int8Projection(weight, None, fine)(x), reference(x, weight, None, fine))


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("inputs", [1280, 4099])
@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_the_largest_sums_are_whole(inputs: int, fine: bool, signs: tuple[int, int]) -> None:
    x, weight = torch.full((9, inputs), 3.0 * signs[0]), torch.full((70, inputs), 0.5 * signs[1])
    x[:, 1::2] *= torch.linspace(-1, 1, 9)[:, None]
    found = Int8Projection(weight, None, fine)(x)
    torch.testing.assert_close(found, reference(x, weight, None, fine), rtol=3e-7 if fine else 0, atol=0)
    torch.testing.assert_close(found[-1:], x[-1:] @ weight.T)


@pytest.mark.usefixtures("build")
def test_a_row_depends_neither_on_the_others_nor_on_the_threads() -> None:
    product = Int8Projection(torch.randn(97, 50), torch.randn(97))
    x = torch.randn(23, 50) * torch.logspace(-30, 30, 23)[:, None]
    assert_rows_are_alone(product, x)
    assert torch.equal(product(x), product(x.T.contiguous().T))  # however the rows lie


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_what_overflowed_stays_no_number(number: float, fine: bool) -> None:
    x = torch.randn(3, 40)
    x[1, 7] = number
    found = Int8Projection(torch.randn(33, 40), None, fine)(x)
    assert not found[1].isfinite().any()
    assert found[[0, 2]].isfinite().all()


# The engine around them -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_int8() -> TransformerEngine:
    loaded = load_engine("de-en", device="cpu", dtype="int8")
    assert isinstance(loaded, TransformerEngine)
    return loaded


@pytest.mark.parametrize("name", ["de-en", "en-de"])
def test_the_engine_stays_close_to_float32(name: str) -> None:
    engine, in_int8 = load_engine(name, device="cpu"), load_engine(name, device="cpu", dtype="int8")
    pairs = [(pair.source, pair.target) for pair in some_pairs(12)]
    german, english = zip(*pairs, strict=True)
    from_texts, to_texts = (german, english) if name == "de-en" else (english, german)
    sources = engine.tokenizer.encode_sources(from_texts)
    targets = engine.tokenizer.encode_targets(to_texts)
    exact, rough = (force(each, sources, targets) for each in (engine, in_int8))
    assert rough.representations.dtype == in_int8.dtype == torch.float32
    distance = (exact.representations - rough.representations).norm(dim=1)
    assert (distance / exact.representations.norm(dim=1)).mean() < 0.05
    expected, found = (
        each.log_probabilities(block.representations) for each, block in ((engine, exact), (in_int8, rough))
    )
    chosen = exact.targets[:, None]
    assert (expected.gather(1, chosen) - found.gather(1, chosen)).abs().mean() < 0.1
    assert (expected.argmax(1) == found.argmax(1)).float().mean() > 0.95


def test_a_translation_depends_neither_on_its_batch_nor_on_compiled_code(
    in_int8: TransformerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = in_int8.tokenizer.encode_sources([pair.source for pair in some_pairs(6)])
    config = replace(in_int8.generation, beam=3, max_tokens=20)
    found = [each[0].tokens for each in search(in_int8, sources, config)]
    assert found == [search(in_int8, [source], config)[0][0].tokens for source in sources]
    monkeypatch.setattr(product, "library", lambda: None)
    plain = load_engine("de-en", device="cpu", dtype="int8")
    assert found == [each[0].tokens for each in search(plain, sources, config)]


def test_a_store_of_float32_is_searched_but_none_is_built(engine: TransformerEngine, tmp_path: Path) -> None:
    store = Datastore.build(tmp_path / "store", some_pairs(8), engine)
    translator = Translator(device="cpu", dtype="int8", datastore=store, settings="raw")
    assert "|dtype:int8|" in translator.signature()
    pair = some_pairs(8)[5]
    assert translator.translate(pair.source, datastore=None).text != pair.target
    assert translator.translate(pair.source, k=1, interpolation_weight=0.99).text.strip() == pair.target
    with pytest.raises(SettingError, match="an engine in int8 cannot compute keys"):
        write_store(tmp_path / "other", some_pairs(2), translator.engine)
    with pytest.raises(SettingError, match=r"computes in int8\. Load the model with dtype='float32'"):
        store.add(some_pairs(2), translator.engine)
