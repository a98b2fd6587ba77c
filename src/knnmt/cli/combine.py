"""`knnmt merge`, `split` and `shard-set`: make one datastore from several, several from one, or use several as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.cli.change import ModelOfChanges, StoreArgument
from knnmt.cli.index import estimate_and_tell
from knnmt.cli.interrupt import ends_with
from knnmt.cli.options import Threads
from knnmt.cli.progress import counter
from knnmt.cli.start import heavy_imports, load_quickly
from knnmt.datastore.manifest import sizes
from knnmt.engine.checkpoint import NamedByStore

if TYPE_CHECKING:
    from knnmt.datastore.store import Datastore

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
    from knnmt.datastore.combining import merge_stores
    from knnmt.datastore.store import Datastore

    opened = [Datastore.open(store) for store in stores]
    total = sum(store.manifest.live_sentences for store in opened)
    done = ends_with(_AGAIN, output, f"the store is made: {output}")
    with done, counter("merging", lambda: total, "sentences") as progress:
        manifest = merge_stores(opened, output, drop_duplicates, progress)
    if total > manifest.sentences:
        typer.echo(f"left out   {total - manifest.sentences:,} sentences of duplicate units")
    typer.echo(f"merged     {output}: {sizes(manifest.sentences, manifest.entries)}")
    if estimate:
        _estimate([Datastore.open(output)], model, threads)


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
    from knnmt.config import check
    from knnmt.datastore.combining import split_store
    from knnmt.datastore.store import Datastore

    check(
        by in (None, "origin"),
        f"--by must be origin, got {by!r}; or give --pairs, the largest number of units in each store",
    )
    opened = Datastore.open(store)
    done = ends_with(_AGAIN, output, f"the stores are made: {output}")
    with done, counter("splitting", lambda: opened.manifest.live_sentences, "sentences") as progress:
        places = split_store(opened, output, by == "origin", pairs, progress)
    made = [Datastore.open(place) for place in places]
    for each in made:
        typer.echo(f"made       {each.path}: {sizes(each.manifest.sentences, each.manifest.entries)}")
    if estimate:
        _estimate(made, model, threads)


def _estimate(stores: Sequence[Datastore], model: str | None, threads: int | None) -> None:
    """Estimate the settings of new stores. All of them are of one model."""
    manifest = stores[0].manifest
    languages = (manifest.source_language, manifest.target_language)
    engine = load_quickly(model or NamedByStore(manifest.model_name), "cpu", threads, None, *languages)
    stores[0].require_engine(engine)
    for store in stores:
        with ends_with("the store is made; its settings will be estimated when it is used"):
            estimate_and_tell(store, engine)


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
        from knnmt.adapting.combined_stores import shard_set as make_set
    made = make_set(shards, output, cluster=ray, seconds=seconds, model=model)
    typer.echo(f"made       {output}: {len(made.shards)} shards")
