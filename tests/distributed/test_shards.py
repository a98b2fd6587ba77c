"""Stores in shards: what is chosen and translated is what the merged store gives, and a shard may be gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from knnmt import Cluster, Datastore, SegmentPair, Translator, shard_set
from knnmt.cli import app
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.combining import merge_stores, split_store
from knnmt.distributed import shard_set as sets
from knnmt.distributed.shard_set import ShardPlace, ShardSet
from knnmt.distributed.sharded_store import ShardedStore
from knnmt.distributed.shards import LocalShard, OpenShard
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import (
    ClusterError,
    DatastoreDamagedError,
    DatastoreError,
    DatastoreMismatchError,
    SettingError,
    ShardWarning,
)
from knnmt.retrieval.open_store import OpenStore
from knnmt.segments import covering
from knnmt.translator import open_store
from support.shards import SETTINGS, made_pairs, of_shards

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")


@pytest.fixture(scope="module")
def merged(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    path = tmp_path_factory.mktemp("whole") / "s"
    return Datastore.build(path, made_pairs(300), tiny, BuildConfig())


@pytest.fixture(scope="module")
def shards(merged: Datastore) -> list[Path]:
    return split_store(merged, merged.path.with_name("parts"), pairs=75)


@pytest.fixture(scope="module")
def made_set(shards: list[Path], tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert len(shards) == 4
    path = tmp_path_factory.mktemp("made") / "set"
    shard_set(shards, path, model=tiny)
    return path


@pytest.fixture
def one(made_set: Path, tmp_path: Path) -> Path:
    """A set of four shards."""
    return Path(shutil.copytree(made_set, tmp_path / "set"))


@pytest.fixture
def few_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that shards have to leave out most of what they could propose."""
    monkeypatch.setattr(covering, "MAX_PROPOSED", 12)
    monkeypatch.setattr(covering, "MIN_CANDIDATES", 10)
    monkeypatch.setattr(covering, "CANDIDATES", 2)


def sources_of(engine: TransformerEngine, count: int = 40) -> list[list[int]]:
    return engine.tokenizer.encode_sources([pair.source for pair in made_pairs(count, seed=8)])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("segments", [1, 6, 1000])
def test_what_is_chosen_is_what_the_merged_store_chooses(
    merged: Datastore,
    shards: list[Path],
    tiny: TransformerEngine,
    few_proposed: None,
    monkeypatch: pytest.MonkeyPatch,
    segments: int,
    compiled: bool,
) -> None:
    if not compiled:
        monkeypatch.setattr(covering, "library", lambda: None)
    whole = OpenStore(merged, exact=True).snapshot
    own = replace(merged.manifest, segments=())
    sharded = ShardedStore(Datastore(merged.path, own, []), [LocalShard(path) for path in shards])
    sources = sources_of(tiny, 4 if segments == 1000 else 30)
    expected = whole.choose_segments(sources, segments)
    store = sharded.for_batch(sources, segments)
    assert store.snapshot.left_out == ()
    found = store.snapshot.choose_segments(sources, segments)
    assert found.coverage == expected.coverage
    assert store.same_distance == whole.same_distance

    def said(opened: Any, ids: Any) -> list[tuple[Any, ...]]:
        entries = [opened.datastore.entry(int(each)) for each in ids]
        counts = opened.counts(torch.from_numpy(ids), True)
        often = [1.0] * len(ids) if counts is None else counts.tolist()
        return [
            (each.pair, each.position, each.value, each.key.tobytes(), count)
            for each, count in zip(entries, often, strict=True)
        ]

    for mine, theirs in zip(found.entries, expected.entries, strict=True):
        assert said(store.snapshot, mine) == said(whole, theirs)


def test_translations_are_those_of_the_merged_store(merged: Datastore, one: Path, tiny_checkpoint: Path) -> None:
    translator = Translator(tiny_checkpoint, device="cpu", settings="raw")
    texts = [pair.source for pair in made_pairs(20, seed=9)]
    for settings in (SETTINGS, replace(SETTINGS, segments=400)):
        expected = list(translator.stream(texts, datastore=merged.path, settings=settings, evidence=True))
        found = list(translator.stream(texts, datastore=one, settings=settings, evidence=True))
        assert [each.text for each in found] == [each.text for each in expected]
        assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-5)
        assert [each.coverage for each in found] == [each.coverage for each in expected]
        for mine, theirs in zip(found, expected, strict=True):
            for token, other in zip(mine.tokens, theirs.tokens, strict=True):
                assert token.evidence is not None
                assert other.evidence is not None
                near, same = ([each.pair for each in side.evidence.neighbours] for side in (token, other))  # type: ignore[union-attr]
                assert near == same
        # Without evidence, compiled code searches.
        plain = list(translator.stream(texts, datastore=one, settings=settings))
        assert [each.text for each in plain] == [each.text for each in expected]


