"""`knnmt inspect`, `verify` and `export`: commands that read a datastore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knnmt.cli.advice import command
from knnmt.cli.change import StoreArgument
from knnmt.config import Fading, RetrievalConfig
from knnmt.corpus.report import counted
from knnmt.corpus.units import for_model
from knnmt.corpus.visible import visible
from knnmt.datastore.manifest import INDEXES, in_bytes
from knnmt.datastore.settings import SETTINGS, read_settings
from knnmt.errors import DatastoreDamagedError, MissingDependencyError, ModelError, SettingError
from knnmt.extensions import NETWORKS, registered
from knnmt.records import as_record, parse_json
from knnmt.regular_files import read_regular
from knnmt.retrieval.settings import TRAINED_COMBINERS
from knnmt.translator.spans import span_in_segment

if TYPE_CHECKING:
    from knnmt.datastore.reading import Entry
    from knnmt.datastore.store import Datastore
    from knnmt.engine.tokenizer import Tokenizer

_SAMPLES = 5
_SHARDS = "shards.json"  # as in `knnmt.distributed.shard_set`, which imports PyTorch
GATE = "gate.safetensors"  # as in `knnmt.retrieval.gate`, which imports PyTorch


def _methods() -> list[str]:
    return [*TRAINED_COMBINERS, *registered(NETWORKS)]


def _combiner(method: str) -> str:
    """The file of a trained combiner, as in `knnmt.retrieval.trained`."""
    return f"{method}.safetensors"


@dataclass(frozen=True, slots=True)
class _Fidelity:
    """The displayed part of an index's fidelity, if it was measured."""

    recall: float = 1.0
    variation: float = 0.0


@dataclass(frozen=True, slots=True)
class _Index:
    """The displayed part of an index's record."""

    kind: str
    entries: int
    generation: int
    fidelity: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Estimated:
    """The displayed part of estimated settings."""

    k: int
    temperature: float
    fading_weight: float
    fading: Fading
    segments: int

    @property
    def in_words(self) -> str:
        settings = (self.k, self.fading_weight, self.temperature, self.fading)
        return RetrievalConfig(*settings, segments=self.segments).in_words


def inspect(
    store: StoreArgument,
    entry: Annotated[int | None, typer.Option(min=0, help="Show one entry.", show_default=False)] = None,
    search: Annotated[str | None, typer.Option(help="Show sentences that contain a text.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many sentences or origins.")] = 20,
) -> None:
    """Show the counts, origins and entries of a datastore. Each entry's token is marked in its sentence.

    With --search, the exit status is 1 if no sentence contains the text.
    """
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    tokenizer = _tokenizer_of(opened)
    if entry is not None:
        _show_entry(opened.entry(entry), tokenizer)
    elif search is not None:
        _show_sentences(opened, search, limit)
    else:
        _show_summary(opened, limit)
        _show_shards(store)
        step = max(1, opened.entries // _SAMPLES)
        for number in range(step // 2, opened.entries, step):
            typer.echo()
            _show_entry(opened.entry(number), tokenizer)


def _show_shards(path: Path) -> None:
    """Show where the shards of a set are."""
    if not (path / _SHARDS).exists():
        return
    from knnmt.distributed.shard_set import ShardSet

    if (found := ShardSet.read(path)) is not None:
        for each in found.shards:
            typer.echo(f"shard       {each.path if each.node is None else f'{each.node}:{each.path}'}")


def verify(store: StoreArgument) -> None:
    """Check every file of a datastore. Index, settings, profiles and gate are checked as well."""
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    files = opened.manifest.files()
    problems = list(opened.verify())
    if any((store / name).exists() for name in (INDEXES, SETTINGS, GATE, *map(_combiner, _methods()))):
        from knnmt.adapting.verification import problems_beside

        problems += problems_beside(opened, files)
    for problem in problems:
        typer.echo(problem)
    if problems:
        typer.echo(f"{len(problems)} problems: restore the named files, or follow the messages to make them again")
        raise typer.Exit(1)
    typer.echo(
        f"sound: {counted(len(files), 'file')}, {in_bytes(sum(stored.bytes for stored in files))}, all checksums "
        f"correct"
    )


def export(
    store: StoreArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="A file whose name ends in .tmx or .tsv.")],
) -> None:
    """Write a datastore's units as a memory, as they were read."""
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    changed = opened.export(output)
    typer.echo(f"wrote {counted(sum(1 for _ in opened.units()), 'pair')} to {output}")
    if changed:
        typer.echo(f"in {changed:,} of them, characters that the format cannot hold were replaced")


def _tokenizer_of(store: Datastore) -> Tokenizer | None:
    """The tokenizer that the store was built with, if its model can be found here."""
    from knnmt.engine.checkpoint import NamedByStore, find_checkpoint, tokenizer_digest
    from knnmt.engine.tokenizer import load_tokenizer

    try:
        directory = find_checkpoint(NamedByStore(store.manifest.model_name))
        same = tokenizer_digest(directory) == store.manifest.tokenizer
        return load_tokenizer(directory) if same else None
    except (ModelError, MissingDependencyError, OSError):
        return None


