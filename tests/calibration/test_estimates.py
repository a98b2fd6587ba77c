"""Estimated settings: text made with known settings gives them back; what is remembered with a store; damage."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from knnmt.calibration.estimates import Calibration, Estimates, calibrate, calibrate_by_segment
from knnmt.calibration.held_out import HeldOutQueries, sample
from knnmt.calibration.likelihood import so_far as means_so_far
from knnmt.calibration.likelihood import spread
from knnmt.compression.pruning import prune
from knnmt.config import Fading
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.settings import SETTINGS, read_settings, write_settings
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import DatastoreDamagedError
from knnmt.index.base import SearchResult
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from knnmt.index.store_index import StoreIndex
from knnmt.retrieval.combiner import SentenceDistances, log_fading
from knnmt.retrieval.open_store import OpenStore
from support.datastore_pairs import some_pairs
from support.german import german_memory

ROWS, K, VOCABULARY, STEPS = 6000, 8, 40, 10
CALIBRATION = Calibration(8, 12.5, 0.4, 0.8, Fading(3.0, 0.5, 4.0, 0.2), tuple(float(n) ** 2 for n in range(21)), 99)
ENGINE: Any = SimpleNamespace(device="cpu", dtype=torch.float32, log_probabilities=lambda q: q.log_softmax(-1))


def made(trust: Tensor, temperature: float, distances_sq: Tensor, seed: int = 0) -> tuple[HeldOutQueries, SearchResult]:
    """Queries whose tokens were drawn from equation 3 with the λ given for each row, and what they found.

    A query is its own row of logits, which is all that the engine of these tests knows.
    """
    generator = torch.Generator().manual_seed(seed)
    queries = 2 * torch.randn(ROWS, VOCABULARY, generator=generator)
    values = torch.randint(VOCABULARY, (ROWS * K,), generator=generator, dtype=torch.int32)
    ids = torch.arange(ROWS * K).view(ROWS, K)
    chosen = torch.multinomial((-distances_sq / temperature).softmax(-1), 1, generator=generator)
    of_memory = values[ids.gather(1, chosen)[:, 0]].long()
    of_model = torch.multinomial(queries.softmax(-1), 1, generator=generator)[:, 0]
    tokens = torch.where(torch.rand(ROWS, generator=generator) < trust, of_memory, of_model)
    sentences = torch.arange(ROWS) // STEPS
    entries: Any = SimpleNamespace(values_of=lambda ids: values[ids], counts_of=lambda _ids, merged: None)
    return HeldOutQueries(entries, queries, tokens, np.zeros(ROWS, np.int64), sentences, {}), (distances_sq, ids)


def some_distances_sq(seed: int = 1) -> Tensor:
    """Nearest at 4 to 64, and each next a little farther: some 20 from the first to the last."""
    generator = torch.Generator().manual_seed(seed)
    steps = 6 * torch.rand(ROWS, K, generator=generator)
    steps[:, 0] = (2 + 6 * torch.rand(ROWS, generator=generator)).square()
    return steps.cumsum(1)


def estimated(held_out: HeldOutQueries, found: SearchResult) -> Calibration:
    calibration = calibrate(held_out, found, ENGINE)
    assert calibration is not None
    return calibration


@pytest.mark.parametrize(("trust", "temperature"), [(0.4, 10.0), (0.7, 4.0), (0.2, 20.0)])
def test_the_settings_that_made_the_text_are_found(trust: float, temperature: float) -> None:
    calibration = estimated(*made(torch.full((ROWS,), trust), temperature, some_distances_sq()))
    assert calibration.interpolation_weight == pytest.approx(trust, abs=0.11)
    assert temperature / 2 < calibration.temperature < 2 * temperature
    assert (calibration.k, calibration.queries) == (K, ROWS)


def test_a_memory_that_says_nothing_is_hardly_trusted() -> None:
    held_out, found = made(torch.zeros(ROWS), 10.0, some_distances_sq())
    calibration = estimated(held_out, found)
    assert calibration.interpolation_weight == 0.1  # the least there is to choose from
    distance, so_far = found[0][:, 0].sqrt(), means_so_far(found[0][:, 0].sqrt(), held_out.sentences)
    trusted = calibration.fading_weight * log_fading(calibration.fading, distance, so_far).exp()
    assert float(trusted.mean()) < 0.1


def test_a_memory_that_knows_what_is_near_is_trusted_there() -> None:
    distances_sq = some_distances_sq()
    near = distances_sq[:, 0].sqrt() < 4
    calibration = estimated(*made(0.95 * near, 5.0, distances_sq))
    steps = SentenceDistances(3, torch.device("cpu"))
    for _ in range(20):
        so_far = steps.add(torch.full((3,), 4.5**2))
    trusted = calibration.fading_weight * log_fading(calibration.fading, torch.tensor([2.5, 4.0, 6.5]), so_far).exp()
    assert float(trusted[0]) > 0.5
    assert float(trusted[2]) < 0.1
    for _ in range(200):
        far_away = steps.add(torch.full((3,), 16.0**2))
    abroad = calibration.fading_weight * log_fading(calibration.fading, torch.tensor([2.5, 4.0, 6.5]), far_away).exp()
    assert float(abroad.max()) < 0.05  # text of another kind


def test_rows_that_found_nothing_are_left_out() -> None:
    held_out, (distances_sq, ids) = made(torch.full((ROWS,), 0.5), 10.0, some_distances_sq())
    whole = estimated(held_out, (distances_sq, ids))
    empty = torch.arange(ROWS) % 3 == 0
    found = distances_sq.masked_fill(empty[:, None], float("inf")), ids.masked_fill(empty[:, None], -1)
    part = estimated(held_out, found)
    assert part.queries == ROWS - int(empty.sum())
    assert part.temperature == pytest.approx(whole.temperature, rel=0.6)
    nothing = torch.full_like(distances_sq, float("inf")), torch.full_like(ids, -1)
    assert calibrate(held_out, nothing, ENGINE) is None


def test_neighbours_that_are_missing_do_not_widen_the_spread() -> None:
    distances_sq = torch.tensor([[1.0, 3.0, 6.0], [2.0, 4.0, float("inf")], [5.0, float("inf"), float("inf")]])
    assert spread(distances_sq) == 2
    assert spread(torch.zeros(4, 3)) == 1e-3  # never 0: it becomes a temperature


def test_rows_of_equally_far_neighbours_do_not_narrow_the_spread() -> None:
    """Most entries of a memory may be near to each other, and the temperature is for the others."""
    equal = torch.full((9, 3), 4.0)
    telling = torch.tensor([[1.0, 3.0, 6.0]])
    assert spread(torch.cat([equal, telling])) == 5
    assert spread(equal) == 4


def test_a_memory_that_is_repeated_is_trusted_as_before(engine: TransformerEngine, tmp_path: Path) -> None:
    """Ten copies of a key are not eight different neighbours."""
    pairs = german_memory(8)
    found = []
    for times in (1, 10):
        entries = Entries(Datastore.build(tmp_path / str(times), pairs * times, engine))
        held_out = sample(entries, len(pairs) * times)
        estimated = calibrate(held_out, held_out.search(ExactIndex(entries), 8), engine)
        assert estimated is not None
        found.append(estimated)
    once, often = found
    assert often.temperature == pytest.approx(once.temperature, rel=0.01)
    assert often.interpolation_weight == once.interpolation_weight
    assert often.fading.scale == pytest.approx(once.fading.scale, rel=0.01)


def test_quantiles_are_those_of_the_nearest_distances() -> None:
    distances_sq = some_distances_sq()
    calibration = estimated(*made(torch.full((ROWS,), 0.5), 10.0, distances_sq))
    nearest = distances_sq[:, 0].sqrt().numpy()
    for quantile in (0, 0.05, 0.5, 0.95, 1):
        assert calibration.nearest_distance(quantile) == pytest.approx(np.quantile(nearest, quantile), rel=1e-5)


@given(st.floats(0, 1))
def test_quantiles_between_are_interpolated(quantile: float) -> None:
    expected = np.interp(quantile, np.linspace(0, 1, 21), CALIBRATION.nearest_distances)
    assert CALIBRATION.nearest_distance(quantile) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.lists(st.lists(st.floats(0, 100), min_size=1, max_size=6), min_size=1, max_size=6))
def test_means_so_far_are_those_that_decoding_will_see(sentences: list[list[float]]) -> None:
    """By a loop, and by `SentenceDistances`, which goes the steps one by one."""
    nearest = torch.tensor([distance for sentence in sentences for distance in sentence])
    numbers = torch.tensor([number for number, sentence in enumerate(sentences) for _ in sentence])
    so_far = means_so_far(nearest, 3 * numbers)
    expected = [(sum(each[: n + 1]) / (n + 1), n + 1) for each in sentences for n in range(len(each))]
    assert so_far.distance.tolist() == pytest.approx([mean for mean, _ in expected], rel=1e-4, abs=1e-5)
    assert so_far.steps.tolist() == [steps for _, steps in expected]
    seen = []
    for sentence in sentences:
        one = SentenceDistances(1, torch.device("cpu"))
        seen += [float(one.add(torch.tensor([distance]).square()).distance) for distance in sentence]
    assert so_far.distance.tolist() == pytest.approx(seen, rel=1e-3, abs=1e-3)


# What is remembered ---------------------------------------------------------------------------------------------------


def test_settings_for_a_translation() -> None:
    fading, fixed = CALIBRATION.config(), CALIBRATION.config(fading=False)
    assert (fading.k, fading.interpolation_weight, fading.temperature, fading.fading) == (
        8,
        0.8,
        12.5,
        CALIBRATION.fading,
    )
    assert (fixed.k, fixed.interpolation_weight, fixed.temperature, fixed.fading) == (8, 0.4, 12.5, None)


def test_a_store_remembers(tmp_path: Path) -> None:
    assert Calibration.of(tmp_path) is None
    write_settings(tmp_path, other={"kept": True})
    CALIBRATION.save(tmp_path)
    assert Calibration.of(tmp_path) == CALIBRATION
    Calibration.unknown().save(tmp_path)
    assert Calibration.of(tmp_path) == Calibration.unknown()
    assert read_settings(tmp_path)["other"] == {"kept": True}


def test_an_unknown_store_is_trusted_where_it_has_the_very_same_state_only() -> None:
    unknown = Calibration.unknown()
    steps = SentenceDistances(3, torch.device("cpu"))
    distance = torch.tensor([0.0, 5.0, 20.0])
    trusted = [
        unknown.fading_weight * log_fading(unknown.fading, distance, steps.add(distance.square())).exp()
        for _ in range(9)
    ]
    assert float(trusted[-1][0]) > 0.2
    assert float(trusted[-1][1:].max()) < 1e-3
    assert unknown.nearest_distance(0.3) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"k": None},
        {"k": 0},
        {"temperature": "warm"},
        {"temperature": -1.0},
        {"interpolation_weight": 1.5},
        {"fading_weight": [0.5]},
        {"fading": None},
        {"fading": {"scale": 1.0}},
        {"fading": {"scale": 1.0, "width": 0.0, "sentence_scale": 1.0, "sentence_width": 1.0}},
        {"fading": {"scale": 1.0, "width": "x", "sentence_scale": 1.0, "sentence_width": 1.0}},
        {"nearest_distances": 3},
        {"nearest_distances": [1.0]},
        {"nearest_distances": ["near", "far"]},
        {"more": 1},
    ],
)
def test_damaged_settings_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    CALIBRATION.save(tmp_path)
    section = read_settings(tmp_path)["calibration"]
    write_settings(tmp_path, calibration={**section, **change})
    with pytest.raises(DatastoreDamagedError, match=r"`knnmt index .*` estimates them again"):
        Calibration.of(tmp_path)


@pytest.mark.parametrize("field", ["k", "fading", "nearest_distances", "queries"])
def test_a_field_that_lacks_is_refused(tmp_path: Path, field: str) -> None:
    CALIBRATION.save(tmp_path)
    section = read_settings(tmp_path)["calibration"]
    del section[field]
    write_settings(tmp_path, calibration=section)
    with pytest.raises(DatastoreDamagedError, match=field):
        Calibration.of(tmp_path)


@pytest.mark.parametrize("content", ["{", "", "[]", "3", json.dumps({"calibration": []}), '{"calibration": "x"}', "\0"])
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / SETTINGS).write_text(content, encoding="utf-8")
    with pytest.raises(DatastoreDamagedError, match="settings"):
        Calibration.of(tmp_path)


def test_a_correction_keeps_what_was_estimated_and_much_that_is_new_does_not(
    tiny: TransformerEngine, tmp_path: Path
) -> None:
    pairs = [
        SegmentPair(f"{'abcdefgh'[number % 8]}cb", f"fe{'abcd'[number % 4]}", f"#{number}") for number in range(12)
    ]
    store = Datastore.build(tmp_path / "s", pairs, tiny)
    opened = OpenStore(store)
    first = Estimates(opened, tiny)
    estimated = first.whole
    store.add([SegmentPair("abc", "fed", "made#new")], tiny)
    opened.refresh()
    second = first.following(opened)
    assert second.whole is estimated
    store.add([SegmentPair("abcd" * 5, "fed" * number, "made#much") for number in range(1, 60)], tiny)
    opened.refresh()
    third = second.following(opened)
    assert third.whole == Estimates(opened, tiny).whole
    assert third.whole is not estimated


@pytest.mark.parametrize("kind", ["whole", "pruned"])
def test_held_out_sentences_find_the_nearest_of_their_segments_and_never_themselves(
    tiny: TransformerEngine, tmp_path: Path, kind: str
) -> None:
    opened = OpenStore(Datastore.build(tmp_path / "s", some_pairs(40), tiny), exact=True)
    if kind == "pruned":
        opened = OpenStore(prune(opened.datastore, tmp_path / "few", StoreIndex(opened.datastore).search, 4, 0))
    snapshot = opened.snapshot
    held_out = sample(snapshot.index.entries, 12)
    distances_sq, ids = held_out.search_by_segment(snapshot, 3, 5)
    entries = held_out.entries
    for row in range(len(held_out.queries)):
        number, sentence = held_out.places[int(held_out.sentences[row])]
        source = snapshot.datastore.segments[number].divided("source_offsets", sentence).tolist()
        (mine,) = snapshot.segment_entries([source], 4)
        mine = mine[entries.sentence_of(mine)[1] != sentence]
        distances = ((entries.keys_of(mine).astype(np.float64) - held_out.queries[row].double().numpy()) ** 2).sum(1)
        assert distances_sq[row].tolist() == pytest.approx(np.sort(distances)[:5].tolist(), rel=1e-3, abs=1e-3)
        assert set(ids[row].tolist()) <= set(mine.tolist())
    found = calibrate_by_segment(snapshot, tiny, 3)
    assert found is not None
    assert found.segments == found.config().segments == found.config(fading=False).segments == 3
