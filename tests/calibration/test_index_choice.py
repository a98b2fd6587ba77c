"""Choosing an index: by fidelity that is really measured, and by times that these tests decide."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from knnmt.calibration import index_choice
from knnmt.calibration.fidelity import BATCHES, Fidelity, fidelity
from knnmt.calibration.held_out import HeldOutQueries, sample
from knnmt.calibration.index_choice import CANDIDATES, Candidate, Chooser, Target, _settings_to_try
from knnmt.datastore.store import Datastore
from knnmt.errors import SettingError
from knnmt.index.base import Index
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.kinds import EXACT, KINDS, SearchSettings
from knnmt.index.saved import MISSING, read_saved
from knnmt.index.store_index import StoreIndex
from support.index_stores import clustered, faiss_or_skip, write_store

K, TEMPERATURE = 8, 3.0
EXACT_MS = 10.0
HARD = Target(recall=1.0, variation=0.0)


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact search takes 10 ms, an index as many microseconds as it has probes and candidates."""

    def milliseconds(index: Index, _queries: Tensor, _k: int) -> dict[int, float]:
        each = EXACT_MS
        if isinstance(index, FaissIndex):
            each = (index.settings.probes + index.settings.candidates) / 1000
        return dict.fromkeys(BATCHES, each)

    monkeypatch.setattr(index_choice, "milliseconds_per_batch", milliseconds)


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    return write_store(tmp_path / "store", [clustered(2000), clustered(500, seed=1)])


def chooser_of(store: Datastore, temperature: float = TEMPERATURE, **limits: int) -> tuple[Chooser, HeldOutQueries]:
    entries = Entries(store)
    held_out = sample(entries, 15)
    exact = ExactIndex(entries)
    return Chooser(store, held_out, exact, held_out.search(exact, K), temperature, **limits), held_out


def assert_saved(store: Datastore, chosen: Candidate, held_out: HeldOutQueries) -> None:
    """What is opened now is the index that was chosen, with its settings, and does what was measured."""
    saved = read_saved(store)
    assert saved is not None
    assert (saved.kind, saved.settings) == (chosen.kind, chosen.settings)
    index = StoreIndex(Datastore.open(store.path))
    assert index.description.startswith(chosen.kind)
    true = held_out.search(ExactIndex(held_out.entries), K)
    again = fidelity(held_out.queries, held_out.search(index, K), true, held_out.entries, TEMPERATURE)
    assert again.recall == pytest.approx(chosen.fidelity.recall)
    assert again.variation == pytest.approx(chosen.fidelity.variation, abs=1e-6)
    if chosen.kind != EXACT:
        assert saved.fidelity["recall"] == chosen.fidelity.recall
        assert saved.fidelity["k"] == K
        assert saved.fidelity["milliseconds"]["40"] == chosen.milliseconds[40]


def test_the_fastest_that_reaches_the_target_is_saved(store: Datastore) -> None:
    faiss_or_skip()
    choosing, held_out = chooser_of(store)
    heard: list[Candidate] = []
    target = Target(recall=0.9, variation=0.05)
    choice = choosing.choose(target, ["ivfpq", "ivf-flat", "rabitq"], on_candidate=heard.append)
    assert tuple(heard) == choice.measured
    assert {each.kind for each in heard} == {EXACT, "ivfpq", "ivf-flat", "rabitq"}
    good = [each for each in heard if target.reached_by(each.fidelity)]
    assert choice.chosen == min(good, key=lambda each: each.milliseconds[40])
    assert choice.chosen.kind == "ivf-flat"  # whole keys, a few probes, nothing measured again
    assert choice.reason.startswith("the fastest that keeps recall 0.9 and variation 0.05; ")
    assert choice.reason.endswith(" times as fast as exact search for 40 queries")
    assert_saved(store, choice.chosen, held_out)


