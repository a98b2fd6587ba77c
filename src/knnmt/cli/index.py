"""`knnmt index`: make search of a whole store fast, and show what that costs; and the settings of new stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knnmt.cli.change import StoreArgument
from knnmt.cli.interrupt import ends_with
from knnmt.cli.options import ModelOfStore, Threads
from knnmt.cli.progress import progress_bars
from knnmt.cli.start import load_quickly
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.splitting import halves, spread
from knnmt.datastore.manifest import INDEXES
from knnmt.documents.read_memories import read_memories
from knnmt.engine.checkpoint import NamedByStore

if TYPE_CHECKING:
    from knnmt.calibration.index_choice import Candidate, Target
    from knnmt.datastore.store import Datastore
    from knnmt.engine.base import Engine

_DEVELOPMENT_PAIRS = 500


def index(
    store: StoreArgument,
    recall: Annotated[
        float, typer.Option(help="The share of the true nearest entries that the index must find.")
    ] = 0.95,
    variation: Annotated[
        float,
        typer.Option(
            help="At most this difference between the memory's distribution and that of exact search (0 to 1)."
        ),
    ] = 0.02,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="Try this kind; can be repeated: exact, pq4, rabitq, ivfpq, or package.module:NAME for your own. all "
            "tries every kind of knnmt. A single kind is taken even if it misses the limits.",
            show_default=False,
        ),
    ] = None,
    development: Annotated[
        Path | None,
        typer.Option("--dev", help="Measure with these pairs (the half that `tune` uses) instead of the store's own."),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(min=1, help="At most this many MiB for an index.  [default: half of the machine's memory]"),
    ] = None,
    model: ModelOfStore = None,
    threads: Threads = None,
) -> None:
    """Choose and build an index for search of all entries. Also estimates the store's settings.

    By default, a store is searched by segment, which needs no index.

    The command compares candidates with exact search over the full keys. Recall is the part of the nearest entries that
    are found. Variation is the mean total variation between the memory's distributions. ms is the time for 5, 40 and 80
    queries at once. pq4 is saved with the store if it keeps both limits and is faster than exact search; otherwise
    rabitq is tried as well. Of kinds that are named, the fastest that keeps the limits is saved.

    Examples:

        knnmt index projekt.store

        knnmt index projekt.store --variation 0.01 --dev probe.tsv

        knnmt index projekt.store --kind ivfpq      (the paper's)
    """
    from knnmt.datastore.store import Datastore

    opened = Datastore.open(store)
    manifest = opened.manifest
    languages = (manifest.source_language, manifest.target_language)
    engine = load_quickly(model or NamedByStore(manifest.model_name), "cpu", threads, None, *languages)
    opened.require_engine(engine)
    from knnmt.calibration.index_choice import Target
    from knnmt.index.entries import Entries
    from knnmt.index.faiss_index import require_readable
    from knnmt.index.kinds import BUILT_IN, EXACT, KINDS, typed_kind

    kinds = [EXACT, *BUILT_IN] if kind == ["all"] else kind and [typed_kind(each) for each in kind]
    for name in kinds or []:
        if name not in (EXACT, *BUILT_IN):
            require_readable(KINDS[name], Entries(opened))
    target = Target(recall, variation, None if memory is None else memory << 20)
    with ends_with("the store keeps the index it had", store / INDEXES / "index.json", "the store has its new index"):
        prepare_store(opened, engine, target, kinds, development, first_good=kinds is None, table=typer.echo)


def prepare_store(
    store: Datastore,
    engine: Engine[Any],
    target: Target,
    kinds: list[str] | None,
    development: Path | None,
    first_good: bool,
    table: Callable[[str], None],
) -> None:
    """Estimate settings, choose an index, and report both."""
    from knnmt.calibration.fidelity import BATCHES
    from knnmt.calibration.index_choice import prepare

    pairs = []
    if development is not None:
        manifest = store.manifest
        reading = ReadingConfig(source_language=manifest.source_language, target_language=manifest.target_language)
        # From the half for tuning: the other is for reports.
        tuning, _ = halves(read_memories(development, reading))
        pairs = spread(tuning, _DEVELOPMENT_PAIRS)
    heading = " ".join(f"{f'ms/{size}':>8}" for size in BATCHES)
    table(f"{'index':<42} {'recall':>7} {'variation':>10} {heading} {'B/entry':>8}")

    def line(candidate: Candidate) -> None:
        times = " ".join(f"{candidate.milliseconds[size]:8.2f}" for size in BATCHES)
        measured = f"{candidate.fidelity.recall:7.3f} {candidate.fidelity.variation:10.4f}"
        table(f"{candidate.name:<42} {measured} {times} {candidate.bytes_per_entry:8,}")

    choice = prepare(store, engine, target, kinds, pairs, first_good, line, progress_bars)
    typer.echo(f"index      {choice.chosen.name}: {choice.reason}")
    show_settings(store.path, by_segment=False)


def show_settings(store: Path, by_segment: bool) -> None:
    """Print the settings that were estimated for a store, if any."""
    from knnmt.calibration.estimates import Calibration

    if (estimated := Calibration.of(store, by_segment)) is not None:
        typer.echo(f"settings   {estimated.in_words}")
