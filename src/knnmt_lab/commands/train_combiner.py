"""`knnmt train-combiner`: learn from development text how much each neighbour weighs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt import SegmentPair, divide, progress_bars, read_development
from knnmt.errors import InputError
from knnmt_lab.commands.options import Device, Threads, ends_with

if TYPE_CHECKING:
    from knnmt_lab.combiner_rows import CombinerRows
    from knnmt_lab.combiner_training import CombinerTraining, Judged

_TRAINING = 0.8  # the rest of the text for learning decides when to stop
_NEIGHBOURS = 32  # the k that fading λ may have
_NAMES = {"alone": "the model alone", "fading": "fading λ", "trained": "the combiner"}


def train_combiner(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The datastore's directory.", show_default=False)],
    development: Annotated[
        Path,
        typer.Option(
            "--dev", help="Pairs like the text to translate, in any memory format. The store must not hold them."
        ),
    ],
    method: Annotated[
        str,
        typer.Option(
            help="robust, robust-fading, a method that a package registers, or package.module:Name.",
            metavar="METHOD",
            show_default=True,
        ),
    ] = "robust",
    updates: Annotated[
        int, typer.Option(min=1, help="At most this many updates; training ends when validation no longer improves.")
    ] = 5000,
    seed: Annotated[int, typer.Option(help="The same seed trains the same combiner.")] = 0,
    k: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Neighbours per step.  [default: the method's: 8 for robust, 32 for robust-fading]",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Take T and the kind of search from this profile.  [default: the store's]", show_default=False
        ),
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=1, help="Learn from at most this many pairs of DEV, and report at most this many.")
    ] = 1000,
    all_dev: Annotated[
        bool,
        typer.Option("--all-dev", help="Learn from all of DEV and report validation, if you have a separate test set."),
    ] = False,
    keep_known: Annotated[
        bool, typer.Option("--keep-known", help="Also use pairs whose source the store holds.")
    ] = False,
    save: Annotated[bool, typer.Option(help="Save the combiner in place of an earlier one of its method.")] = True,
    exact: Annotated[bool, typer.Option("--exact", help="Search every key, even if the store has an index.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model that the store was built with, if it has moved.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Train a combiner, a network that weighs neighbours. It also predicts λ.

    Method robust is that of Robust kNN-MT; robust-fading has a λ that also fades, which spares text of other kinds.
    Packages register further methods, such as those of Adaptive kNN-MT (meta-k) and Kernel-Smoothed kNN-MT
    (kernel-smoothed) in the extra lab. The command searches for the neighbours of DEV
    once and keeps them, so training takes seconds. `knnmt translate -d STORE --combiner robust` then uses the combiner.
    It is saved in the store's directory, and works with the k, T and search that it was trained for.

    A hash of the sources divides DEV. One half trains the combiner (a fifth of it decides when to stop). The other half
    is reported, as losses in nats per token, beside those of a fading λ that was tuned on the same pairs. A combiner is
    useful if it loses less, and if it does no harm to other kinds of text, which it never saw.

    Examples:

        knnmt train-combiner projekt.store --dev probe.tsv

        knnmt train-combiner projekt.store --dev probe.tsv --method robust-fading --k 16 --seed 1

        knnmt translate -d projekt.store --combiner robust handbuch.de.txt
    """
    from knnmt import Datastore

    opened = Datastore.open(store)
    text = read_development(opened, development, pairs, all_dev, keep_known, typer.echo)
    teaching, validating = divide(text.tuning, _TRAINING)
    if not teaching or not validating:
        raise InputError(f"{development}: {len(text.tuning)} pairs are too few to learn from; give more pairs")
    from dataclasses import replace

    from knnmt import RetrievalSettings, TrainedCombiner, Translator
    from knnmt_lab.combiner_rows import collect_rows
    from knnmt_lab.combiner_training import CombinerConfig, best_fading
    from knnmt_lab.combiner_training import train_combiner as train

    config = CombinerConfig(method, updates, seed=seed)
    with ends_with("the store keeps the combiner it had, if any"):
        translator = Translator(model, datastore=store, exact=exact, device=device, threads=threads)
        found = translator.memories.retrieval(store, RetrievalSettings(profile=profile))
        retrieval = replace(found.config, k=k or config.usual_k, cache=None, gate=None)

        def rows_of(some: Sequence[SegmentPair]) -> CombinerRows:
            with progress_bars("forcing", "pairs passed") as progress:
                return collect_rows(
                    translator.engine,
                    found.store,
                    some,
                    max(_NEIGHBOURS, retrieval.k),
                    retrieval.segments,
                    retrieval.use_counts,
                    lambda done, _rows: progress(done, 2 * len(some)),
                )

        parts = [rows_of(some) for some in (teaching, validating, *([] if all_dev else [text.reported]))]
        training, validation, reported = parts[0], parts[1], parts[-1]
        how = "the whole store" if retrieval.segments is None else f"{retrieval.segments} segments of each source"
        typer.echo(
            f"positions   {len(training):,} for training, {len(validation):,} for validation, {len(reported):,} "
            f"reported; k {retrieval.k} of {how}, T {retrieval.temperature:.4g}\n\nupdates  validation"
        )
        fading = best_fading(training, retrieval.segments)
        trained = train(found.store, training, validation, retrieval, fading, config, _say)
        _report(trained, reported)
    if save:
        found.store.datastore.require_unchanged()
        trained.combiner.write(opened.path)
        options = "" if model is None else f"-m {shlex.quote(model)} "
        use = f"knnmt translate {options}-d {shlex.quote(str(store))} --combiner {shlex.quote(method)}"
        typer.echo(f"saved       {TrainedCombiner.path(store, method)}; {use} uses it")


def _say(judged: Judged) -> None:
    if judged.updates % 500 == 0:
        typer.echo(f"{judged.updates:>7}  {judged.validation:10.4f}")


def _report(trained: CombinerTraining, rows: CombinerRows) -> None:
    """Losses of the reported text."""
    losses = trained.losses(rows)
    typer.echo(
        f"chosen      after {trained.combiner.record.updates} updates\n\n{'reported':<36}{'loss':>8}  perplexity"
    )
    for name, loss in losses.items():
        typer.echo(f"{_NAMES[name]:<36}{loss:8.4f} {math.exp(loss):11.3f}")
    if losses["trained"] > losses["fading"]:
        typer.echo("note        this combiner is worse than fading λ, the default")
