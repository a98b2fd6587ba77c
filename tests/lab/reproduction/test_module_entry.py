"""`python -m knnmt_lab.reproduction` has the options of `knnmt reproduce`, and ends in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.errors import InputError
from knnmt_lab.reproduction import __main__ as entry
from knnmt_lab.reproduction.config import ReproductionConfig
from support.commands import all_commands

ONLY_FOR_REPORTS = {"--produce-only", "--report-only", "--comet-python", "--comet-model"}
ONLY_FOR_CLUSTERS = {"--ray", "--workers", "--gpus-per-worker"}


def produced(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> ReproductionConfig:
    asked: list[ReproductionConfig] = []
    monkeypatch.setattr(entry, "produce", lambda config, _tell: asked.append(config))
    entry.main(["--data", "d", "--output", "o", *arguments])
    return asked[0]


def test_both_have_the_same_options() -> None:
    spelled = {name for each in all_commands()["reproduce"].params for name in [*each.opts, *each.secondary_opts]}
    ours = {name for action in entry.parser()._actions for name in action.option_strings} - {"-h", "--help"}
    assert ours <= spelled
    short = {name for name in spelled if not name.startswith("--")}
    of_the_command = {*ONLY_FOR_REPORTS, *ONLY_FOR_CLUSTERS, "--quality", "--speed", "--help"}
    assert spelled - ours == {*of_the_command, *short} & spelled


def test_options_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert produced(monkeypatch) == ReproductionConfig(Path("d"), Path("o"))
    lists = ["--domains", "it,law", "--blocks", "A", "B", "--systems", "A/*", "--batch-sizes", "1", "8"]
    others = ["--train-pairs", "9", "--minutes", "1.5", "--no-speed", "--exact", "--source-lang", "de", "--stores", "s"]
    assert produced(monkeypatch, *lists, *others) == ReproductionConfig(
        Path("d"),
        Path("o"),
        Path("s"),
        ("it", "law"),
        systems=("A/*",),
        batch_sizes=(1, 8),
        train_pairs=9,
        minutes=1.5,
        speed=False,
        exact=True,
        source_language="de",
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InputError("no text"), "knnmt: error: no text"),
        (PermissionError(13, "Permission denied", "a\x1bb"), r"knnmt: error: .*Permission denied.*␛|x1b"),
        (MemoryError(), "knnmt: error: MemoryError"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero\nknnmt: this should not have happened"),
    ],
)
def test_whatever_goes_wrong_is_said_in_words(monkeypatch: pytest.MonkeyPatch, error: Exception, said: str) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(entry, "produce", fail)
    with pytest.raises(SystemExit, match=said):
        entry.main(["--data", "d", "--output", "o"])
