"""Domains that workers produce: the records are those of one process, and what is done stays done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from knnmt import Cluster
from knnmt.errors import StorageError
from knnmt_lab.reproduction import domains_as_tasks
from knnmt_lab.reproduction.domains_as_tasks import produce_on
from knnmt_lab.reproduction.producing import produce
from support.index_stores import faiss_or_skip
from support.made_domains import asked, records_of, write_domains
from support.made_ray import MadeRay

faiss_or_skip()
ROWS = ("base", "segments", "A/knn", "B/knn", "B/pca+cache+pruning")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, short_checkpoint: Path) -> tuple[Path, dict[str, Any]]:
    place = tmp_path_factory.mktemp("plain")
    write_domains(place / "data")
    assert produce(asked(place / "data", place / "out", short_checkpoint, systems=ROWS, threads=1), lambda _: None) == 0
    return place / "data", records_of(place / "out")


def test_the_records_are_those_of_one_process(
    made_ray: MadeRay,
    plain: tuple[Path, dict[str, Any]],
    short_checkpoint: Path,
    tmp_path: Path,
) -> None:
    data, expected = plain
    made_ray.dying = 1
    told: list[str] = []
    config = asked(data, tmp_path / "out", short_checkpoint, systems=ROWS)
    assert produce_on(Cluster(workers=2), config, told.append) == 0
    assert records_of(tmp_path / "out") == expected
    assert sum("speed" in line for line in told) == 2  # by the driver, after all workers
    assert all("speed" in line for line in told[-2:])
    assert {line.split(":")[0] for line in told if line.startswith(("plain: ", "marked: "))} == {"plain", "marked"}
    again: list[str] = []
    assert produce_on(Cluster(workers=2), config, again.append) == 0
    assert not [line for line in again if "were done before" not in line]


def test_time_that_is_up_is_up_for_workers_too(
    made_ray: MadeRay,
    plain: tuple[Path, dict[str, Any]],
    short_checkpoint: Path,
    tmp_path: Path,
) -> None:
    told: list[str] = []
    config = asked(plain[0], tmp_path / "out", short_checkpoint, systems=ROWS, minutes=0.0)
    assert produce_on(Cluster(), config, told.append) > 0
    assert {line.split(": ")[1] for line in told if line.startswith(("plain: ", "marked: "))} == {"time is up"}
    assert not list((tmp_path / "out").rglob("text.json"))


def test_workers_must_see_the_output(
    made_ray: MadeRay,
    plain: tuple[Path, dict[str, Any]],
    short_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = domains_as_tasks.produce_domain

    def elsewhere(config: Any, until: Any) -> Any:
        if (tmp_path / "out").exists():
            (tmp_path / "out").rename(tmp_path / "away")
        return real(config, until)

    monkeypatch.setattr(domains_as_tasks, "produce_domain", elsewhere)
    with pytest.raises(
        StorageError,
        match=r"a worker does not see the plan .*Put --output and --stores on",
    ):
        produce_on(Cluster(), asked(plain[0], tmp_path / "out", short_checkpoint, systems=ROWS))


def test_nothing_but_speed_is_left_to_the_driver(
    made_ray: MadeRay,
    plain: tuple[Path, dict[str, Any]],
    short_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(domains_as_tasks, "produce_domain", lambda *_: pytest.fail("no worker was needed"))
    config = asked(plain[0], tmp_path / "out", short_checkpoint, systems=("base",), quality=False)
    assert produce_on(Cluster(), config, lambda _: None) == 0