def test_a_kind_is_tried_until_it_reaches_the_target(store: Datastore) -> None:
    faiss_or_skip()
    choice = chooser_of(store)[0].choose(Target(recall=0.99, variation=0.01), ["ivf-flat", "rabitq"])
    for kind in ("ivf-flat", "rabitq"):
        tried = [each for each in choice.measured if each.kind == kind]
        assert [each.settings for each in tried] == _settings_to_try(KINDS[kind].settings)[: len(tried)]
        reached = [each.fidelity.recall >= 0.99 and each.fidelity.variation <= 0.01 for each in tried]
        assert not any(reached[:-1])


def test_settings_go_from_cheap_to_dear() -> None:
    settings = _settings_to_try(SearchSettings(probes=8, candidates=64))
    assert [each.probes for each in settings] == [4, 6, 8, 10, 12, 16, 32] * 2
    assert [each.candidates for each in settings] == [64] * 7 + [128] * 7
    assert [each.probes for each in _settings_to_try(SearchSettings(1, 0))] == [1, 1, 1, 1, 1, 2, 4]


def test_exact_search_stays_where_nothing_faster_is_faithful(store: Datastore) -> None:
    faiss_or_skip()
    choosing, held_out = chooser_of(store)
    choice = choosing.choose(HARD, ["ivfpq", "ivf-sq8"])
    assert choice.chosen.name == EXACT
    assert choice.chosen.fidelity == Fidelity(1.0, 0.0)
    assert choice.reason == "nothing faster keeps recall 1 and variation 0"
    assert len(choice.measured) > 2
    assert_saved(store, choice.chosen, held_out)