class Failing:
    """A shard that fails, or never answers, from some question on."""

    def __init__(self, path: Path, answers: int, forever: bool = False) -> None:
        self.name, self.answers, self.forever = str(path), answers, forever
        self._shard = LocalShard(path)

    def ask(self, what: str, *given: Any) -> Future[Any]:
        self.answers -= 1
        if self.answers >= 0:
            return self._shard.ask(what, *given)
        future: Future[Any] = Future()
        if not self.forever:
            future.set_exception(ConnectionError("it is gone\nand more"))
        return future


@pytest.fixture
def failing(shards: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[Failing]:
    made = [Failing(path, 10**6) for path in shards]
    monkeypatch.setattr(ShardSet, "opened", lambda *_: made)
    return made


class Restless(ShardedStore):
    """It asks silent shards again at once."""

    def __init__(self, store: Datastore, shards: list[Any], device: str, seconds: float) -> None:
        super().__init__(store, shards, device, seconds, pause_seconds=0.0)


@pytest.mark.parametrize(("after", "forever"), [(0, False), (1, False), (1, True)])
def test_a_shard_that_is_gone_is_left_out_and_that_is_said(
    shards: list[Path],
    one: Path,
    tiny_checkpoint: Path,
    tmp_path: Path,
    failing: list[Failing],
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    forever: bool,
) -> None:
    """Whichever question it fails at. What is found is what the others have; when it is back, it counts again."""
    monkeypatch.setattr(open_store, "ShardedStore", Restless)
    translator = Translator(tiny_checkpoint, device="cpu", settings="raw")
    edit = (one / "shards.json").read_text(encoding="utf-8").replace("10.0", "0.05")
    (one / "shards.json").write_text(edit, encoding="utf-8")
    texts = [pair.source for pair in made_pairs(4, seed=9)]
    before = list(translator.stream(texts, datastore=one, settings=SETTINGS))
    failing[1].answers, failing[1].forever = 1 + after, forever  # the first is what it is now, then of this batch
    with pytest.warns(ShardWarning, match=r"00001\.store (could not answer \(it is gone\)|did not answer in)"):
        found = list(translator.stream(texts, datastore=one, settings=SETTINGS))
    assert [len(of_shards(each)) for each in found] == [1] * len(found)
    if after == 0:
        merge_stores([Datastore.open(shards[n]) for n in (0, 2, 3)], tmp_path / "rest")
    with pytest.warns(ShardWarning, match="left out"):
        again = list(translator.stream(texts, datastore=one, settings=SETTINGS))
    if after == 0:  # now statistics are those of the others, too
        expected = list(translator.stream(texts, datastore=tmp_path / "rest", settings=SETTINGS))
        assert [each.text for each in again] == [each.text for each in expected]
    failing[1].answers = 10**6
    back = list(translator.stream(texts, datastore=one, settings=SETTINGS))
    assert [(each.text, each.score) for each in back] == [(each.text, each.score) for each in before]
    assert not any(map(of_shards, back))


def test_a_shard_that_is_not_there_is_left_out_until_it_is(
    tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for seed, path in enumerate(paths):
        Datastore.build(path, made_pairs(30, seed), tiny)
    shard_set(paths, tmp_path / "set", model=tiny)
    whole = Translator(tiny_checkpoint, device="cpu", settings="raw").translate(
        "ab cd", datastore=tmp_path / "set", settings=SETTINGS
    )
    paths[1].rename(tmp_path / "away")
    with pytest.warns(ShardWarning, match=r"b could not answer \(.*there is no datastore"):
        translator = Translator(tiny_checkpoint, device="cpu", datastore=tmp_path / "set", settings="raw")
    with pytest.warns(ShardWarning, match="left out"):
        found = translator.translate("ab cd", settings=SETTINGS)
    assert len(of_shards(found)) == 1
    with pytest.raises(DatastoreError, match="there is no datastore"):
        shard_set(paths, tmp_path / "other", model=tiny)
    (tmp_path / "away").rename(paths[1])
    back = translator.translate("ab cd", settings=SETTINGS)
    assert (back.text, back.score, of_shards(back)) == (whole.text, whole.score, [])


def test_a_shard_that_never_answers_is_not_waited_for_each_time(
    shards: list[Path], merged: Datastore, tiny: TransformerEngine, failing: list[Failing]
) -> None:
    own = Datastore(merged.path, replace(merged.manifest, segments=()), [])
    store = ShardedStore(own, failing, seconds=0.05)
    failing[2].answers, failing[2].forever = 0, True
    for _ in range(3):
        with pytest.warns(ShardWarning, match=r"00002\.store did not answer in 0.05 s"):
            assert len(store.for_batch(sources_of(tiny, 3), 4).snapshot.left_out) == 1
    assert failing[2].answers == -1  # asked once, and not again for a while


def test_what_is_added_to_a_shard_counts_with_the_next_call(
    tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    stores = [Datastore.build(path, made_pairs(30, seed), tiny) for seed, path in enumerate(paths)]
    shard_set(paths, tmp_path / "set", model=tiny)
    translator = Translator(tiny_checkpoint, device="cpu", settings="raw")
    text = "zz yy zz yy"
    settings = replace(SETTINGS, interpolation_weight=0.99, temperature=0.01)
    assert translator.translate(text, datastore=tmp_path / "set", settings=settings).text != "new words"
    stores[1].add([SegmentPair(text, "new words", "new#1")], tiny)
    assert translator.translate(text, datastore=tmp_path / "set", settings=settings).text == "new words"
    Datastore.open(tmp_path / "set").add([SegmentPair("xx yy xx", "own words", "new#2")], tiny)  # the set's own part
    assert translator.translate("xx yy xx", datastore=tmp_path / "set", settings=settings).text == "own words"
    said = CliRunner().invoke(app, ["inspect", str(tmp_path / "set")]).output
    assert "sentences   1" in said
    assert said.count("\nshard       ") == 2
    shard = OpenShard(paths[1])
    with pytest.raises(DatastoreError, match="moved on from the requested state"):
        shard.sentences("0" * 64, np.empty(0, np.uint64))


def test_sets_that_cannot_be_are_refused(
    shards: list[Path], one: Path, tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    wide = Datastore.build(tmp_path / "wide", made_pairs(5), tiny, BuildConfig(key_dtype="float32"))
    with pytest.raises(DatastoreMismatchError, match=r"cannot be a shard of .* expected key_dtype 'float16'"):
        shard_set([*shards, wide.path], tmp_path / "x")
    assert not (tmp_path / "x").exists()
    with pytest.raises(SettingError, match="name the shards"):
        shard_set([], tmp_path / "x")
    with pytest.raises(SettingError, match="seconds must be a number above 0, got 0"):
        shard_set(shards, tmp_path / "x", seconds=0)
    with pytest.raises(SettingError, match="Ray opens shards on other machines: name the cluster"):
        shard_set(["10.0.0.5:/data/a.store"], tmp_path / "x")
    assert ShardPlace.of("10.0.0.5:/data/a.store") == ShardPlace("/data/a.store", "10.0.0.5")
    assert ShardPlace.of("/data/a:b.store") == ShardPlace("/data/a:b.store")
    translator = Translator(tiny_checkpoint, device="cpu", settings="raw")
    with pytest.raises(SettingError, match="a set of shards is searched by segment"):
        translator.translate("ab", datastore=one, search="whole")
    (one / sets.SHARDS).write_text('{"shards": [{"path": 5}]}', encoding="utf-8")
    with pytest.raises(DatastoreDamagedError, match="cannot read the places of the shards"):
        Translator(tiny_checkpoint, device="cpu", datastore=one, settings="raw")


def test_a_set_does_not_say_what_to_connect_to(
    one: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = json.loads((one / sets.SHARDS).read_text(encoding="utf-8"))
    (one / sets.SHARDS).write_text(json.dumps({**written, "cluster": "ray://elsewhere:10001"}), encoding="utf-8")
    asked: list[str] = []

    def connect(cluster: Cluster) -> None:
        asked.append(cluster.address)
        raise ClusterError("not there")

    monkeypatch.setattr(sets, "connect", connect)
    with pytest.raises(
        SettingError, match=r"may not decide what this machine connects to\. If this is your cluster, set RAY_"
    ):
        Translator(tiny_checkpoint, device="cpu", datastore=one, settings="raw")
    assert not asked
    monkeypatch.setenv("RAY_ADDRESS", "ray://elsewhere:10001")
    with pytest.raises(ClusterError, match="not there"):
        Translator(tiny_checkpoint, device="cpu", datastore=one, settings="raw")
    assert asked == ["ray://elsewhere:10001"]


class Mistaken(Failing):
    """A shard that answers, but not with what a shard has."""

    def __init__(self, path: Path, what: str, change: Callable[[Any], Any]) -> None:
        super().__init__(path, 10**6)
        self._what, self._change = what, change

    def ask(self, what: str, *given: Any) -> Future[Any]:
        found = super().ask(what, *given)
        if what != self._what:
            return found
        changed: Future[Any] = Future()
        changed.set_result(self._change(found.result()))
        return changed


def in_place_of(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda parts: [{**part, name: change(part[name])} for part in parts]


def in_candidates(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda found: replace(found, sources=in_place_of(name, change)([found.sources])[0])


def with_number(place: int, number: float) -> Callable[[Any], Any]:
    """The same array with another number at one place."""

    def changed(array: Any) -> Any:
        array = array.copy()
        array.reshape(-1)[place] = number
        return array

    return changed


# Arrays of the right types and shapes, with content that cannot be.
CONTENTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a key that is no number": ("sentences", in_place_of("keys", with_number(3, np.nan))),
    "an infinite key": ("sentences", in_place_of("keys", with_number(-1, np.inf))),
    "a value beyond the vocabulary": ("sentences", in_place_of("values", with_number(0, 1 << 30))),
    "a value below 0": ("sentences", in_place_of("values", with_number(0, -5))),
    "target tokens beyond the vocabulary": ("sentences", in_place_of("target_tokens", with_number(0, 1 << 30))),
    "an entry of no sentence": ("sentences", in_place_of("sentences", with_number(-1, 1 << 30))),
    "an entry before all sentences": ("sentences", in_place_of("sentences", with_number(0, -1))),
    "a position outside its sentence": ("sentences", in_place_of("positions", with_number(0, 1 << 30))),
    "an alignment outside its source": ("sentences", in_place_of("alignment", with_number(0, 60_000))),
    "offsets below 0": ("sentences", in_place_of("target_offsets", with_number(1, -8))),
    "offsets beyond the end": ("sentences", in_place_of("text_offsets", with_number(-1, 1 << 40))),
    "shorter texts than the offsets say": ("sentences", in_place_of("texts", lambda texts: texts[:-3])),
    "texts that are not UTF-8": ("sentences", in_place_of("texts", with_number(0, 255))),
    "more source tokens than postings": (
        "sentences",
        in_place_of("source_tokens", lambda tokens: np.append(tokens, tokens[:1])),
    ),
    "postings of another sentence": ("sentences", in_place_of("posting_sentences", with_number(0, 1 << 30))),
    "more sentences than it has": ("sentences", lambda parts: parts * 100),
    "a log-probability above 0": ("sentences", in_place_of("log_probabilities", with_number(0, 3.0))),
    "candidates beyond every vocabulary": ("candidates", in_candidates("source_tokens", with_number(0, 1 << 30))),
    "candidates with offsets below 0": ("candidates", in_candidates("source_offsets", with_number(1, -4))),
    "candidates with offsets that overflow": ("candidates", in_candidates("source_offsets", with_number(-1, 2**62))),
    "candidates without offsets": ("candidates", in_candidates("source_offsets", lambda offsets: offsets[:0])),
    "postings of no sentence": ("candidates", in_candidates("posting_sentences", with_number(0, 1 << 30))),
    "postings below 0": ("candidates", in_candidates("posting_sentences", with_number(-1, -1))),
    "postings in no order": ("candidates", in_candidates("posting_sentences", lambda numbers: numbers[::-1])),
    "fewer postings": ("candidates", in_candidates("posting_sentences", lambda numbers: numbers[:-1])),
    "offsets of fewer tokens": ("candidates", in_candidates("posting_offsets", lambda offsets: offsets[1:])),
    "posting tokens in no order": ("candidates", in_candidates("posting_tokens", lambda tokens: tokens[::-1])),
    "posting tokens that it said it lacks": ("candidates", in_candidates("posting_tokens", with_number(-1, 1 << 23))),
    "an infinite sum": ("candidates", lambda found: replace(found, highest=(float("inf"),) * len(found.highest))),
}
MISTAKES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **CONTENTS,
    "keys of another width": ("sentences", in_place_of("keys", lambda keys: keys[:, :-1])),
    "keys of another type": ("sentences", in_place_of("keys", lambda keys: keys.astype(np.float64))),
    "fewer values": ("sentences", in_place_of("values", lambda values: values[:-1])),
    "no keys": ("sentences", lambda parts: [{k: v for k, v in part.items() if k != "keys"} for part in parts]),
    "an array that no segment has": ("sentences", lambda parts: [{**part, "own": part["keys"]} for part in parts]),
    "no list": ("sentences", lambda _: 5),
    "no candidates": ("candidates", lambda _: 5),
    "sums for fewer sources": ("candidates", lambda found: replace(found, highest=found.highest[:-1])),
    "sums that are no numbers": ("candidates", lambda found: replace(found, reach=(float("nan"),) * len(found.reach))),
    "candidates without tokens": ("candidates", lambda found: replace(found, sources={})),
    "candidates of another type": (
        "candidates",
        lambda found: replace(
            found, sources=in_place_of("source_tokens", lambda t: t.astype(float))([found.sources])[0]
        ),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_shard_that_answers_with_something_else_is_left_out(
    shards: list[Path], one: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mistake: str
) -> None:
    made = [*(Failing(path, 10**6) for path in shards[:3]), Mistaken(shards[3], *MISTAKES[mistake])]
    monkeypatch.setattr(ShardSet, "opened", lambda *_: made)
    translator = Translator(tiny_checkpoint, device="cpu", datastore=one, settings="raw")
    texts = [pair.source for pair in made_pairs(4, seed=9)]
    with pytest.warns(ShardWarning, match="gave an unusable answer"):
        found = translator.translate(texts, settings=SETTINGS)
    assert all(len(of_shards(each)) == 1 for each in found)
    assert all(each.text for each in found)


OF_STATES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "no state": ("state", lambda _: None),
    "no statistics": ("state", lambda state: replace(state, statistics=None)),
    "counts below 0": ("state", lambda state: replace(state, live_sentences=-5)),
    "postings of another type": (
        "state",
        lambda state: replace(
            state, statistics=replace(state.statistics, postings=state.statistics.postings.astype(float))
        ),
    ),
    "postings below 0": (
        "state",
        lambda state: replace(state, statistics=replace(state.statistics, postings=-1 - state.statistics.postings)),
    ),
    "counts whose sums overflow": ("state", lambda state: replace(state, entries=(1 << 62) - 1)),
    "postings whose sums overflow": (
        "state",
        lambda state: replace(
            state, statistics=replace(state.statistics, postings=np.full_like(state.statistics.postings, 1 << 62))
        ),
    ),
    "more lengths than asked for": ("lengths", lambda lengths: np.repeat(lengths, 1000)),
    "lengths whose sums overflow": ("lengths", lambda lengths: np.full_like(lengths, 3e38)),
    "lengths of another shape": ("lengths", lambda lengths: lengths[None]),
    "lengths that are no numbers": ("lengths", lambda lengths: lengths * np.nan),
}


@pytest.mark.parametrize("mistake", OF_STATES)
def test_a_shard_whose_state_is_impossible_is_left_out(
    shards: list[Path], merged: Datastore, tiny: TransformerEngine, mistake: str
) -> None:
    made = [*(Failing(path, 10**6) for path in shards[:3]), Mistaken(shards[3], *OF_STATES[mistake])]
    own = Datastore(merged.path, replace(merged.manifest, segments=()), [])
    with pytest.warns(ShardWarning, match=r"00003\.store gave an unusable answer"):
        store = ShardedStore(own, made)
    assert 0 < store.same_distance < 1e3
    if OF_STATES[mistake][0] == "state":
        with pytest.warns(ShardWarning, match=r"00003\.store did not answer"):
            assert len(store.for_batch(sources_of(tiny, 3), 4).snapshot.left_out) == 1


def test_a_shard_that_was_built_anew_with_another_model_is_left_out(
    shards: list[Path], merged: Datastore, tiny: TransformerEngine
) -> None:
    model = merged.manifest.model
    last = Mistaken(shards[3], "state", lambda state: replace(state, manifest=replace(state.manifest, model=model)))
    own = Datastore(merged.path, replace(merged.manifest, segments=()), [])
    store = ShardedStore(own, [*(LocalShard(path) for path in shards[:3]), last])
    model = "0" * 64
    with pytest.warns(ShardWarning, match=r"00003\.store no longer fits \(.*expected model .* found '0000"):
        assert store.refresh()
    with pytest.warns(ShardWarning, match=r"00003\.store did not answer"):
        assert len(store.for_batch(sources_of(tiny, 3), 4).snapshot.left_out) == 1
    model = merged.manifest.model
    assert store.refresh()
    assert store.for_batch(sources_of(tiny, 3), 4).snapshot.left_out == ()


@pytest.mark.parametrize("times", [0, 1 << 34])
@pytest.mark.parametrize("compiled", [True, False])
def test_statistics_that_are_wrong_lead_to_no_other_memory(
    shards: list[Path],
    merged: Datastore,
    tiny: TransformerEngine,
    monkeypatch: pytest.MonkeyPatch,
    compiled: bool,
    times: int,
) -> None:
    """A choice reads the postings that are there, however many the statistics promise."""
    if not compiled:
        monkeypatch.setattr(covering, "library", lambda: None)

    def wrong(state: Any) -> Any:
        return replace(state, statistics=replace(state.statistics, postings=state.statistics.postings * times))

    own = Datastore(merged.path, replace(merged.manifest, segments=()), [])
    store = ShardedStore(own, [Mistaken(path, "state", wrong) for path in shards])
    if times:
        assert store.for_batch(sources_of(tiny, 8), 6).snapshot.left_out == ()
        return
    with pytest.warns(ShardWarning, match="a token more often than its statistics say"):
        assert len(store.for_batch(sources_of(tiny, 8), 6).snapshot.left_out) == 4


def test_arrays_that_are_not_in_one_piece_are_read_as_they_are(
    shards: list[Path], merged: Datastore, tiny: TransformerEngine
) -> None:
    def apart(array: Any) -> Any:
        """The same numbers, each second of an array twice as long."""
        return np.repeat(array, 2, axis=0)[::2]

    def in_sentences(parts: Any) -> Any:
        return [{name: apart(array) for name, array in part.items()} for part in parts]

    own = Datastore(merged.path, replace(merged.manifest, segments=()), [])
    plain = ShardedStore(own, [LocalShard(path) for path in shards])
    made = [
        *(Mistaken(path, "sentences", in_sentences) for path in shards[:2]),
        *(
            Mistaken(path, "candidates", lambda found: replace(found, sources=in_sentences([found.sources])[0]))
            for path in shards[2:]
        ),
    ]
    sources = sources_of(tiny, 10)
    expected, found = plain.for_batch(sources, 6), ShardedStore(own, made).for_batch(sources, 6)
    assert found.snapshot.left_out == ()
    for mine, theirs in zip(
        found.snapshot.choose_segments(sources, 6).entries,
        expected.snapshot.choose_segments(sources, 6).entries,
        strict=True,
    ):
        assert [found.datastore.entry(int(each)).key.tobytes() for each in mine] == [
            expected.datastore.entry(int(each)).key.tobytes() for each in theirs
        ]


def test_a_set_none_of_whose_shards_is_usable_translates_without(
    shards: list[Path], one: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [Mistaken(path, *CONTENTS["a key that is no number"]) for path in shards]
    monkeypatch.setattr(ShardSet, "opened", lambda *_: made)
    translator = Translator(tiny_checkpoint, device="cpu", datastore=one, settings="raw")
    with pytest.warns(ShardWarning, match="a key is not a finite number"):
        found = translator.translate("ab cd ef", settings=replace(SETTINGS, segments=400))
    assert len(of_shards(found)) == 4
    assert found.text == Translator(tiny_checkpoint, device="cpu", settings="raw").translate("ab cd ef").text


def test_a_set_none_of_whose_shards_answers_is_refused(
    one: Path, tiny_checkpoint: Path, failing: list[Failing]
) -> None:
    for each in failing:
        each.answers = 0
    with pytest.raises(ClusterError, match=r"none of the shards answers: shard .* could not answer"):
        Translator(tiny_checkpoint, device="cpu", datastore=one, settings="raw")
