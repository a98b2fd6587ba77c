"""What the pages say of the project is there: links, anchors, images, packages, errors, files and functions."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

import knnmt.errors
from support import ROOT
from support.pages import all_pages, anchors, blocks, links
from test_imports import FLOW, LEAVES, PACKAGE

DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no such file"
        assert target.is_relative_to(ROOT), f"{link} leads out of the project"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "README.md")}
    assert {page.resolve() for page in DOCS.glob("*.md")} - contents == {DOCS / "README.md"}
    listed = {(DOCS / "results" / link.partition("#")[0]).resolve() for link in links(DOCS / "results" / "README.md")}
    assert {page.resolve() for page in DOCS.glob("results/**/*.md")} - listed == {DOCS / "results" / "README.md"}


def test_the_diagram_has_the_packages_in_their_order() -> None:
    [diagram] = [block.text for block in blocks(DOCS / "design.md") if block.language == "mermaid"]
    drawn = re.findall(r"<b>(\w+)</b>", diagram)
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - LEAVES
    assert drawn == [package for package in FLOW if package in there]
    rows = [re.findall(r"<b>(\w+)</b>", row) for row in diagram.split("subgraph")[1:]]
    arrows = re.findall(r"(\w+)(?:\[[^\]]*\])? --> (\w+)\[", diagram)
    assert arrows == [pair for row in rows for pair in pairwise(row)]


def test_the_map_of_the_paper_names_what_there_is() -> None:
    text = (DOCS / "paper-map.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", text)
    assert len(named) > 40
    for file, symbol in named:
        if file.startswith("benchmarks/"):
            assert (ROOT / file).is_file(), file
            continue
        module = file if file.startswith("knnmt_lab/") else f"knnmt/{file}"
        found: object = importlib.import_module(module.removesuffix(".py").replace("/", "."))
        for part in symbol.split(".") if symbol else ():
            assert hasattr(found, part), f"{file}: no {symbol}"
            found = getattr(found, part)


def test_every_error_and_warning_has_its_remedy() -> None:
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `(\w+(?:Error|Warning))` \|", text, re.MULTILINE)
    public = [name for name, each in vars(knnmt.errors).items() if isinstance(each, type)]
    assert explained == [name for name in public if name != "KnnmtError"]


def test_other_kinds_of_things_that_pages_list_are_complete() -> None:
    from knnmt.corpus.options import FORMATS
    from knnmt.engine.families import FAMILIES
    from knnmt.index.kinds import BUILT_IN

    listed: dict[str, Iterable[str]] = {"indexes.md": BUILT_IN, "models.md": FAMILIES, "formats.md": FORMATS}
    for page, names in listed.items():
        text = (DOCS / page).read_text(encoding="utf-8").lower()
        assert not [name for name in names if not re.search(rf"\b{name}\b", text)]


def test_the_scores_of_whole_domains_are_those_of_the_report() -> None:
    report = (DOCS / "results" / "whole-domains-h200" / "report.md").read_text(encoding="utf-8")
    bleu, chrf = (rows_below(report, f"## Main results, {name}\n") for name in ("BLEU", "chrF"))
    shown = rows_below((DOCS / "results" / "quality.md").read_text(encoding="utf-8"), "## Tuned, whole domains\n")
    assert shown.keys() == {name for name in bleu if not name.startswith("**")}
    for system, cells in shown.items():
        for domain, cell in cells.items():
            expected = bleu[system][domain].partition(" (")[0], chrf[system][domain]
            assert cell == ("not run" if "not run" in expected else " / ".join(expected)), f"{system}, {domain}"


def rows_below(text: str, heading: str) -> dict[str, dict[str, str]]:
    """The first table after a heading: by the first cell of a row, its others by their columns."""
    lines = [line for line in text.partition(heading)[2].partition("\n## ")[0].splitlines() if line.startswith("|")]
    (_, *columns), _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {name: dict(zip(columns, cells, strict=True)) for name, *cells in rows}


def test_the_constants_on_the_page_of_estimates_are_those_of_the_code() -> None:
    page = (DOCS / "results" / "estimates.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)\.(\w+)` \| .+ \| (.+) \|$", page, re.MULTILINE)
    assert len(rows) == 12
    for module, name, value in rows:
        assert getattr(importlib.import_module(f"knnmt.{module}"), name) == ast.literal_eval(value), name
