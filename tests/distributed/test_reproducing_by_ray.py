"""Reproductions on a real cluster: the same results, also while workers are killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from knnmt import Cluster
from knnmt_lab.reproduction import domains_as_tasks
from knnmt_lab.reproduction.domains_as_tasks import produce_domain, produce_on
from knnmt_lab.reproduction.producing import produce
from support.made_domains import asked, records_of, write_domains

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # what Ray itself warns of is not ours
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


def dying_domain(config: Any, until: float | None) -> list[str]:
    """Is killed when the first stages are done, and then goes on from there."""
    mark = config.output.parent / f"killed-{config.domains[0]}"
    if not mark.exists():
        from dataclasses import replace

        produce_domain(replace(config, systems=("base",)), until)
        die_once(mark)
    return produce_domain(config, until)


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
