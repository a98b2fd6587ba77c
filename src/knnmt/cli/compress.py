"""`knnmt reduce` and `prune`: a smaller datastore from a larger one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.cli.change import StoreArgument
from knnmt.cli.interrupt import ends_with
from knnmt.cli.progress import counter
from knnmt.cli.start import heavy_imports
from knnmt.datastore.manifest import in_bytes

if TYPE_CHECKING:
    from knnmt.datastore.store import Datastore

Output = Annotated[
    Path, typer.Option("--output", "-o", help="Where the new store goes: a directory that does not exist yet.")
]


def reduce(
    store: StoreArgument,
    output: Output,
    dim: Annotated[int, typer.Option(min=1, help="Dimensions of the new keys.", show_default=False)],
) -> None:
    """Make a datastore with shorter keys. The method is principal component analysis (PCA).

    It is smaller, and its search is faster. The original store stays as it is. Nothing can be added to the new one: add
    to the original, and make the new one again. Queries are shortened automatically when the new store is searched.

    Examples:

        knnmt reduce projekt.store -o projekt-128.store --dim 128

        knnmt prune projekt-128.store -o projekt-klein.store
    """
    with heavy_imports():
        from knnmt.compression.pca import reduce as reduce_store
        from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    with _interrupted(output), counter("reducing", lambda: 2 * opened.manifest.live_entries, "keys read") as progress:
        made, projection = reduce_store(opened, output, dim, progress)
    typer.echo(
        f"reduced    {output}: {made.manifest.entries:,} entries of {dim} dimensions instead of {opened.manifest.dim}"
    )
    typer.echo(f"kept       {float(projection.explained_variance.sum()):.1%} of the variance of the model's keys")
    _print_sizes(opened, made)


def prune(
    store: StoreArgument,
    output: Output,
    k: Annotated[int, typer.Option(min=1, help="Each entry may merge with at most this many nearest neighbours.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Determines the order in which entries are visited.")] = 0,
) -> None:
    """Make a datastore with fewer entries. Close ones are merged.

    The command visits entries in random order and merges each with those of its k nearest neighbours that have its
    value. A larger k makes a smaller store and costs some quality. The search for neighbours uses the store's index if
    it has one. The original store stays as it is; nothing can be added to the new one. All sentences stay, so that
    every entry still shows its origin. Tune the new store, because its distances differ.

    Examples:

        knnmt prune projekt.store -o projekt-klein.store

        knnmt prune projekt-128.store -o projekt-kleiner.store --k 5 --seed 1
    """
    with heavy_imports():
        from knnmt.compression.pruning import prune as prune_store
        from knnmt.datastore.store import Datastore
        from knnmt.index.store_index import StoreIndex

    opened = Datastore.open(store)
    index = StoreIndex(opened)
    if index.hint:
        typer.echo(f"knnmt: {index.hint}", err=True)
    before = opened.manifest.live_entries
    with _interrupted(output), counter("pruning", lambda: before, "entries") as progress:
        made = prune_store(opened, output, index.search, k, seed, progress)
    after = made.manifest.entries
    typer.echo(f"pruned     {output}: {before:,} entries became {after:,}, {after / before:.1%} kept")
    _print_sizes(opened, made)


def _interrupted(output: Path) -> AbstractContextManager[None]:
    advice = "no new store was made; rerun the command to start over"
    return ends_with(advice, output, f"the store is made: {output}")


def _print_sizes(before: Datastore, after: Datastore) -> None:
    old, new = (in_bytes(sum(stored.bytes for stored in store.manifest.files())) for store in (before, after))
    typer.echo(f"on disk    {old} became {new}")
