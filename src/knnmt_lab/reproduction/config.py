"""The settings of a reproduction, and which of them must not change between two runs with the same output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knnmt import DEFAULT_MODEL, __version__
from knnmt.errors import SettingError
from knnmt_lab.checks import check
from knnmt_lab.reproduction.plan import BLOCKS
from knnmt_lab.reproduction.records import read_record, write_record

PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class ReproductionConfig:
    """What is produced.

    data: has a directory for each domain
    output: the directory for the results
    stores: the directory for the stores, which are large; by default in the output
    domains: by default all in `data`
    train_pairs, sentences: of each domain; 0 for all
    systems, without: patterns for the names of rows; by default all rows
    brief: without the rows that only refine a table
    exact: block B searches every key, which needs no FAISS; on a GPU it always does
    other_sentences: of each other domain, which some rows translate to show what harm a store does; 0 for none
    minutes: after this time no further stage starts; None for no limit
    keep_going: a stage that fails is reported with its traceback, and the other stages go on
    """

    data: Path
    output: Path
    stores: Path | None = None
    domains: tuple[str, ...] = ()
    blocks: tuple[str, ...] = BLOCKS
    train_pairs: int = 0
    sentences: int = 0
    other_sentences: int = 0
    model: str = DEFAULT_MODEL
    source_language: str | None = None
    target_language: str | None = None
    device: str | None = None
    threads: int | None = None
    exact: bool = False
    systems: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    brief: bool = False
    quality: bool = True
    speed: bool = True
    speed_sentences: int = 32
    rounds: int = 3
    batch_sizes: tuple[int, ...] = (1, 8, 16)
    minutes: float | None = None
    keep_going: bool = False

    def __post_init__(self) -> None:
        known = bool(self.blocks) and set(self.blocks) <= set(BLOCKS)
        check(known, f"blocks must be chosen from {' and '.join(BLOCKS)}, got {', '.join(self.blocks) or 'none'}")
        check(
            self.quality or self.speed, "there is nothing to do without quality and without speed: choose at least one"
        )
        for name in ("train_pairs", "sentences", "other_sentences"):
            check(getattr(self, name) >= 0, f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("speed_sentences", "rounds"):
            check(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}")
        sound = bool(self.batch_sizes) and min(self.batch_sizes) >= 1
        check(sound, f"batch sizes must be at least 1, got {', '.join(map(str, self.batch_sizes)) or 'none'}")

    @property
    def store_directory(self) -> Path:
        return self.stores or self.output / "stores"


def names_in(text: str) -> tuple[str, ...]:
    """Names separated by commas or spaces, as on the command line."""
    return tuple(text.replace(",", " ").split())


def numbers_in(text: str) -> tuple[int, ...]:
    """The numbers in a text, separated by commas or spaces."""
    try:
        return tuple(map(int, names_in(text)))
    except ValueError:
        raise SettingError(f"expected numbers separated by commas, such as 1,8,16, got {text!r}") from None


def hold_to_plan(config: ReproductionConfig, fingerprint: str, searches: str, languages: tuple[str, str]) -> None:
    """Write down what every result depends on; if the output has results that depend on something else, raise an error.

    Domains, rows, blocks and batch sizes may be added to an earlier run; the rest may not change. fingerprint: of the
    model; searches: of block B, "exact" or "index"
    """
    path = config.output / PLAN
    asked: dict[str, Any] = {
        "model": fingerprint,
        "train_pairs": config.train_pairs,
        "sentences": config.sentences,
        "block B searches": searches,
        "version": __version__,
        "source language": languages[0],
        "target language": languages[1],
    }
    begun = read_record(path)
    if begun is None:
        write_record(path, asked)
        return
    different = [
        f"{name} was {begun[name]}, now {value}" for name, value in asked.items() if begun.get(name, value) != value
    ]
    if different:
        raise SettingError(
            f"{config.output}: has results of other settings ({'; '.join(different)}), which cannot be in the same "
            f"report. Give the same arguments to resume, or another --output"
        )
