"""`knnmt reproduce`: every table and figure of the paper, from text to report."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from knnmt import DEFAULT_MODEL
from knnmt_lab.checks import check
from knnmt_lab.comet import DEFAULT_MODEL as DEFAULT_COMET_MODEL
from knnmt_lab.comet import Comet
from knnmt_lab.commands.options import (
    Device,
    GpusPerWorker,
    Ray,
    SourceLanguage,
    TargetLanguage,
    Threads,
    Workers,
    cluster_of,
    ends_with,
)


def reproduce(
    output: Annotated[Path, typer.Option("--output", "-o", help="A directory for all results and report.md.")],
    data: Annotated[
        Path | None,
        typer.Option(
            help=(
                "A directory with a subdirectory for each domain, which has train.*, dev.* and optionally test.*, "
                "in any format of `knnmt build`."
            ),
            show_default=False,
        ),
    ] = None,
    domains: Annotated[
        str | None, typer.Option(help="Names separated by commas.  [default: all]", show_default=False)
    ] = None,
    train_pairs: Annotated[int, typer.Option(min=0, help="Training pairs of each domain; 0 for all.")] = 0,
    sentences: Annotated[int, typer.Option(min=0, help="Reported sentences of each domain; 0 for all.")] = 0,
    other_sentences: Annotated[
        int, typer.Option(min=0, help="Sentences of each other domain, to show what harm a store does; 0 for none.")
    ] = 0,
    blocks: Annotated[str, typer.Option(help="A: as published. B: ours.")] = "A,B",
    systems: Annotated[
        str | None,
        typer.Option(
            help="Rows, as patterns such as 'A/*,B/knn'; they are made in this order.  [default: all]",
            show_default=False,
        ),
    ] = None,
    without: Annotated[str | None, typer.Option(help="Rows to leave out, as patterns.", show_default=False)] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Leave out rows that only refine a table.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Search every key in block B, which needs no FAISS.")] = False,
    quality: Annotated[bool, typer.Option("--quality/--no-quality", help="Translate and score.")] = True,
    speed: Annotated[
        bool, typer.Option("--speed/--no-speed", help="Measure speed. The machine should be idle.")
    ] = True,
    speed_sentences: Annotated[int, typer.Option(min=1, help="Sentences for measuring speed.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of measuring speed; systems take turns in each.")] = 3,
    batch_sizes: Annotated[
        str, typer.Option(help="Numbers of sentences decoded together, separated by commas.")
    ] = "1,8,16",
    minutes: Annotated[
        float | None, typer.Option(help="Start no further stage after this time.", show_default=False)
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="If a stage fails, print its traceback and continue with the others.")
    ] = False,
    stores: Annotated[
        Path | None, typer.Option(help="Where the stores go.  [default: OUTPUT/stores]", show_default=False)
    ] = None,
    produce_only: Annotated[bool, typer.Option("--produce-only", help="Do not make the report.")] = False,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Only make the report, from results of this or another machine.")
    ] = False,
    comet_python: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Also score the main results with COMET: the Python interpreter of an environment with "
                "unbabel-comet (docs/evaluation.md)."
            ),
            show_default=False,
        ),
    ] = None,
    comet_model: Annotated[str, typer.Option(help="A model that COMET knows, or a checkpoint.")] = DEFAULT_COMET_MODEL,
    model: Annotated[
        str, typer.Option("--model", "-m", help="A shipped model, a checkpoint directory, or a Hugging Face name.")
    ] = DEFAULT_MODEL,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    device: Device = None,
    threads: Threads = None,
    ray: Ray = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
) -> None:
    """Reproduce the tables and figures of the paper.

    The command builds the stores of each domain, tunes each system on text that is not reported (half of dev if there
    is no test.*), translates with each, measures speed, and writes report.md with plots and the paper's numbers. If
    interrupted, rerun the command; it resumes. Producing and reporting can run on different machines. With --ray,
    domains are produced side by side, and speed is measured here at the end.

    Examples:

        knnmt reproduce --data corpora/ -o reproduced/ --train-pairs 15000 --sentences 500 --brief

        knnmt reproduce --data corpora/ -o reproduced/ -m facebook/wmt19-de-en --blocks A

        knnmt reproduce --data corpora/ -o /shared/reproduced/ --ray auto

        knnmt reproduce -o reproduced/ --report-only
    """
    cluster = cluster_of(ray, workers, gpus_per_worker, threads)
    check(not (produce_only and report_only), "give one of --produce-only and --report-only, or neither for both")
    left = 0
    if not report_only:
        check(data is not None, "--data is missing: give a directory with a subdirectory for each domain")
        from knnmt import progress_bars
        from knnmt_lab.reproduction.config import ReproductionConfig, names_in, numbers_in
        from knnmt_lab.reproduction.domains_as_tasks import produce_on
        from knnmt_lab.reproduction.producing import produce

        given: dict[str, Any] = {"domains": domains, "blocks": blocks, "systems": systems, "without": without}
        config = ReproductionConfig(
            data or Path(),
            output,
            stores,
            **{name: names_in(text or "") for name, text in given.items()},
            train_pairs=train_pairs,
            sentences=sentences,
            other_sentences=other_sentences,
            model=model,
            source_language=source_language,
            target_language=target_language,
            device=device,
            threads=threads,
            brief=brief,
            exact=exact,
            quality=quality,
            speed=speed,
            speed_sentences=speed_sentences,
            rounds=rounds,
            batch_sizes=numbers_in(batch_sizes),
            minutes=minutes,
            keep_going=keep_going,
        )
        with ends_with("rerun the command; it resumes"):
            if cluster is None:
                left = produce(config, typer.echo, progress_bars)
            else:
                left = produce_on(cluster, config, typer.echo, progress_bars)
    if not produce_only and not left:
        from knnmt_lab.reproduction.report import write_report

        scorer = Comet(comet_python, comet_model) if comet_python else nullcontext()
        with ends_with("rerun the command; it resumes"), scorer as comet:
            place = write_report(output, typer.echo, comet)
        typer.echo(f"report     {place}")
