"""What the scripts in `benchmarks/` have in common, and that they all use it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from knnmt_lab.scripts import (
    DOMAINS,
    argument_parser,
    development_sources,
    directed,
    milliseconds,
    print_header,
    print_row,
    read_domain,
)
from support import ROOT
from support.datastore_pairs import some_pairs


def test_a_script_is_called_and_prints_in_one_way() -> None:
    scripts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py")}
    assert len(scripts) > 30
    own_ways = re.compile(r"argparse\.ArgumentParser\(|sys\.argv\[|\|---|environ\.get\(.KNNMT_DATA")
    assert {name: found for name, text in scripts.items() if (found := own_ways.findall(text))} == {}


def test_help_is_the_first_lines_as_they_are_written() -> None:
    parser = argument_parser("What is measured.\n\n    python it.py [--n 3]\n")
    parser.add_argument("--n", type=int, default=3)
    assert "What is measured.\n\n    python it.py [--n 3]\n" in parser.format_help()


def test_tables_are_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    print_header("what", "ms")
    print_row("search", f"{1.25:.1f}")
    print_row("nothing", "")
    assert capsys.readouterr().out == "\n| what | ms |\n|---|---|\n| search | 1.2 |\n| nothing |  |\n"


def test_every_call_is_timed() -> None:
    calls: list[int] = []
    found = milliseconds(lambda: calls.append(1), 4)
    assert len(calls) == len(found) == 4
    assert all(each >= 0 for each in found)


def test_texts_of_the_domains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lzma = pytest.importorskip("lzma")
    monkeypatch.setenv("KNNMT_DATA", str(tmp_path))
    pairs = some_pairs(6)
    with pytest.raises(SystemExit, match="no text there; set KNNMT_DATA"):
        read_domain("it", "dev")
    for domain in DOMAINS:
        place = tmp_path / "data" / domain / "dev.tsv.xz"
        place.parent.mkdir(parents=True)
        lines = [f"{pair.source}\t{pair.target}\n" for pair in (pairs[0], *pairs)]  # the first one twice
        place.write_bytes(lzma.compress("".join(lines).encode()))
    found = read_domain("it", "dev")
    assert [(pair.source, pair.target) for pair in found[1:]] == [(pair.source, pair.target) for pair in pairs]
    assert development_sources(8) == [pair.source for pair in pairs[:2]] * len(DOMAINS)
    assert directed(pairs, "de-en") == pairs
    assert [(pair.source, pair.target) for pair in directed(pairs, "en-de")] == [
        (pair.target, pair.source) for pair in pairs
    ]
