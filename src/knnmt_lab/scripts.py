"""What the scripts in `benchmarks/` have in common: how they are called, the text that they read, and how they print.

A script is called as its first lines say. Results are tables in Markdown, row by row, so that an interrupted run has
printed what it measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from knnmt import ReadingConfig, SegmentPair, read_memories

DOMAINS = ("it", "koran", "law", "medical")


def argument_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the first lines of a script (`__doc__`)."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def domain_file(domain: str, part: str) -> Path:
    """German-English text of a domain in KNNMT_DATA (default ../shared). part: "train" or "dev"."""
    path = Path(os.environ.get("KNNMT_DATA", "../shared")) / "data" / domain / f"{part}.tsv.xz"
    if not path.exists():
        sys.exit(f"{path}: no text there; set KNNMT_DATA")
    return path


def read_domain(domain: str, part: str) -> list[SegmentPair]:
    """The pairs of `domain_file`."""
    return list(read_memories(domain_file(domain, part), ReadingConfig("de", "en")))


def directed(pairs: Sequence[SegmentPair], model: str) -> list[SegmentPair]:
    """German-English pairs in the direction of a shipped model."""
    if model == "de-en":
        return list(pairs)
    return [replace(pair, source=pair.target, target=pair.source) for pair in pairs]


def development_sources(count: int) -> list[str]:
    """German sentences, each once: about as many of each domain, the first of its development set."""
    found = []
    for domain in DOMAINS:
        found += list(dict.fromkeys(pair.source for pair in read_domain(domain, "dev")))[: count // len(DOMAINS)]
    return found


def milliseconds(work: Callable[[], object], times: int) -> list[float]:
    """How long each of several calls takes."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(1000 * (time.perf_counter() - started))
    return found


def print_header(*columns: object) -> None:
    """The head of a table in Markdown."""
    print()
    print_row(*columns)
    print("|" + "---|" * len(columns), flush=True)


def print_row(*cells: object) -> None:
    """A row of a table in Markdown."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
