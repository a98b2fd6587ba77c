"""`knnmt translate --review` and `--jsonl` with documents: a row for each unit, those to look at first above."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from knnmt.cli.output import open_output
from knnmt.cli.streams import noticing_loss
from knnmt.corpus.visible import visible
from knnmt.documents.review import ReviewRow
from knnmt.errors import SettingError

_COLUMNS = ("kind", "match", "coverage", "certainty", "warnings", "document", "unit", "source", "text")


class ReviewOutput:
    """Writes the rows of documents to standard output. jsonl: as JSON objects, not as columns with a head"""

    def __init__(self, jsonl: bool) -> None:
        self._jsonl = jsonl
        self._has_head = jsonl

    def write(self, document: Path, rows: Iterable[ReviewRow]) -> None:
        """Write the rows of a document."""
        with noticing_loss(), open_output(None) as out:
            if not self._has_head:
                out.write("\t".join(_COLUMNS) + "\n")
                self._has_head = True
            for row in rows:
                out.write((_object if self._jsonl else _columns)(document, row) + "\n")
            out.flush()


def review_output(review: bool, jsonl: bool, writes_files: bool) -> ReviewOutput | None:
    """The output of rows, if they are requested. writes_files: whether the documents go to files"""
    if not (review or jsonl):
        return None
    if not writes_files:
        name = "--review" if review else "--jsonl"
        raise SettingError(
            f"{name} prints rows on standard output, where the document would go, too: name a file for the document "
            f"with --output, or a directory with --output-dir"
        )
    return ReviewOutput(jsonl)


def _object(document: Path, row: ReviewRow) -> str:
    return json.dumps({"document": str(document), **row.as_json()}, ensure_ascii=False)


def _columns(document: Path, row: ReviewRow) -> str:
    about = row.provenance
    kind = about.kind or ("copied" if row.state == "new" else row.state)
    numbers = (
        None if about.match is None else about.match.score,
        None if about.covered is None else round(100 * about.covered),
        about.certainty,
    )
    messages = [row.error] if row.error is not None else [each.message for each in about.warnings]
    texts = ("; ".join(messages) or "-", str(document), row.unit, row.source, row.text)
    fields = (kind, *("-" if each is None else str(each) for each in numbers), *map(visible, texts))
    return "\t".join(fields)
