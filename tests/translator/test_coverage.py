"""How much of a source the memory holds: known before decoding, the same whichever way takes the steps, and shown."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from knnmt import Coverage, Request, SegmentPair, Translator
from knnmt.cli.output import Columns, write_all
from knnmt.cli.progress import tally
from knnmt.datastore.store import Datastore
from knnmt.retrieval import needs
from knnmt.translator.page import explanation_page
from knnmt.translator.terminal import print_explanation
from support.datastore_pairs import some_pairs
from support.made_explanations import made_explanation

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
TEXTS = ["Satz 3 ja ja", "ganz und gar anders", "Satz 7"]


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path) -> Translator:
    return Translator(tiny_checkpoint, device="cpu", settings="raw")


@pytest.fixture(scope="module")
def store(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(25), translator.engine).path


def expected(translator: Translator, store: Path, segments: int) -> list[Coverage]:
    sources = [source[:-1] for source in translator.engine.tokenizer.encode_sources(TEXTS)]
    found = translator.memories.open(store).opened.snapshot.source_index.choose(sources, segments)
    return [Coverage(*map(float, each)) for each in zip(found.covered, found.by_one, strict=True)]


@pytest.mark.parametrize("way", ["compiled", "plain", "evidence"])
def test_a_translation_says_how_much_of_its_source_is_covered(
    translator: Translator, store: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "plain":
        monkeypatch.setattr(needs, "library", lambda: None)
    found = translator.translate(TEXTS, datastore=store, segments=3, evidence=way == "evidence", max_tokens=6)
    assert [each.coverage for each in found] == expected(translator, store, 3)
    covered = [each.coverage for each in found if each.coverage]
    assert all(0 <= each.by_one <= each.covered + 1e-6 <= 1 + 2e-6 for each in covered)
    assert covered[0].covered > covered[1].covered
    every = translator.translate(TEXTS, datastore=store, segments=4000, max_tokens=6)  # all that there are
    assert [each.coverage for each in every] == expected(translator, store, 25)


def test_only_search_by_segment_covers(translator: Translator, store: Path, tmp_path: Path) -> None:
    other = Datastore.build(tmp_path / "o", [SegmentPair("Satz 7", "seven", "o#1")], translator.engine).path
    requests = [
        *(Request(TEXTS[0], store, segments=3), Request(TEXTS[0], store, search="whole"), Request(TEXTS[0], None)),
        *(Request("Satz 7", other, segments=3), Request("", store, segments=3)),
    ]
    found = [each.coverage for each in translator.translate(requests, max_tokens=6)]
    assert found[0] == expected(translator, store, 3)[0]
    assert found[1:3] == [None, None]
    assert found[3] is not None
    assert (found[3].covered, found[3].by_one) == pytest.approx((1.0, 1.0))  # one segment holds all of it
    assert found[4] is None  # there is nothing to cover


def test_a_text_of_several_sentences_has_the_mean_by_their_lengths(translator: Translator, store: Path) -> None:
    parts = ["Satz 3 ja ja.", "Ganz und gar anders."]
    both = translator.translate(" ".join(parts), datastore=store, segments=3, split_sentences=True, max_tokens=6)
    alone = [translator.translate(part, datastore=store, segments=3, max_tokens=6).coverage for part in parts]
    assert both.coverage is not None
    lengths = [len(part) for part in parts]
    for name in ("covered", "by_one"):
        mean = sum(getattr(each, name) * size for each, size in zip(alone, lengths, strict=True)) / sum(lengths)
        assert getattr(both.coverage, name) == pytest.approx(mean)


def test_coverage_is_written_and_shown(translator: Translator, store: Path) -> None:
    written = io.StringIO()
    with tally("translating", 1, "lines", False) as finished:
        translations = translator.stream(TEXTS[:1], datastore=store, segments=3, match=True, max_tokens=6)
        write_all(translations, 1, written, finished, columns=Columns(), jsonl=True)
    (coverage,) = expected(translator, store, 3)[:1]
    line = json.loads(written.getvalue())
    assert line["coverage"] == {"covered": round(coverage.covered, 4), "by_one": round(coverage.by_one, 4)}
    assert line["match"]["score"] > 0

    made = made_explanation()
    covered = replace(made, translation=replace(made.translation, coverage=Coverage(0.62, 0.4)))
    words = "62% of the source, 40% by one segment"
    for explanation, times in ((covered, 1), (made, 0)):
        console = Console(file=io.StringIO(), width=100)
        print_explanation(explanation, console)
        assert console.file.getvalue().count(words) == times  # type: ignore[attr-defined]
        assert explanation_page([explanation]).count(f"<dt>Source covered</dt><dd>{words}</dd>") == times
