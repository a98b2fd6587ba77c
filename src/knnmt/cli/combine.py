"""`knnmt merge`, `split` and `shard-set`: make one datastore from several, several from one, or use several as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from knnmt.cli.change import ModelOfChanges, StoreArgument
from knnmt.cli.index import show_settings
from knnmt.cli.interrupt import ends_with
from knnmt.cli.options import Threads
from knnmt.cli.progress import counter
from knnmt.cli.start import heavy_imports
from knnmt.datastore.manifest import sizes

EstimateEach = Annotated[
    bool, typer.Option("--estimate/--no-estimate", help="Estimate the settings of each new store at the end.")
]
_AGAIN = "rerun the command; it resumes"


def merge(
    stores: Annotated[
        list[Path], typer.Argument(metavar="STORE...", help="Datastores of the same model.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the new store goes: a directory that does not exist yet.")
    ],
    drop_duplicates: Annotated[
        bool,
        typer.Option("--drop-duplicates", help="Skip units whose source and target have already occurred."),
    ] = False,
    estimate: EstimateEach = True,
    model: ModelOfChanges = None,
    threads: Threads = None,
) -> None:
    """Make one datastore from several, without the model.

    The stores must be of the same model. Each unit keeps its origin. Files are linked if the file system allows it, and
    copied otherwise. Removed sentences are left out. The original stores stay as they are. If interrupted, rerun the
    command; it resumes.

    Examples:

        knnmt merge teil-1.store teil-2.store -o projekt.store

        knnmt merge teile/*.store -o projekt.store --drop-duplicates
    """
    from knnmt.datastore.store import Datastore

    total = sum(Datastore.open(store).manifest.live_sentences for store in stores)
    with heavy_imports():
        from knnmt.adapting.merge import merge as merge_stores
    done = ends_with(_AGAIN, output, f"the store is made: {output}")
    with done, counter("merging", lambda: total, "sentences") as progress:
        merged = merge_stores(
            stores,
            output,
            drop_duplicates=drop_duplicates,
            estimate=estimate,
            model=model,
            threads=threads,
            progress=progress,
        )
    manifest = merged.manifest
    if total > manifest.sentences:
        typer.echo(f"left out   {total - manifest.sentences:,} sentences of duplicate units")
    typer.echo(f"merged     {output}: {sizes(manifest.sentences, manifest.entries)}")
    if estimate:
        show_settings(output, by_segment=True)


def split(
    store: StoreArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the new stores go: a directory that does not exist yet.")
    ],
    by: Annotated[
        str | None, typer.Option(help="origin: a store for each file that units came from.", show_default=False)
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(min=1, help="At most this many units in each new store, in their order.", show_default=False),
    ] = None,
    estimate: EstimateEach = True,
    model: ModelOfChanges = None,
    threads: Threads = None,
) -> None:
    """Make several datastores from one, without the model.

    The command makes one store for each file that units came from, or one for each --pairs units. A new store holds
    only its own units. The original store stays as it is. If interrupted, rerun the command; it resumes.

    Examples:

        knnmt split projekt.store --by origin -o kunden

        knnmt split projekt.store --pairs 1000000 -o teile
    """
    from knnmt.datastore.store import Datastore

    total = Datastore.open(store).manifest.live_sentences
    with heavy_imports():
        from knnmt.adapting.merge import split as split_into
    done = ends_with(_AGAIN, output, f"the stores are made: {output}")
    with done, counter("splitting", lambda: total, "sentences") as progress:
        parts = split_into(
            store,
            output,
            by=cast("Literal['origin'] | None", by),
            pairs=pairs,
            estimate=estimate,
            model=model,
            threads=threads,
            progress=progress,
        )
    for each in parts:
        typer.echo(f"made       {each.path}: {sizes(each.manifest.sentences, each.manifest.entries)}")
        if estimate:
            show_settings(each.path, by_segment=True)


def shard_set(
    shards: Annotated[
        list[str],
        typer.Argument(
            metavar="STORE...",
            help="Datastores of the same model; NODE:PATH names one on the disk of another machine of the cluster.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the set goes: a directory that does not exist yet.")
    ],
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help=(
                "The Ray cluster that opens the shards: local, auto, HOST:PORT or ray://HOST:PORT.  [default: the "
                "process that opens the set]"
            ),
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="A shard that takes longer than this to answer is left out.")] = 10.0,
    model: ModelOfChanges = None,
) -> None:
    """Make a datastore whose entries are in other datastores.

    The set is searched by segment: for each batch of sentences, the shards return the segments that cover them best,
    and this process searches those. The translations are those of the merged store. A shard that does not answer in
    time is left out with a warning. An addition to a shard takes effect at once.

    Example:

        knnmt shard-set teil-1.store teil-2.store -o ganz.store
    """
    with heavy_imports():
        from knnmt.adapting.merge import shard_set as make_set
    made = make_set(shards, output, cluster=ray, seconds=seconds, model=model)
    typer.echo(f"made       {output}: {len(made.shards)} shards")
