"""Two domains of made-up text, one in TSV and one in TMX, and what is asked of them in tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.writing import write_tmx, write_tsv
from knnmt_lab.reproduction.config import ReproductionConfig
from support.datastore_pairs import some_pairs

ROWS = (
    "base",
    "fast-128",
    "segments",
    "sk-mt",
    "segments-aligned",
    "A/knn",
    "A/cache-6",
    "A/cache-6-misses",
    "A/cache-8",
    "A/knn-bleu",
    "A/chance-50",
    "A/own-gate-50",
    "B/knn",
    "B/knn-fixed",
    "A/knn-probes",
    "B/pruning-2",
    "B/pruning-2-uncounted",
    "B/pca+cache+pruning",
    "B/surest",
    "B/surest-80",
)


def write_domains(data: Path, test: bool = False) -> Path:
    """`plain` in TSV, where asked for with a test.tsv, and `marked` in TMX."""
    for name, start, write in (("plain", 0, write_tsv), ("marked", 300, write_tmx)):
        place = data / name
        place.mkdir(parents=True)
        ending = write.__name__.removeprefix("write_")
        _write(write, some_pairs(40, start=start), place / f"train.{ending}")
        _write(write, some_pairs(16, start=start + 100), place / f"dev.{ending}")
    if test:
        _write(write_tsv, some_pairs(5, start=200), data / "plain" / "test.tsv")
    return data


def _write(write: Any, pairs: list[SegmentPair], path: Path) -> None:
    if write is write_tmx:
        write_tmx(path, pairs, "de", "en")
    else:
        write_tsv(path, pairs)


def asked(data: Path, output: Path, model: Path, **others: Any) -> ReproductionConfig:
    """A short reproduction of both domains."""
    usual: dict[str, Any] = {
        "model": str(model),
        "sentences": 3,
        "other_sentences": 2,
        "systems": ROWS,
        "speed_sentences": 2,
        "rounds": 1,
        "batch_sizes": (2,),
        "device": "cpu",
    }
    return ReproductionConfig(data, output, **{**usual, **others})


def records_of(output: Path) -> dict[str, Any]:
    """Every record but for what depends on when and how fast it was made."""
    found = {}
    for path in sorted(output.rglob("*.json")):
        if "stores" in path.relative_to(output).parts or path.name.startswith("speed-"):
            continue
        record = json.loads(path.read_text(encoding="utf-8"))
        for name in ("seconds", "stage_seconds", "machine"):
            record.pop(name, None)
        found[str(path.relative_to(output))] = record
    return found
