"""Evaluations and reproductions on a real cluster: the same results, also while workers are killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from knnmt import Cluster, Datastore, TranslationSettings, evaluate
from knnmt.engine.transformer import TransformerEngine
from knnmt.evaluation import systems_as_tasks
from knnmt.evaluation.systems_as_tasks import SystemDone, SystemTask, run_system
from knnmt_lab.reproduction import domains_as_tasks
from knnmt_lab.reproduction.domains_as_tasks import produce_domain, produce_on
from knnmt_lab.reproduction.producing import produce
from support.datastore_pairs import some_pairs
from support.made_domains import asked, records_of, write_domains

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # what Ray itself warns of is not ours
TEXT = some_pairs(7, start=50)
ROWS = ("base", "segments", "B/knn")


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """Started once, with room for two workers that do not have this file."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "600")  # on a machine that is busy
    os.environ.setdefault("RAY_agent_register_timeout_ms", "600000")
    import ray
    from ray import cloudpickle

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.shutdown()


def die_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def dying_system(task: SystemTask, system: Any) -> SystemDone:
    assert task.directory is not None
    die_once(task.directory.parent / f"killed-{system.name}")
    return run_system(task, system)


def dying_domain(config: Any, until: float | None) -> list[str]:
    """Is killed when the first stages are done, and then goes on from there."""
    mark = config.output.parent / f"killed-{config.domains[0]}"
    if not mark.exists():
        from dataclasses import replace

        produce_domain(replace(config, systems=("base",)), until)
        die_once(mark)
    return produce_domain(config, until)


def test_systems_are_the_same_when_workers_die(
    local_ray: None,
    tiny: TransformerEngine,
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Datastore.build(tmp_path / "own.store", some_pairs(12), tiny).path
    given: dict[str, Any] = {
        "systems": [f"cached={store},k=4,lambda=0.6,temperature=10,cache=50"],
        "settings": TranslationSettings(beam=2, batch_size=4),
        "model": tiny_checkpoint,
        "device": "cpu",
        "threads": 1,
    }
    plain = evaluate(TEXT, store, output=tmp_path / "plain", **given)
    monkeypatch.setattr(systems_as_tasks, "run_system", dying_system)
    found = evaluate(TEXT, store, output=tmp_path / "ray", cluster=Cluster(), **given)
    assert len(list(tmp_path.glob("killed-*"))) == 3
    for one, other in zip(plain.systems, found.systems, strict=True):
        assert (one.run.name, one.run.signature) == (other.run.name, other.run.signature)
        assert one.run.hypotheses == other.run.hypotheses
        assert one.scores == other.scores


def test_domains_go_on_when_workers_die(
    local_ray: None, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_domains(tmp_path / "data")
    more: dict[str, Any] = {"systems": ROWS, "threads": 1, "blocks": ("B",), "exact": True, "speed": False}
    assert produce(asked(data, tmp_path / "plain", tiny_checkpoint, **more), lambda _: None) == 0
    monkeypatch.setattr(domains_as_tasks, "produce_domain", dying_domain)
    told: list[str] = []
    assert produce_on(Cluster(), asked(data, tmp_path / "ray", tiny_checkpoint, **more), told.append) == 0
    assert len(list(tmp_path.glob("killed-*"))) == 2
    assert records_of(tmp_path / "ray") == records_of(tmp_path / "plain")
    assert any("stages were done before" in line for line in told)
