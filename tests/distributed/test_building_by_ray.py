"""Building on a real cluster of several nodes, all on this machine: the same bytes, whoever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import knnmt
from knnmt.cli import app
from knnmt.datastore import slices
from knnmt.datastore.building import write_store
from knnmt.datastore.manifest import SegmentRecord
from knnmt.datastore.prepared import Slice
from knnmt.distributed import building, tasks
from knnmt.distributed.building import Job, encode_on, encode_part
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import ClusterError, SettingError
from support import TESTS
from support.copied_stores import files_of
from support.datastore_pairs import some_pairs

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # what Ray itself warns of is not ours
PAIRS = some_pairs(120)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that works on nothing, and two nodes with a core each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "600")  # on a machine that is busy
    os.environ.setdefault("RAY_agent_register_timeout_ms", "600000")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 80_000_000})
    for _ in range(2):
        made.add_node(num_cpus=1, object_store_memory=80_000_000)
    yield made
    made.shutdown()


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_ENTRIES", 200)


@pytest.fixture
def whole(tiny: TransformerEngine, tmp_path: Path) -> dict[str, bytes]:
    write_store(tmp_path / "whole", PAIRS, tiny)
    return files_of(tmp_path / "whole")


def test_the_bytes_are_those_of_a_build_without_ray(
    cluster: Any, tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    write_store(tmp_path / "s", PAIRS, tiny, encode=encode_on(knnmt.Cluster(cluster.address)))
    assert files_of(tmp_path / "s") == whole
    memory = tmp_path / "memory.tsv"
    memory.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS), encoding="utf-8")
    given = ["build", str(memory), "-m", str(tiny_checkpoint), "--device", "cpu"]
    for name, more in (("with", ["--ray", cluster.address, "--workers", "2"]), ("without", [])):
        ran = CliRunner().invoke(app, [*given, "-o", str(tmp_path / name), *more])
        assert ran.exit_code == 0, ran.output
    assert files_of(tmp_path / "with") == files_of(tmp_path / "without")


def dying(job: Job, name: str, part: Slice) -> SegmentRecord:
    """A worker that is killed when it has half a file, once for every second slice."""
    mark = job.directory.parent.parent / f"killed-{name}"
    if int(name[:5]) % 2 and not mark.exists():
        mark.touch()
        (job.directory / f".{name}.1").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    return encode_part(job, name, part)


def always_dying(job: Job, name: str, part: Slice) -> SegmentRecord:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def failing(job: Job, name: str, part: Slice) -> SegmentRecord:
    raise SettingError("a key is not a finite number")


@pytest.fixture
def by_value() -> None:
    """Workers do not have this file."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_a_worker_that_is_killed_costs_its_slice(
    cluster: Any,
    tiny: TransformerEngine,
    tmp_path: Path,
    whole: dict[str, bytes],
    by_value: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "encode_part", dying)
    write_store(tmp_path / "s", PAIRS, tiny, encode=encode_on(knnmt.Cluster(cluster.address)))
    assert files_of(tmp_path / "s") == whole
    assert len(list(tmp_path.glob("killed-*"))) >= 2
    monkeypatch.setattr(tasks, "RETRIES", 1)
    monkeypatch.setattr(building, "encode_part", always_dying)
    with pytest.raises(ClusterError, match="its workers ended 2 times"):
        write_store(tmp_path / "never", PAIRS, tiny, encode=encode_on(knnmt.Cluster(cluster.address)))
    monkeypatch.setattr(building, "encode_part", failing)
    with pytest.raises(SettingError, match=r"^a key is not a finite number$"):
        write_store(tmp_path / "bad", PAIRS, tiny, encode=encode_on(knnmt.Cluster(cluster.address)))
    assert not (tmp_path / "never").exists()


def test_a_node_that_is_lost_costs_its_slices(
    cluster: Any, tiny: TransformerEngine, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    lost = cluster.add_node(num_cpus=2, object_store_memory=80_000_000)
    done = 0

    def lose(*_: int) -> None:
        nonlocal done
        done += 1
        if done == 3:
            cluster.remove_node(lost, allow_graceful=False)

    write_store(tmp_path / "s", PAIRS, tiny, progress=lose, encode=encode_on(knnmt.Cluster(cluster.address)))
    assert done > 3
    assert files_of(tmp_path / "s") == whole


DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from support.datastore_pairs import some_pairs
from knnmt import Cluster
from knnmt.datastore import slices
from knnmt.datastore.building import write_store
from knnmt.distributed.building import encode_on
from knnmt.engine.loading import load_engine
slices.SLICE_ENTRIES = 200
engine = load_engine(Path(sys.argv[1]), device="cpu")
progress = lambda pairs, entries: print(pairs, flush=True)
write_store(Path(sys.argv[2]), some_pairs(120), engine, progress=progress, encode=encode_on(Cluster(sys.argv[3])))
"""


def test_a_driver_that_is_killed_costs_nothing(
    cluster: Any, tiny: TransformerEngine, tiny_checkpoint: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    command = [sys.executable, "-c", DRIVER, str(tiny_checkpoint), str(tmp_path / "s"), cluster.address, str(TESTS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        done = 0
        while done < 2:  # Ray itself writes there, too, of nodes that are gone
            line = driver.stdout.readline()
            assert line
            done += line.strip().isdigit()
        driver.kill()
    assert not (tmp_path / "s").exists()
    result = write_store(tmp_path / "s", PAIRS, tiny, encode=encode_on(knnmt.Cluster(cluster.address)))
    assert result.reused >= 2
    assert files_of(tmp_path / "s") == whole