def _show_summary(store: Datastore, limit: int) -> None:
    manifest = store.manifest
    size = sum(stored.bytes for stored in manifest.files())
    typer.echo(f"store       {store.path}, generation {manifest.generation}")
    typer.echo(
        f"model       {visible(manifest.model_name)} ({manifest.model[:12]}), "
        f"{manifest.source_language} to {manifest.target_language}"
    )
    typer.echo(f"sentences   {manifest.live_sentences:,}")
    typer.echo(f"entries     {manifest.live_entries:,} of {manifest.dim} dimensions, {manifest.key_dtype}")
    if manifest.entries > manifest.live_entries:
        typer.echo(
            f"removed     {manifest.entries - manifest.live_entries:,} entries, until {command('compact', store.path)}"
        )
    if manifest.for_fast:
        states = sum(segment.arrays["source_states"].nbytes for segment in store.segments)
        tokens = sum(len(segment.arrays["source_tokens"]) for segment in store.segments)
        typer.echo(f"for fast    {tokens:,} source tokens, {in_bytes(states)} of their states, mapped")
    if manifest.transforms:
        typer.echo(f"transforms  {', '.join(manifest.transforms)}")
    typer.echo(f"on disk     {in_bytes(size)} in {counted(len(manifest.files()), 'file')}")
    _show_index(store)
    if (gate := store.path / GATE).is_file():
        typer.echo(f"gate        {gate.name}: {command('translate', '-d', store.path, '--gate', 0.5)} uses it")
    for method in _methods():
        if (combiner := store.path / _combiner(method)).is_file():
            uses = command("translate", "-d", store.path, "--combiner", method)
            typer.echo(f"combiner    {combiner.name}: {uses} uses it")
    origins = Counter(pair.origin.partition("#")[0] for pair in store.units())
    for origin, count in origins.most_common(limit):
        typer.echo(f"origin      {visible(origin)}: {counted(count, 'sentence')}")
    if len(origins) > limit:
        typer.echo(f"            and {len(origins) - limit:,} more")


def _show_index(store: Datastore) -> None:
    """Show the store's index, its estimated settings and its profiles, as recorded."""
    from knnmt.retrieval.profiles import ESTIMATED, Profiles

    record = store.path / INDEXES / "index.json"
    with _damage_said(record), suppress(FileNotFoundError):
        index = as_record(_Index, parse_json(read_regular(record)), others=True)
        measured = as_record(_Fidelity, index.fidelity, others=True)
        known = f", recall {measured.recall:.3f}, variation {measured.variation:.4f}" if index.fidelity else ""
        typer.echo(f"index       {index.kind} of {index.entries:,} entries, generation {index.generation}{known}")
    place = store.path / SETTINGS
    with _damage_said(place):
        profiles, used = Profiles.of(store.path), None
        with _damage_said(place):
            used = profiles.default_name()
        if (found := read_settings(store.path).get("calibration_by_segment")) is not None:
            with _damage_said(place):
                estimated = as_record(_Estimated, found, others=True).in_words
                stays = f"estimated   {estimated}; --profile {ESTIMATED} uses them"
                typer.echo(stays if used else f"settings    {estimated}, estimated from the store")
        if used:
            with _damage_said(place):
                typer.echo(f"settings    {profiles.profile(used).config.in_words}, profile {used}")
        for name in profiles.names():
            with _damage_said(place):
                profile = profiles.profile(name)
                default = ", default" if name == profiles.default else ""
                chosen = f"by {profile.method} on {profile.pairs:,} pairs{default}"
                typer.echo(f"profile     {name}: {profile.config.signature()}, {chosen}")


@contextmanager
def _damage_said(place: Path) -> Iterator[None]:
    """Report damage, and go on with what comes after it."""
    try:
        yield
    except DatastoreDamagedError as error:
        typer.echo(f"damaged     {error}")
    except (OSError, ValueError) as error:
        typer.echo(f"damaged     {place}: {error}; `knnmt verify` tells what to do")


def _show_entry(entry: Entry, tokenizer: Tokenizer | None) -> None:
    origin = visible(entry.pair.origin) + (", removed" if entry.removed else "")
    typer.echo(f"entry {entry.id}: token {entry.position + 1} of {len(entry.target_tokens)}, from {origin}")
    typer.echo(f"  source  {visible(entry.pair.source)}")
    typer.echo(f"  target  {_marked(entry, tokenizer)}")


def _marked(entry: Entry, tokenizer: Tokenizer | None) -> str:
    """The target with the entry's token in angle quotes."""
    if tokenizer is None:
        return (
            f"{visible(entry.pair.target)}  (value {entry.value}; the model's tokenizer is missing, so the "
            f"token cannot be shown)"
        )
    target = entry.pair.target
    start, end = span_in_segment(tokenizer, entry.target_tokens.tolist(), entry.position, target)
    return f"{visible(target[:start])}«{visible(target[start:end]) or 'end'}»{visible(target[end:])}"


def _show_sentences(store: Datastore, text: str, limit: int) -> None:
    if not text:
        raise SettingError("--search needs a text")
    found = (
        pair
        for pair in store.units()
        if any(text in side for each in (pair, for_model(pair)) for side in (each.source, each.target))
    )
    shown = False
    for pair in islice(found, limit):
        typer.echo(f"{visible(pair.origin)}\n  source  {visible(pair.source)}\n  target  {visible(pair.target)}")
        shown = True
    rest = sum(1 for _ in found)
    if rest:
        typer.echo(f"and {rest:,} more")
    if not shown:
        folded = text.casefold()
        other = sum(1 for pair in store.pairs() if folded in f"{pair.source}\n{pair.target}".casefold())
        hint = f"; {other:,} would match if case were ignored" if other else ""
        typer.echo(f"no sentence of {store.path} contains {text!r}{hint}", err=True)
        raise typer.Exit(1)
