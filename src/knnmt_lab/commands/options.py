"""What the commands have in common: options of the machine and the languages, and the end by Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from knnmt import Cluster
from knnmt_lab.checks import check

_MACHINE = "Machine and cluster"

SourceLanguage = Annotated[
    str | None,
    typer.Option(
        "--source-lang",
        metavar="TAG",
        help="Language to translate from; multilingual models need it.  [default: the model's]",
        show_default=False,
    ),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(
        "--target-lang", metavar="TAG", help="Language to translate to.  [default: the model's]", show_default=False
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Produce domains on a Ray cluster: local, auto, HOST:PORT or ray://HOST:PORT.",
        show_default=False,
        rich_help_panel=_MACHINE,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="With --ray: at most this many workers at a time.  [default: as many as fit]",
        show_default=False,
        rich_help_panel=_MACHINE,
    ),
]
GpusPerWorker = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="With --ray: GPUs for each worker; 0.5 lets two workers share one.",
        metavar="NUMBER",
        show_default=False,
        rich_help_panel=_MACHINE,
    ),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default=False, rich_help_panel=_MACHINE)]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads.", show_default=False, rich_help_panel=_MACHINE)]


def cluster_of(
    address: str | None, workers: int | None, gpus_per_worker: float | None, threads: int | None
) -> Cluster | None:
    """The cluster that the options name, or None."""
    if address is None:
        check(workers is None and gpus_per_worker is None, "--workers and --gpus-per-worker need --ray ADDRESS")
        return None
    return Cluster(address, workers, threads or 1, gpus_per_worker)


@contextmanager
def ends_with(advice: str) -> Iterator[None]:
    """Turn Ctrl-C into a message about its effect, and the exit status that a shell expects."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"\nknnmt: interrupted; {advice}", err=True)
        raise typer.Exit(130) from None
