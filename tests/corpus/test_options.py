from __future__ import annotations

from typing import Any

import pytest

from knnmt.corpus.options import FORMATS, ReadingConfig
from knnmt.corpus.report import ReadingReport
from knnmt.errors import MalformedMemoryError, SettingError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"source_language": "Deutsch"},
            "source_language must be a language tag such as 'de' or 'de-AT', got 'Deutsch'",
        ),
        ({"target_language": ""}, "target_language must be a language tag"),
        ({"source_language": "en_US", "target_language": "EN-us"}, "must differ"),
        ({"catalog_language": "fr"}, "catalog_language must be one of the asked languages 'de' and 'en', got 'fr'"),
        ({"format": "docx"}, "format must be one of tsv, csv, text, tmx, xliff, po, got 'docx'"),
        ({"inline": "remove"}, "inline must be one of"),
        ({"on_error": "ignore"}, "on_error must be one of"),
        ({"source_column": 0}, "columns count from 1, got 0"),
        ({"source_column": 2}, "different columns"),
        ({"origin_column": 1}, "different columns"),
        ({"delimiter": '"'}, "delimiter must be one character"),
        ({"delimiter": ";;"}, "delimiter must be one character"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        ReadingConfig(**settings)


def test_every_format_can_be_asked_for() -> None:
    assert [ReadingConfig(format=name).format for name in FORMATS] == list(FORMATS)


def test_problems_stop_or_are_counted_and_the_first_twenty_are_kept() -> None:
    report = ReadingReport()
    with pytest.raises(MalformedMemoryError, match=r"a\.tsv, line 3: is broken\. .*on_error='skip'"):
        report.problem("a.tsv, line 3", "is broken", ReadingConfig())
    assert report.malformed == 0
    for number in range(25):
        report.problem(f"a.tsv, line {number}", "is broken", ReadingConfig(on_error="skip"))
    assert report.malformed == 25
    assert report.problems == [f"a.tsv, line {number}: is broken" for number in range(20)]


def test_blank_sides_are_counted() -> None:
    report = ReadingReport()
    assert report.admit(" \n", "text", "x") is None
    assert report.admit("Text", "\u3000", "x") is None
    assert report.admit(" Text", "text", "x") is not None
    assert report.skipped == {"empty source or target": 2}
