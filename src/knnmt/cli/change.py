"""`knnmt add`, `replace`, `remove` and `compact`: commands that change a datastore."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knnmt.cli.advice import command
from knnmt.cli.interrupt import ends_with
from knnmt.cli.memories import MemoriesIn, reads_memories
from knnmt.cli.options import Device, Threads
from knnmt.cli.progress import counter, progress_bars
from knnmt.cli.start import load_quickly
from knnmt.corpus.report import counted
from knnmt.corpus.sameness import plain
from knnmt.corpus.visible import visible
from knnmt.datastore.manifest import INDEXES, MANIFEST, in_bytes, sizes
from knnmt.datastore.origins import close_origins, file_of
from knnmt.documents.memory_reading import MemoryReading
from knnmt.engine.checkpoint import NamedByStore
from knnmt.errors import InputError, KnnmtError, SettingError

if TYPE_CHECKING:
    from knnmt.datastore.store import Datastore
    from knnmt.engine.base import Engine

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="The datastore's directory.", show_default=False)]


ModelOfChanges = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="The model the store was built with.  [default: by its name]", show_default=False
    ),
]
_UNCHANGED = "the store is unchanged"
_MAX_SHOWN = 5


@reads_memories
def add(
    store: StoreArgument,
    memories_in: MemoriesIn,
    model: ModelOfChanges = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Add translation memories to a datastore. Readers see the whole addition or nothing of it.

    Example:

        knnmt add projekt.store korrekturen.tsv
    """
    opened, reading, engine = _open_to_change(store, memories_in, model, device, threads)
    unchanged = ends_with(_UNCHANGED, store / MANIFEST, "everything was added to the store")
    with unchanged, counter("adding", reading.count, "pairs") as progress:
        change = opened.add(reading.pairs(), engine, progress=progress)
    for line in reading.summary(change.dropped):
        typer.echo(line)
    typer.echo(f"added      {sizes(change.added_sentences, change.added_entries)}")
    _say_size(opened)
    _follow(opened)


