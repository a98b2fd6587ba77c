"""`knnmt inspect`, `verify` and `export`: looking into a datastore."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.cli.change import Store
from knnmt.cli.memories import in_words
from knnmt.corpus.units import for_model
from knnmt.datastore.manifest import INDEXES
from knnmt.errors import DatastoreDamagedError, ModelError, SettingError
from knnmt.translator.spans import span_in_segment

if TYPE_CHECKING:
    from knnmt.datastore.store import Datastore, Entry
    from knnmt.engine.tokenizer import Tokenizer

_SAMPLES = 5


def inspect(
    store: Store,
    entry: Annotated[int | None, typer.Option(min=0, help="Show one entry.", show_default=False)] = None,
    search: Annotated[str | None, typer.Option(help="Show sentences that contain a text.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most sentences or origins to show.")] = 20,
) -> None:
    """Show what is in a datastore: counts, origins, entries. Each entry's token is marked in its sentence."""
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    tokenizer = _tokenizer_of(opened)
    if entry is not None:
        _show_entry(opened.entry(entry), tokenizer)
    elif search is not None:
        _show_sentences(opened, search, limit)
    else:
        _show_summary(opened, limit)
        step = max(1, opened.entries // _SAMPLES)
        for number in range(step // 2, opened.entries, step):
            typer.echo()
            _show_entry(opened.entry(number), tokenizer)


def verify(store: Store) -> None:
    """Check a datastore: every checksum, every invariant. Those of its index, too."""
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    problems = list(opened.verify())
    for problem in problems:
        typer.echo(problem)
    if problems:
        typer.echo(f"{len(problems)} problems: restore the files named, or build the store again")
        raise typer.Exit(1)
    files = opened.manifest.files()
    if (store / INDEXES).is_dir():
        from knnmt.index.saved import check_saved

        files = [*files, *check_saved(opened)]
    typer.echo(f"sound: {len(files)} files, {in_words(sum(stored.bytes for stored in files))}, every checksum right")


def export(
    store: Store,
    output: Annotated[Path, typer.Option("--output", "-o", help="A file whose name ends in .tmx or .tsv.")],
) -> None:
    """Write a datastore's units as a memory, as they were read."""
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    changed = opened.export(output)
    typer.echo(f"wrote {sum(1 for _ in opened.units()):,} pairs to {output}")
    if changed:
        typer.echo(f"in {changed:,} of them characters that the format cannot hold were replaced")


def _tokenizer_of(store: Datastore) -> Tokenizer | None:
    """The tokenizer that the store was built with, if its model can be found here."""
    from knnmt.engine.checkpoint import find_checkpoint, fingerprint
    from knnmt.engine.tokenizer import load_tokenizer

    try:
        directory = find_checkpoint(store.manifest.model_name)
        same = fingerprint(directory).tokenizer == store.manifest.tokenizer
        return load_tokenizer(directory) if same else None
    except (ModelError, OSError):
        return None


def _show_summary(store: Datastore, limit: int) -> None:
    manifest = store.manifest
    size = sum(stored.bytes for stored in manifest.files())
    typer.echo(f"store       {store.path}, generation {manifest.generation}")
    typer.echo(
        f"model       {manifest.model_name} ({manifest.model[:12]}), "
        f"{manifest.source_language} to {manifest.target_language}"
    )
    typer.echo(f"sentences   {manifest.live_sentences:,}")
    typer.echo(f"entries     {manifest.live_entries:,} of {manifest.dim} dimensions, {manifest.key_dtype}")
    if manifest.entries > manifest.live_entries:
        typer.echo(f"removed     {manifest.entries - manifest.live_entries:,} entries, until `knnmt compact`")
    if manifest.for_fast:
        states = sum(segment.arrays["source_states"].nbytes for segment in store.segments)
        tokens = sum(len(segment.arrays["source_tokens"]) for segment in store.segments)
        typer.echo(f"for fast    {tokens:,} source tokens, {in_words(states)} of their states, mapped")
    if manifest.transforms:
        typer.echo(f"transforms  {', '.join(manifest.transforms)}")
    typer.echo(f"on disk     {in_words(size)} in {len(manifest.files())} files")
    _show_index(store)
    if (gate := store.path / "gate.safetensors").is_file():
        typer.echo(f"gate        {gate.name}: knnmt translate -d {store.path} --gate ALPHA uses it")
    origins = Counter(pair.origin.partition("#")[0] for pair in store.units())
    for origin, count in origins.most_common(limit):
        typer.echo(f"origin      {origin}: {count:,} sentences")
    if len(origins) > limit:
        typer.echo(f"            and {len(origins) - limit:,} more")


def _show_index(store: Datastore) -> None:
    """What the store's index, its estimated settings and its profiles are, as they are recorded."""
    from knnmt.datastore.settings import read_settings
    from knnmt.retrieval.profiles import Profiles

    record = store.path / INDEXES / "index.json"
    if record.is_file():
        index = json.loads(record.read_text(encoding="utf-8"))
        measured = index["fidelity"]
        known = f", recall {measured['recall']:.3f}, variation {measured['variation']:.4f}" if measured else ""
        typer.echo(
            f"index       {index['kind']} of {index['entries']:,} entries, generation {index['generation']}{known}"
        )
    if settings := read_settings(store.path).get("calibration"):
        typer.echo(
            f"settings    k {settings['k']}, T {settings['temperature']:.3g}, λ at most {settings['fading_weight']:g}"
        )
    profiles = Profiles.of(store.path)
    with _damage_said():
        for name in profiles.names():
            with _damage_said():
                profile = profiles.profile(name)
                default = ", default" if name == profiles.default else ""
                chosen = f"by {profile.method} on {profile.pairs:,} pairs{default}"
                typer.echo(f"profile     {name}: {profile.config.signature()}, {chosen}")
    with _damage_said():
        profiles.default_name()


@contextmanager
def _damage_said() -> Iterator[None]:
    """Let what comes after something damaged be shown all the same."""
    try:
        yield
    except DatastoreDamagedError as error:
        typer.echo(f"damaged     {error}")


def _show_entry(entry: Entry, tokenizer: Tokenizer | None) -> None:
    removed = ", removed" if entry.removed else ""
    typer.echo(
        f"entry {entry.id}: token {entry.position + 1} of {len(entry.target_tokens)}, from {entry.pair.origin}{removed}"
    )
    typer.echo(f"  source  {entry.pair.source}")
    typer.echo(f"  target  {_marked(entry, tokenizer)}")


def _marked(entry: Entry, tokenizer: Tokenizer | None) -> str:
    """The target with the entry's token in angle quotes."""
    if tokenizer is None:
        return f"{entry.pair.target}  (value {entry.value}; the model's tokenizer is not here to show it)"
    target = entry.pair.target
    start, end = span_in_segment(tokenizer, entry.target_tokens.tolist(), entry.position, target)
    return f"{target[:start]}«{target[start:end] or 'end'}»{target[end:]}"


def _show_sentences(store: Datastore, text: str, limit: int) -> None:
    if not text:
        raise SettingError("--search needs a text to look for")
    found = (
        pair
        for pair in store.units()
        if any(text in side for each in (pair, for_model(pair)) for side in (each.source, each.target))
    )
    for pair in islice(found, limit):
        typer.echo(f"{pair.origin}\n  source  {pair.source}\n  target  {pair.target}")
    rest = sum(1 for _ in found)
    if rest:
        typer.echo(f"and {rest:,} more")
