"""Development text: divided by its sources, without what the store holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from knnmt.adapting.development_text import DevelopmentText, read_development
from knnmt.corpus.splitting import halves
from knnmt.corpus.writing import write_tsv
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import InputError
from support.datastore_pairs import some_pairs


@pytest.fixture(scope="module")
def store(tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return Datastore.build(tmp_path_factory.mktemp("made") / "s", some_pairs(4), tiny)


def texts(text: DevelopmentText) -> list[list[str]]:
    return [[pair.source for pair in part] for part in (text.tuning, text.reported)]


def test_a_file_and_its_pairs_are_divided_alike(store: Datastore, tmp_path: Path) -> None:
    pairs = some_pairs(30, start=2)
    write_tsv(tmp_path / "dev.tsv", pairs)
    heard: list[str] = []
    of_file = read_development(store, str(tmp_path / "dev.tsv"), on_message=heard.append)
    tuning, reported = halves(pairs[2:])
    stripped = [[pair.source.strip() for pair in part] for part in (tuning, reported)]
    assert [[each.strip() for each in part] for part in texts(of_file)] == stripped
    assert heard == [
        "known       2 of 30 pairs have a source that the store holds, 2 with the same target: left out",
        f"development {len(tuning)} pairs of {tmp_path / 'dev.tsv'} for tuning; {len(reported)} others are reported",
    ]
    of_pairs = read_development(store, iter(pairs))
    assert of_pairs == DevelopmentText("the given pairs", tuning, reported)


def test_all_of_it_what_is_known_and_no_more_than_asked_for(store: Datastore) -> None:
    text = read_development(store, some_pairs(12), most=5, all_dev=True, keep_known=True)
    assert text.tuning == text.reported
    assert len(text.tuning) == 5
    with pytest.raises(InputError, match="the given pairs: 0 pairs are too few"):
        read_development(store, some_pairs(4))


def test_documents_are_read_as_they_are_for_a_store(store: Datastore, tmp_path: Path) -> None:
    for language, word in (("de", "Satz"), ("en", "line")):
        texts = {f"text{number}": f"{word} {number}" for number in range(40, 60)}
        (tmp_path / f"app.{language}.json").write_text(json.dumps(texts), encoding="utf-8")
    text = read_development(store, tmp_path)
    pairs = {pair.source: pair.target for pair in (*text.tuning, *text.reported)}
    assert pairs == {f"Satz {number}": f"line {number}" for number in range(40, 60)}