@reads_memories
def replace(
    store: StoreArgument,
    memories_in: MemoriesIn,
    known_only: Annotated[
        bool, typer.Option("--known-only", help="Skip pairs whose source the store does not hold.")
    ] = False,
    model: ModelOfChanges = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Replace sentences of a datastore with corrections. A correction has the same source.

    The command adds every pair of MEMORY and removes the sentences of the store that have the same source and another
    target, in one step. It also adds pairs whose source the store does not hold, and lists the first of them.

    Example:

        knnmt replace projekt.store korrekturen.tsv
    """
    opened, reading, engine = _open_to_change(store, memories_in, model, device, threads)
    from knnmt.datastore.correcting import correct

    unchanged = ends_with(_UNCHANGED, store / MANIFEST, "all corrections are in the store")
    with unchanged, counter("replacing", reading.count, "pairs") as progress:
        done = correct(opened, reading.pairs(), engine, not known_only, progress)
    change = done.change
    for line in reading.summary(change.dropped):
        typer.echo(line)
    typer.echo(f"removed    {sizes(change.removed_sentences, change.removed_entries)}")
    typer.echo(f"put in     {sizes(change.added_sentences, change.added_entries)}")
    if done.unchanged:
        typer.echo(f"unchanged  {counted(done.unchanged, 'pair')} that the store already held")
    if done.new:
        typer.echo(
            f"new        {counted(len(done.new), 'pair')} with sources that were not in the store"
            f"{', left out' * known_only}:"
        )
        for pair in done.new[:_MAX_SHOWN]:
            typer.echo(f"           {visible(pair.origin)}  {visible(pair.source)}")
    _say_size(opened)
    _say_what_stays(opened, change.removed_sentences)
    _follow(opened)


def remove(
    store: StoreArgument,
    origin: Annotated[
        str | None,
        typer.Option(
            help="A file, by path or name (memory.tmx), for all its units; or an origin (memory.tmx#tu7) for one "
            "unit. * stands for any characters.",
            show_default=False,
        ),
    ] = None,
    source_text: Annotated[str | None, typer.Option(help="The complete source text.", show_default=False)] = None,
    match: Annotated[
        str | None, typer.Option(help="A regular expression found in source or target.", show_default=False)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, even if more than half of the store would be removed.")
    ] = False,
) -> None:
    """Remove sentences from a datastore. They must match all given conditions.

    The command asks before it removes more than half of the store. Without a terminal it fails with an error instead,
    unless --yes is given. The removed text stays in the store's files until `knnmt compact`.

    Examples:

        knnmt remove projekt.store --origin projekt.tmx#tu17

        knnmt remove projekt.store --origin korrekturen.tsv
    """
    from knnmt.datastore.store import Datastore, matching

    chosen = matching(origin, source_text, match)
    opened = Datastore.open(store)
    found = list(opened.chosen(chosen))
    if not found:
        raise InputError(_nothing_fits(opened, origin, source_text))
    if dry_run:
        for pair in found:
            typer.echo("\t".join(map(visible, (pair.origin, pair.source, pair.target))))
        typer.echo(f"would remove {counted(len(found), 'sentence')}")
        return
    if not yes and 2 * len(found) > opened.manifest.live_sentences:
        _ask(f"{len(found):,} of {opened.manifest.live_sentences:,} sentences", store)
    change = opened.remove(chosen)
    typer.echo(f"removed    {sizes(change.removed_sentences, change.removed_entries)}")
    files = Counter(file_of(pair.origin) for pair in found)
    for file, count in files.most_common(_MAX_SHOWN):
        typer.echo(f"           {count:,} of {visible(file)}")
    if len(files) > _MAX_SHOWN:
        typer.echo(f"           and of {len(files) - _MAX_SHOWN:,} more files")
    _say_size(opened)
    _say_what_stays(opened, change.removed_sentences)


def compact(store: StoreArgument) -> None:
    """Rewrite a datastore without the removed sentences. Small additions are joined.

    Programs that have the store open are not disturbed. Entry numbers change.
    """
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    before = sum(stored.bytes for stored in opened.manifest.files())
    opened.compact()
    after = sum(stored.bytes for stored in opened.manifest.files())
    typer.echo(
        f"{in_bytes(before)} became {in_bytes(after)}: "
        f"{sizes(opened.manifest.sentences, opened.manifest.entries)}, {counted(len(opened.segments), 'segment')}"
    )
    _follow(opened)


def _open_to_change(
    path: Path, memories_in: MemoriesIn, model: str | None, device: str | None, threads: int | None
) -> tuple[Datastore, MemoryReading, Engine[Any]]:
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(path)
    manifest = opened.manifest
    languages = (manifest.source_language, manifest.target_language)
    reading = memories_in(*languages)
    named = model or NamedByStore(manifest.model_name)
    engine = load_quickly(named, device, threads, manifest.compute_dtype, *languages)
    return opened, reading, engine


def _nothing_fits(store: Datastore, origin: str | None, source_text: str | None) -> str:
    """The error for a selection that matches nothing, with similar origins."""
    close: list[str] = []
    if origin is not None:
        close = close_origins(origin, (pair.origin for pair in store.pairs()))
    elif source_text is not None:
        wanted = plain(source_text).casefold()
        sources = dict.fromkeys(pair.source for pair in store.pairs() if plain(pair.source).casefold() == wanted)
        close = [repr(source) for source in sources][:_MAX_SHOWN]
    meant = f" Close to it: {', '.join(close)}." if close else ""
    inspect = command("inspect", store.path)
    return f"{store.path}: no sentence matches; nothing was removed.{meant} {inspect} lists its files"


def _ask(what: str, path: Path) -> None:
    """Go on only if the user agrees."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SettingError(
            f"{path}: would remove {what}, more than half of the store: add --yes to do so, or --dry-run to see them"
        )
    if not typer.confirm(f"Remove {what} of {path}?", err=True):
        typer.echo(f"knnmt: nothing was removed; {_UNCHANGED}", err=True)
        raise typer.Exit(1)


def _say_size(store: Datastore) -> None:
    typer.echo(f"store      {sizes(store.manifest.live_sentences, store.manifest.live_entries)}")


def _say_what_stays(store: Datastore, removed: int) -> None:
    if removed:
        typer.echo(f"on disk    removed text stays until {command('compact', store.path)}")


def _follow(store: Datastore) -> None:
    """Update the store's index, if it has one and it would otherwise be noticeably slower."""
    if not (store.path / INDEXES).is_dir():
        return
    from knnmt.index.saved import lags, update_index

    index = command("index", store.path)
    try:
        if lags(store):
            interrupted = ends_with(f"the store is changed; {index} updates its index")
            with interrupted, progress_bars("indexing", "entries") as progress:
                saved = update_index(store, progress)
            if saved is not None:
                typer.echo(f"index      {saved.kind}, {saved.entries:,} entries; {index} measures it again")
    except KnnmtError as error:
        typer.echo(f"knnmt: the store is changed; its index was not updated: {error}", err=True)
