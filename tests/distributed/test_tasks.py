from __future__ import annotations

from pathlib import Path

import pytest

from knnmt import Cluster
from knnmt.distributed.tasks import RETRIES, Tasks, gpus_for, model_for_all, run_tasks
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import ClusterError, SettingError
from support.made_ray import MadeRay


def halved(number: int) -> int:
    if number % 2:
        raise SettingError(f"{number} is odd")
    return number // 2


def test_every_call_is_answered_under_its_name(made_ray: MadeRay) -> None:
    calls = {f"half of {number}": (number,) for number in range(0, 20, 2)}
    found = dict(run_tasks(Cluster(workers=3, threads=2), 0.5, halved, calls))
    assert found == {f"half of {2 * half}": half for half in range(10)}
    assert made_ray.options == {"num_cpus": 2, "num_gpus": 0.5, "max_retries": RETRIES, "max_calls": 0}


def test_what_a_worker_raises_is_raised_as_it_is(made_ray: MadeRay) -> None:
    with pytest.raises(SettingError, match=r"^3 is odd$"):
        list(run_tasks(Cluster(), 0, halved, {"two": (2,), "three": (3,)}))


def test_workers_that_die_are_tried_again_and_then_said(made_ray: MadeRay) -> None:
    made_ray.dying = RETRIES
    assert dict(run_tasks(Cluster(), 0, halved, {"eight": (8,)})) == {"eight": 4}
    assert made_ray.tried == RETRIES + 1
    made_ray.dying = RETRIES + 1
    with pytest.raises(ClusterError, match=r"^eight: its workers ended 6 times \(the worker died\)\. Do they"):
        list(run_tasks(Cluster(), 0, halved, {"eight": (8,)}))


@pytest.mark.parametrize(
    ("cluster", "gpus", "resources", "room"),
    [
        (Cluster(workers=7), 0.0, {"CPU": 2.0}, 7),
        (Cluster(threads=4), 0.0, {"CPU": 18.0}, 5),
        (Cluster(), 0.5, {"CPU": 18.0, "GPU": 2.0}, 5),
        (Cluster(), 1.0, {"CPU": 18.0}, 2),
        (Cluster(), 0.0, {}, 2),
    ],
)
def test_room_is_what_the_cluster_has_and_one_more(
    cluster: Cluster, gpus: float, resources: dict[str, float], room: int
) -> None:
    ray = MadeRay()
    ray.cluster_resources = lambda: resources  # type: ignore[method-assign]
    assert Tasks(ray, cluster, gpus, halved).room == room


def test_workers_have_what_the_driver_has(
    tiny: TransformerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpus_for(Cluster(), tiny) == 0.0
    assert gpus_for(Cluster(gpus_per_worker=0.5), tiny) == 0.5
    assert model_for_all(tiny) == tiny.name
    monkeypatch.chdir(Path(tiny.name).parent)
    monkeypatch.setattr(tiny, "name", Path(tiny.name).name)
    assert Path(model_for_all(tiny)).is_absolute()
