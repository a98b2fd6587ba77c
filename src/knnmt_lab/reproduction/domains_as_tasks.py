"""Domains of a reproduction as tasks of a cluster: a worker produces each domain as `produce` does, but measures no
speed.

The stages are files in a directory that all machines see. If a worker dies, the stage that it was working on is lost;
if the driver dies, each worker loses one stage.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from knnmt import Bars, Cluster, run_tasks
from knnmt.errors import StorageError
from knnmt_lab.reproduction.config import PLAN, ReproductionConfig
from knnmt_lab.reproduction.producing import NO_BARS, begin, produce


def produce_domain(config: ReproductionConfig, until: float | None) -> list[str]:
    """Produce one domain in a worker, and return its messages. until: a clock time after which no stage starts"""
    if not (config.output / PLAN).exists():
        raise StorageError(
            f"{config.output}: a worker does not see the plan that the reproduction wrote there. Put --output and "
            f"--stores on a file system that all machines share."
        )
    told: list[str] = []
    minutes = None if until is None else max(0.0, until - time.time()) / 60
    produce(replace(config, minutes=minutes), told.append)
    return told


def produce_on(
    cluster: Cluster,
    config: ReproductionConfig,
    tell: Callable[[str], None] = print,
    bars: Bars = NO_BARS,
) -> int:
    """Like `produce`: workers produce the domains, and their speed is measured on this machine at the end."""
    begun = begin(config)
    until = None if begun.end is None else time.time() + begun.end - time.perf_counter()
    engine = begun.translator.engine
    gpus = cluster.gpus_per_worker
    if gpus is None:
        gpus = float(engine.device.type == "cuda")
    directory = Path(engine.name)  # of the model, which all machines must see, or its name on the hub
    shared = replace(
        config,
        data=config.data.absolute(),
        output=config.output.absolute(),
        stores=config.store_directory.absolute(),
        model=str(directory.absolute()) if directory.is_dir() else engine.name,
        device="cuda" if gpus else "cpu",
        threads=cluster.threads,
        quality=True,
        speed=False,
    )
    calls = {name: (replace(shared, domains=(name,)), until) for name in begun.domains} if config.quality else {}
    for name, told in run_tasks(cluster, gpus, produce_domain, calls):
        for line in told:
            tell(f"{name}: {line}")
    return begun.produce(tell, bars)
