"""`knnmt adapt`: one command that makes a store from translation memories and reports what it gains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from knnmt.adapting.tuning_config import SAMPLE
from knnmt.cli.advice import command
from knnmt.cli.interrupt import ends_with
from knnmt.cli.languages import ModelOption, SourceLanguage, TargetLanguage, model_of_memories
from knnmt.cli.memories import ForFast, KeepAccelerators, MemoriesIn, reads_memories
from knnmt.cli.options import Device, GpusPerWorker, Ray, Storage, Threads, Workers, cluster_of
from knnmt.cli.progress import progress_bars
from knnmt.cli.start import heavy_imports
from knnmt.corpus.accelerators import Accelerators
from knnmt.engine.shipped import shipped_models


@reads_memories
def adapt(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the store goes: a directory that does not exist yet.")
    ],
    memories_in: MemoriesIn,
    development: Annotated[
        Path | None,
        typer.Option(
            "--dev",
            help="Tune and report on the pairs of this file (any memory format). Without it, some pairs of the "
            "memories are held out. These pairs do not become part of the store.",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option(min=0, help="At most this many pairs are translated for BLEU and chrF; 0 translates none.")
    ] = SAMPLE,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print details of reading, tuning and measuring.")
    ] = False,
    model: ModelOption = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    for_fast: ForFast = False,
    keep_accelerators: KeepAccelerators = False,
    device: Device = None,
    threads: Threads = None,
    ray: Ray = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    storage: Storage = None,
) -> None:
    """Make a store from memories, tune it, and report its gain. Most people need only this command.

    The command holds out a small part of the memories (about 1,000 pairs, at most a tenth): whole stretches of text if
    the memories are in the order of their documents, otherwise single sentences. It builds a store from the rest, which
    can be used from then on. One half of the held-out part tunes the store. The other half shows what the store gains
    over the model alone, in BLEU, on text that the store does not hold. At the end both halves are added.

    If interrupted, rerun the command; it resumes. If the store should not be used, the exit status is 1.

    Examples:

        knnmt adapt projekt.tmx -o projekt.store

        knnmt adapt katalog.po glossar.tsv -o software.store --dev probe.tsv

        knnmt translate -d projekt.store handbuch.de.txt
    """
    from knnmt.datastore.unfinished import require_free_or_unfinished

    cluster = cluster_of(ray, workers, gpus_per_worker, threads, storage)
    require_free_or_unfinished(output)
    model, languages = model_of_memories(model, source_language, target_language, memories_in)
    with heavy_imports():
        from knnmt.adapting.adapt import adapt as adapt_to
        from knnmt.datastore.building import BuildConfig
    ready = f"{output} can be used; rerun the command to tune it and to add what was held out"
    with ends_with("rerun the command; it resumes", output, ready):
        accelerators: Accelerators = "keep" if keep_accelerators else "drop"
        adapted = adapt_to(
            memories_in(*languages),
            output,
            BuildConfig(*languages, for_fast=for_fast, accelerators=accelerators),
            dev=development,
            sample=sample,
            model=model,
            source_lang=source_language,
            target_lang=target_language,
            device=device,
            threads=threads,
            cluster=cluster,
            on_message=typer.echo,
            verbose=verbose,
            progress=progress_bars,
        )
    options = () if model in shipped_models() else ("-m", model)
    if adapted.gain is not None and adapted.gain.is_bad:
        typer.echo(f"next       {command('inspect', output)} shows some of its pairs")
        raise typer.Exit(1)
    typer.echo(f"next       {command('translate', *options, '-d', output, '--text', 'TEXT')} translates with the store")
