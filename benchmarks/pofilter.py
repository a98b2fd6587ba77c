"""Compares `knnmt translate --check` with pofilter of translate-toolkit on the same message catalogs.

    python benchmarks/pofilter.py POFILTER CATALOG.po... [--language de] [--examples 2]

POFILTER is the command in an environment of its own (`pip install translate-toolkit`), because it is under the GPL. For
each of its tests the script prints in how many units it finds something, in how many of them --check finds something
of the kinds that correspond, and anything at all, with examples of units that only one of the two names.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import polib

from knnmt.documents.opening import open_document
from knnmt.protection.marked import read
from knnmt_lab.scripts import argument_parser, print_header, print_row

# The findings of --check that say what a test of pofilter says: kinds, and for the form the words of the message.
ALIKE = {
    "accelerators": "accelerator",
    "acronyms": "name",
    "blank": "untranslated",
    "brackets": "other half",
    "doublequoting": "other half",
    "doublespacing": "two spaces",
    "doublewords": "repeats",
    "emails": "placeholder",
    "endpunc": "form: ends with",
    "endwhitespace": "where it ends|ends with '( |\\\\n)",
    "escapes": "placeholder",
    "filepaths": "placeholder",
    "functions": "placeholder",
    "long": "length",
    "newlines": "line ends|\\\\n",
    "nplurals": "untranslated",
    "numbers": "number",
    "options": "placeholder",
    "printf": "placeholder",
    "pythonbraceformat": "placeholder",
    "short": "length",
    "simplecaps": "form: begins",
    "startcaps": "form: begins",
    "startwhitespace": "where it begins|begins with '( |\\\\n)",
    "tabs": "tabs",
    "unchanged": "copy",
    "untranslated": "untranslated",
    "urls": "placeholder",
    "variables": "placeholder",
    "xmltags": "tag",
}
_TEST = re.compile(r"\(pofilter\) (\w+):?(.*)")
Unit = tuple[str, str]  # a catalog, and the identity of a message in it


def by_pofilter(command: str, catalogs: list[Path], language: str) -> dict[str, set[Unit]]:
    """The units that each test finds something in."""
    found: dict[str, set[Unit]] = defaultdict(set)
    left_out = set[Unit]()
    with tempfile.TemporaryDirectory() as place:
        for number, catalog in enumerate(catalogs):
            report = Path(place) / f"{number}.po"
            subprocess.run(
                [command, f"--language={language}", str(catalog), str(report)], check=True, capture_output=True
            )
            if not report.exists():
                continue
            checked = {read(unit.source) for unit in open_document(catalog).units}
            for entry in polib.pofile(str(report)):
                for test, _ in _TEST.findall(entry.tcomment):
                    if entry.obsolete or entry.msgid not in checked:
                        left_out.add((str(catalog), entry.msgid))
                    else:
                        found[test].add((str(catalog), entry.msgid))
    print(f"{len(left_out):,} messages that pofilter alone checks: obsolete ones, and identifiers in place of a source")
    return found


def by_check(catalogs: list[Path], language: str) -> dict[Unit, list[str]]:
    """The findings of --check for each unit."""
    command = [sys.executable, "-m", "knnmt", "translate", "--check", "--jsonl", "--source-lang", "en"]
    found: dict[Unit, list[str]] = defaultdict(list)
    out = subprocess.run([*command, "--target-lang", language, *map(str, catalogs)], capture_output=True, text=True)
    for line in out.stdout.splitlines():
        row = json.loads(line)
        found[row["document"], row["source"]].append(f"{row['kind']}: {row['message']}")
    return found


def main() -> None:
    """Print a table for Markdown, and examples."""
    options = argument_parser(__doc__)
    options.add_argument("pofilter")
    options.add_argument("catalogs", type=Path, nargs="+")
    options.add_argument("--language", default="de")
    options.add_argument("--examples", type=int, default=0)
    asked = options.parse_args()
    theirs, ours = by_pofilter(asked.pofilter, asked.catalogs, asked.language), by_check(asked.catalogs, asked.language)
    sources = {(str(file), entry.msgid): entry for file in asked.catalogs for entry in polib.pofile(str(file))}
    print_header("test of pofilter", "units", "with the same finding of --check", "with any finding")
    for test in sorted(theirs):
        units, pattern = theirs[test], re.compile(ALIKE.get(test, "$^"))
        alike = {unit for unit in units if any(pattern.search(each) for each in ours.get(unit, []))}
        print_row(test, f"{len(units):,}", f"{len(alike):,}", f"{sum(unit in ours for unit in units):,}")
        for unit in sorted(units - alike)[: asked.examples]:
            entry = sources.get(unit)
            print(f"    only pofilter: {unit[1]!r} -> {(entry and entry.msgstr)!r}")
    found_by_pofilter = {unit for units in theirs.values() for unit in units}
    for kind in sorted({_kind(each) for found in ours.values() for each in found}):
        mine = {unit for unit, found in ours.items() if any(_kind(each) == kind for each in found)}
        alone = mine - found_by_pofilter
        print(f"--check, {kind}: {len(mine):,} units, in {len(alone):,} of them pofilter finds nothing")
        for unit in sorted(alone)[: asked.examples]:
            print(f"    only --check: {unit[1]!r}: {[each for each in ours[unit] if _kind(each) == kind]}")


def _kind(finding: str) -> str:
    """The kind of a finding; for the form also what it is about."""
    kind, _, message = finding.partition(": ")
    words = re.sub(r"'.*?'|\".*?\"|\d+|, .*", "", message).split()
    return " ".join([kind, *words[:3]]) if kind == "form" else kind


if __name__ == "__main__":
    main()