def test_exact_search_stays_where_nothing_faithful_is_faster(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    faiss_or_skip()
    milliseconds = lambda index, *_: {40: 10.0 + isinstance(index, FaissIndex)}  # noqa: E731
    monkeypatch.setattr(index_choice, "milliseconds_per_batch", milliseconds)
    choice = chooser_of(store)[0].choose(Target(recall=0.5, variation=0.5), ["ivf-flat", "flat"])
    assert choice.chosen.kind == EXACT


@pytest.mark.parametrize("kinds", [["exact"], ("exact",)])
def test_exact_search_can_be_asked_for(store: Datastore, kinds: Sequence[str]) -> None:
    choosing, held_out = chooser_of(store)
    choice = choosing.choose(Target(), kinds)
    assert (choice.chosen.kind, choice.reason) == (EXACT, "asked for")
    assert choice.measured == (choice.chosen,)
    assert_saved(store, choice.chosen, held_out)


def test_a_single_kind_is_taken_though_it_misses_the_target(store: Datastore) -> None:
    faiss_or_skip()
    choosing, held_out = chooser_of(store)
    choice = choosing.choose(HARD, ["ivfpq"])
    tried = [each for each in choice.measured if each.kind == "ivfpq"]
    assert choice.chosen.fidelity.variation == min(each.fidelity.variation for each in tried) > 0
    assert choice.reason.startswith("requested; it does not keep recall 1 and variation 0; ")
    assert_saved(store, choice.chosen, held_out)


def test_a_single_kind_is_taken_though_it_is_slower(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    faiss_or_skip()
    monkeypatch.setattr(
        index_choice, "milliseconds_per_batch", lambda index, *_: {40: 20.0 if isinstance(index, FaissIndex) else 10.0}
    )
    choosing, held_out = chooser_of(store)
    choice = choosing.choose(Target(recall=0.9, variation=0.1), ("ivf-flat",))
    assert choice.reason == (
        "requested; it keeps recall 0.9 and variation 0.1; 0.5 times as fast as exact search for 40 queries"
    )
    assert Target(recall=0.9, variation=0.1).reached_by(choice.chosen.fidelity)
    assert_saved(store, choice.chosen, held_out)


def test_small_stores_are_searched_exactly_and_larger_ones_try_the_candidates(
    store: Datastore,
) -> None:
    faiss_or_skip()
    assert chooser_of(store)[0].choose(Target()).chosen.kind == EXACT
    choosing, held_out = chooser_of(store, max_exact_entries=2000)
    choice = choosing.choose(Target())
    assert {each.kind for each in choice.measured} == {EXACT, *CANDIDATES}
    assert choice.chosen.kind in CANDIDATES
    assert Target().reached_by(choice.chosen.fidelity)
    assert_saved(store, choice.chosen, held_out)


def test_the_first_good_kind_is_enough(store: Datastore) -> None:
    faiss_or_skip()
    choosing, held_out = chooser_of(store)
    easy = Target(recall=0.5, variation=0.5)
    choice = choosing.choose(easy, ["flat", "ivf-flat", "rabitq"], first_good=True)
    assert {each.kind for each in choice.measured} == {EXACT, "flat"}
    assert_saved(store, choice.chosen, held_out)
    choice = choosing.choose(Target(recall=0.98, variation=0.01), ["ivfpq", "ivf-flat", "rabitq"], first_good=True)
    assert {each.kind for each in choice.measured} == {EXACT, "ivfpq", "ivf-flat"}  # the first was not good
    assert choice.chosen.kind == "ivf-flat"


@pytest.mark.parametrize("memory_bytes", [0, 2500 * 100])
def test_an_index_that_would_take_too_much_memory_is_not_built(store: Datastore, memory_bytes: int) -> None:
    target = Target(0.5, 0.5, memory_bytes)
    choice = chooser_of(store)[0].choose(target, ["flat"])
    assert choice.measured == (choice.chosen,)
    assert choice.chosen.kind == EXACT
    assert choice.reason == "nothing faster keeps recall 0.5 and variation 0.5; flat would take 0 MiB"


def test_without_faiss_search_is_exact_and_the_reason_says_why(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    choosing, held_out = chooser_of(store, max_exact_entries=100)
    choice = choosing.choose(Target())
    assert choice.chosen.kind == EXACT
    assert choice.reason == (
        "every key is compared, because an index other than exact search needs the package 'faiss-cpu', which is not "
        f"installed: pip install 'knnmt[faiss]'; then `knnmt index {store.path}`"
    )
    assert_saved(store, choice.chosen, held_out)
    saved = read_saved(store)
    assert saved is not None
    assert saved.fidelity[MISSING] == "faiss-cpu"
    assert saved.fidelity["recall"] == 1


def test_a_kind_that_does_not_exist_is_refused_before_anything_is_measured(store: Datastore) -> None:
    heard: list[Candidate] = []
    with pytest.raises(SettingError, match="one of exact, ivfpq"):
        chooser_of(store)[0].choose(Target(), ["flat", "best"], on_candidate=heard.append)
    assert heard == []
    assert read_saved(store) is None
    assert chooser_of(store)[0].choose(Target(), []).chosen.kind == EXACT


def test_targets_check_themselves() -> None:
    for wrong in ({"recall": 0.0}, {"recall": 1.1}, {"variation": -0.1}, {"variation": 1.1}, {"recall": float("nan")}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            Target(**wrong)  # type: ignore[arg-type]
    assert Target(0.9, 0.1).reached_by(Fidelity(0.9, 0.1))
    assert not Target(0.9, 0.1).reached_by(Fidelity(0.89, 0.0))
    assert not Target(0.9, 0.1).reached_by(Fidelity(1.0, 0.11))


def test_names_for_people() -> None:
    candidate = Candidate("pq4", SearchSettings(16, 64), Fidelity(1, 0), {}, 9)
    assert candidate.name == "pq4, 16 probes, 64 re-ranked"
    assert replace(candidate, settings=SearchSettings(16, 0)).name == "pq4, 16 probes"
    assert Candidate(EXACT, SearchSettings(1, 0), Fidelity(1, 0), {}, 0).name == "exact"
