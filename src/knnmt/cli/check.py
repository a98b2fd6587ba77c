"""`knnmt translate --check`: what is wrong with the translations in documents, without a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib.resources import files as resources
from pathlib import Path

import typer

from knnmt.corpus.glossary import Glossary
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.visible import visible
from knnmt.documents.check_page import check_page, summary
from knnmt.documents.checking import Report, check_document, check_units
from knnmt.documents.opening import open_document
from knnmt.documents.read_memories import jobs_of, matched_units
from knnmt.errors import InputError, SettingError
from knnmt.output_files import write_output


def require_check(check: bool, page: Path | None) -> None:
    """Raise an error for a page without --check."""
    if not check:
        raise SettingError(f"--html {page} writes the findings of --check: add --check")


def check_documents(
    files: list[Path] | None,
    languages: tuple[str, str],
    datastore: Path | None,
    glossary: Glossary | None,
    jsonl: bool,
    page: Path | None,
    placeholders: tuple[str, ...] = (),
) -> None:
    """Report on documents, and end with status 1 if anything was found. The arguments are those of `check_units`."""
    if not files:
        raise SettingError("--check needs documents: name some")
    if page is not None and (page.is_dir() or not page.parent.is_dir()):
        raise SettingError(f"--html {page}: expected the name of a file in a directory that exists")
    config = ReadingConfig(*languages)
    reports: list[Report] = []
    for job in jobs_of(files, config):
        names = " and ".join(map(str, job))
        memory = _pairs(datastore)
        if len(job) == 1:
            document = open_document(job[0], languages)
            reports.append(check_document(document, names, glossary, memory, placeholders, languages[1]))
        else:
            units = matched_units(open_document(job[0]), open_document(job[1]), config)
            if units is None:
                raise InputError(
                    f"{names}: expected two documents with the same number of units, so that units can be paired"
                )
            reports.append(check_units(names, units, glossary, memory, placeholders, languages[1]))
        for line in _lines(reports[-1], jsonl):
            typer.echo(line)
    if page is not None:
        style = resources("knnmt.translator").joinpath("page.css").read_text(encoding="utf-8")
        write_output(page, check_page(reports, style).encode())
        typer.echo(f"wrote {page}; open it in a browser")
    if any(report.problems for report in reports):
        raise typer.Exit(1)


def _pairs(datastore: Path | None) -> Iterable[SegmentPair]:
    if datastore is None:
        return ()
    from knnmt.datastore.store import Datastore

    return Datastore.open(datastore).units()


def _lines(report: Report, jsonl: bool) -> Iterator[str]:
    for problem in report.problems:
        if jsonl:
            yield json.dumps({"document": report.name, **asdict(problem)}, ensure_ascii=False)
        else:
            yield visible(f"{report.name}, {problem.unit}: {problem.kind}: {problem.message}")
    if not jsonl:
        yield visible(f"{report.name}: {summary(report)}")
