"""`knnmt add`, `remove` and `compact`: changing a datastore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.cli.interrupt import ends_with
from knnmt.cli.memories import MemoriesIn, in_words, reads_memories
from knnmt.cli.options import Device, Threads
from knnmt.cli.progress import counter, passing_bars
from knnmt.cli.start import load_quickly
from knnmt.datastore.manifest import INDEXES
from knnmt.errors import KnnmtError

if TYPE_CHECKING:
    from knnmt.datastore.store import Datastore

Store = Annotated[Path, typer.Argument(metavar="STORE", help="The datastore's directory.", show_default=False)]


@reads_memories
def add(
    store: Store,
    memories_in: MemoriesIn,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="The model the store was built with.  [default: by its name]", show_default=False
        ),
    ] = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Add translation memories to a datastore. Readers see all that is added, or nothing.

    Example:

        knnmt add projekt.store korrekturen.tsv
    """
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    manifest = opened.manifest
    languages = (manifest.source_language, manifest.target_language)
    reading = memories_in(*languages)
    engine = load_quickly(model or manifest.model_name, device, threads, manifest.compute_dtype, *languages)
    unchanged = ends_with("the store is as it was")
    with unchanged, counter("adding", reading.count, "pairs") as progress:
        change = opened.add(reading.pairs(), engine, progress=progress)
    for line in reading.summary(change.dropped):
        typer.echo(line)
    typer.echo(f"added      {change.added_sentences:,} sentences, {change.added_entries:,} entries")
    typer.echo(f"store      {opened.manifest.live_sentences:,} sentences, {opened.manifest.live_entries:,} entries")
    _follow(opened)


def remove(
    store: Store,
    origin: Annotated[
        str | None,
        typer.Option(help="An origin whole (memory.tmx#tu7), or a file's name: all its units.", show_default=False),
    ] = None,
    source_text: Annotated[str | None, typer.Option(help="The source text whole.", show_default=False)] = None,
    match: Annotated[
        str | None, typer.Option(help="A regular expression found in source or target.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
) -> None:
    """Remove sentences from a datastore. Given several conditions, those that fit all of them.

    Example:

        knnmt remove projekt.store --origin projekt.tmx#tu17
    """
    from knnmt.datastore.store import Datastore, matching

    chosen = matching(origin, source_text, match)
    opened = Datastore.open(store)
    if dry_run:
        found = [pair for pair in opened.units() if chosen(pair)]
        for pair in found:
            typer.echo(f"{pair.origin}\t{pair.source}\t{pair.target}")
        typer.echo(f"would remove {len(found):,} sentences")
        return
    change = opened.remove(chosen)
    hint = "" if change.removed_sentences else f"; knnmt inspect {store} --search TEXT shows origins as they are kept"
    typer.echo(f"removed    {change.removed_sentences:,} sentences, {change.removed_entries:,} entries{hint}")
    typer.echo(f"store      {opened.manifest.live_sentences:,} sentences, {opened.manifest.live_entries:,} entries")


def compact(store: Store) -> None:
    """Write a datastore anew, without what was removed. Small additions are joined.

    Readers that have the store open are not disturbed. Entry numbers change.
    """
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    before = sum(stored.bytes for stored in opened.manifest.files())
    opened.compact()
    after = sum(stored.bytes for stored in opened.manifest.files())
    typer.echo(
        f"{in_words(before)} became {in_words(after)}: {opened.manifest.sentences:,} sentences, "
        f"{opened.manifest.entries:,} entries, {len(opened.segments)} segments"
    )
    _follow(opened)


def _follow(store: Datastore) -> None:
    """Bring the store's index up to date, where it has one and would be felt to lag."""
    if not (store.path / INDEXES).is_dir():
        return
    from knnmt.index.saved import lags, update_index

    try:
        if lags(store):
            interrupted = ends_with("the store is changed; `knnmt index` brings its index up to date")
            with interrupted, passing_bars("indexing", "entries") as progress:
                saved = update_index(store, progress)
            if saved is not None:
                typer.echo(f"index      {saved.kind}, {saved.entries:,} entries; `knnmt index` measures it again")
    except KnnmtError as error:
        typer.echo(f"knnmt: the store is changed; its index was not brought up to date: {error}", err=True)
