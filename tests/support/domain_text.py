"""Real text of a domain, where there is any."""

from __future__ import annotations

import lzma
from itertools import islice
from pathlib import Path


def domain_lines(data: Path, domain: str, count: int, side: int = 0) -> list[str]:
    """The first lines of a domain's development set: side 0 is German, 1 English."""
    with lzma.open(data / domain / "dev.tsv.xz", "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t")[side] for line in islice(lines, count)]
