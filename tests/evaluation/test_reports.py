"""The report in its three forms, from made-up figures; the golden ones stand beside this file."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.overlap import Known
from knnmt.evaluation.reports import Report, SystemReport
from knnmt.evaluation.running import Figures, Run
from knnmt.evaluation.scoring import Score, Scores
from knnmt.evaluation.segments import EvaluationText
from knnmt.evaluation.systems import run_settings
from knnmt.version import __version__

GOLDEN = Path(__file__).parent / "golden"
BASE = SystemReport(
    Run("base", "model:m|beam:5|v:1", ["x"], Figures(4.0, 1600, 0, 0, 0, 0.0, 0.0), reused=True),
    Scores(Score(21.904, "nrefs:1|tok:13a", 4.301), Score(48.83, "nrefs:1|nc:6", 3.1)),
)
OWN = SystemReport(
    Run("own|k4", "model:m|beam:5|store:own|k:4|v:1", ["y"], Figures(8.0, 12_000, 5000, 4000, 1000, 0.2, 0.25)),
    Scores(Score(32.87, "nrefs:1|tok:13a", 4.62, 0.000999), Score(57.56, "nrefs:1|nc:6", 3.34, 0.04)),
)
TEXT = EvaluationText(
    [SegmentPair("eins", "one", "t#1"), SegmentPair("zwei", "two", "t#2")],
    "test.tsv",
    "report",
    Counter({"empty source or target": 3}),
)
KNOWN = {"x/own": Known(frozenset({0, 1}), frozenset({1}))}
REPORT = Report([BASE, OWN], TEXT, KNOWN, False, run_settings(None), "a CPU, 2 threads", "make an environment")


@pytest.mark.parametrize("form", ["text", "md"])
def test_text_and_markdown_are_the_golden_ones(form: str) -> None:
    made = REPORT.as_text() if form == "text" else REPORT.as_markdown()
    golden = (GOLDEN / f"report.{form}").read_text(encoding="utf-8")
    assert made == golden.replace("VERSION", __version__)


def test_json_holds_every_number_with_its_signature() -> None:
    found = json.loads(json.dumps(REPORT.as_json()))
    assert found["knnmt"] == __version__
    assert found["known"] == [{"store": "x/own", "sources": 2, "pairs": 1}]
    assert found["left_out"] == {"empty source or target": 3}
    assert found["not_measured"] == {"COMET": "make an environment"}
    assert (found["half"], found["segments"], found["beam"], found["batch_size"]) == ("report", 2, 5, 32)
    assert found["remarks"][0].startswith("Warning: the source of 2 of 2 segments")
    base, own = found["systems"]
    assert base["bleu"] == {"value": 21.904, "signature": "nrefs:1|tok:13a", "interval": 4.301, "p_value": None}
    assert own == {
        "name": "own|k4",
        "signature": "model:m|beam:5|store:own|k:4|v:1",
        "bleu": {"value": 32.87, "signature": "nrefs:1|tok:13a", "interval": 4.62, "p_value": 0.000999},
        "chrf": {"value": 57.56, "signature": "nrefs:1|nc:6", "interval": 3.34, "p_value": 0.04},
        "comet": None,
        "seconds": 8.0,
        "tokens": 12000,
        "rows": 5000,
        "searches": 4000,
        "hits": 1000,
        "saved": 0.2,
        "saved_after_first": 0.25,
        "tokens_per_second": 1500.0,
        "reused": False,
    }


def test_with_comet_nothing_is_said_to_be_missing() -> None:
    scored = [replace(each, comet=Score(0.8123, "model:c|version:2")) for each in (BASE, OWN)]
    report = replace(REPORT, systems=scored)
    text = report.as_text()
    assert "not measured" not in text
    assert text.count("0.8123") == 2
    assert "COMET   model:c|version:2\n" in text
    assert report.as_json()["not_measured"] == {}
    assert report.as_json()["systems"][1]["comet"] == {"value": 0.8123, "signature": "model:c|version:2"}


def test_what_was_left_out_is_no_reason_to_warn() -> None:
    less = TEXT.without([0], "its source is in a store")
    text = replace(REPORT, skipped_known=True, text=less).as_text()
    assert "Warning" not in text
    assert "left out    1  its source is in a store\n" in text
