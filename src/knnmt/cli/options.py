"""Options that several commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from knnmt.cli.panels import MACHINE
from knnmt.config import check
from knnmt.distributed.cluster import Cluster

Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda or cuda:N.  [default: cuda if available]", show_default=False, rich_help_panel=MACHINE
    ),
]

Dtype = Annotated[
    str | None,
    typer.Option(
        help="float32, bfloat16, float16 (cuda), int8 (cpu), or auto, the fastest on this machine.  [default: float32 "
        "on a CPU, float16 on cuda]",
        show_default=False,
        rich_help_panel=MACHINE,
    ),
]

Threads = Annotated[
    int | None,
    typer.Option(min=1, help="CPU threads.  [default: all cores]", show_default=False, rich_help_panel=MACHINE),
]

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help=(
            "Run the model on a Ray cluster: local (this machine), auto (the cluster of this machine), HOST:PORT "
            "or ray://HOST:PORT."
        ),
        show_default=False,
        rich_help_panel=MACHINE,
    ),
]

Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="With --ray: at most this many workers at a time.  [default: as many as fit]",
        show_default=False,
        rich_help_panel=MACHINE,
    ),
]

GpusPerWorker = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="With --ray: GPUs for each worker; 0.5 lets two workers share one.",
        metavar="NUMBER",
        show_default=False,
        rich_help_panel=MACHINE,
    ),
]


Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=(
            "With --ray, if the machines share no file system: a URL such as s3://bucket/place through which "
            "workers return their results."
        ),
        show_default=False,
    ),
]


def cluster_of(
    address: str | None,
    workers: int | None,
    gpus_per_worker: float | None,
    threads: int | None,
    storage: str | None = None,
) -> Cluster | None:
    """The cluster that the options name, or None."""
    if address is None:
        idle = workers is None and gpus_per_worker is None and storage is None
        check(idle, "--workers, --gpus-per-worker and --storage need --ray ADDRESS")
        return None
    return Cluster(address, workers, threads or 1, gpus_per_worker, storage)


ModelOfStore = Annotated[
    str | None, typer.Option("--model", "-m", help="The model that the store was built with, if it has moved.")
]

Development = Annotated[
    Path,
    typer.Option("--dev", help="Pairs like the text to translate, in any memory format. The store must not hold them."),
]

AllDev = Annotated[
    bool,
    typer.Option("--all-dev", help="Learn from all of DEV and report validation, if you have a separate test set."),
]

KeepKnown = Annotated[bool, typer.Option("--keep-known", help="Also use pairs whose source the store holds.")]

Exact = Annotated[bool, typer.Option("--exact", help="Search every key, even if the store has an index.")]

StoresAsSystems = Annotated[
    list[Path] | None,
    typer.Option(
        "--datastore",
        "-d",
        metavar="STORE",
        help="A system: the model with this store. Can be repeated.",
        show_default=False,
    ),
]
