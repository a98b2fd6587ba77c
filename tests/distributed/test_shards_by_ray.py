"""Shards that Ray opens: the same translations, also while one of them is killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from knnmt import Datastore, Translator, shard_set
from knnmt.datastore.combining import split_store
from knnmt.distributed.shard_set import RayShard
from knnmt.engine.transformer import TransformerEngine
from support.shards import SETTINGS, made_pairs, of_shards

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def local_ray() -> Iterator[None]:
    yield
    import ray

    ray.shutdown()


def test_a_shard_is_killed_while_texts_are_translated(
    tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path, local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged = Datastore.build(tmp_path / "merged", made_pairs(300), tiny)
    shards = split_store(merged, tmp_path / "parts", pairs=75)
    made: list[RayShard] = []
    begin = RayShard.__init__

    def remembered(self: RayShard, *given: object) -> None:
        begin(self, *given)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(RayShard, "__init__", remembered)
    shard_set(shards, tmp_path / "set", cluster="local", seconds=120.0, model=tiny)
    translator = Translator(tiny_checkpoint, device="cpu", datastore=tmp_path / "set", settings="raw")
    texts = [pair.source for pair in made_pairs(12, seed=9)]
    expected = list(translator.stream(texts, datastore=merged.path, settings=SETTINGS))
    found = list(translator.stream(texts, settings=SETTINGS))
    assert not [each for translation in found for each in of_shards(translation)]
    assert [(each.text, each.score) for each in found] == [(each.text, each.score) for each in expected]

    import ray

    stream = translator.stream(texts, settings=SETTINGS, batch_size=2)
    first = next(stream)
    ray.kill(made[-1].actor)  # for good, of the last set that was opened
    rest = list(stream)
    assert [each.source for each in (first, *rest)] == texts
    assert not of_shards(first)
    assert any(map(of_shards, rest))
    before = made[-2].actor
    ray.kill(before, no_restart=False)  # Ray starts it again
    until = time.monotonic() + 120
    while time.monotonic() < until:
        again = translator.translate(texts[0], settings=SETTINGS)
        if len(of_shards(again)) == 1:  # the one that is gone for good
            break
        time.sleep(0.5)
    assert len(of_shards(again)) == 1
