"""`knnmt build`: translation memories in, a datastore out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from knnmt.cli.interrupt import ends_with
from knnmt.cli.languages import ModelOption, SourceLanguage, TargetLanguage, model_of_memories
from knnmt.cli.memories import ForFast, KeepAccelerators, MemoriesIn, reads_memories
from knnmt.cli.options import Device, GpusPerWorker, Ray, Storage, Threads, Workers, cluster_of
from knnmt.cli.progress import counter
from knnmt.cli.start import heavy_imports
from knnmt.corpus.accelerators import Accelerators
from knnmt.errors import InputError


@reads_memories
def build(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the store goes: a directory that does not exist yet.")
    ],
    memories_in: MemoriesIn,
    model: ModelOption = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    dtype: Annotated[str, typer.Option(help="The type of stored keys: float16 or float32.")] = "float16",
    for_fast: ForFast = False,
    keep_accelerators: KeepAccelerators = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard an interrupted build instead of continuing it.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate/--no-estimate", help="Estimate the store's settings at the end.")
    ] = True,
    device: Device = None,
    threads: Threads = None,
    ray: Ray = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    storage: Storage = None,
) -> None:
    """Build a datastore from translation memories.

    The frozen model reads every pair once. For each target token the store keeps the decoder's state before it (the
    key), the token (the value), and the token's origin. If interrupted, rerun the command; it resumes. At the end, the
    command estimates settings that fit the store.

    Examples:

        knnmt build projekt.tmx -o projekt.store

        knnmt build handbuch.de handbuch.en katalog.po -o software.store

        knnmt build gross.tmx -o /shared/gross.store --ray auto --gpus-per-worker 1
    """
    cluster = cluster_of(ray, workers, gpus_per_worker, threads, storage)
    model, pair = model_of_memories(model, source_language, target_language, memories_in)
    reading = memories_in(*pair)
    with heavy_imports():
        from knnmt.adapting.build import build as build_store
        from knnmt.datastore.building import BuildConfig
    accelerators: Accelerators = "keep" if keep_accelerators else "drop"
    again = ends_with("rerun the command; it resumes", output, f"the store is built: {output}")
    with again, counter("building", reading.count, "pairs") as progress:
        try:
            built = build_store(
                reading,
                output,
                BuildConfig(*pair, key_dtype=dtype, for_fast=for_fast, accelerators=accelerators),
                estimate=estimate,
                restart=restart,
                model=model,
                source_lang=source_language,
                target_lang=target_language,
                device=device,
                threads=threads,
                cluster=cluster,
                progress=progress,
            )
        except InputError:
            for line in reading.summary():
                typer.echo(line, err=True)
            raise
    typer.echo(str(built))
