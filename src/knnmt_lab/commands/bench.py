"""`knnmt bench`: how fast systems translate, side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import Annotated

import typer

from knnmt import DEFAULT_MODEL, TranslationSettings, gather_systems, read_lines, takes_settings, write_output
from knnmt.errors import InputError, MissingDependencyError, SettingError
from knnmt_lab.bench.report import as_json, as_markdown, as_text
from knnmt_lab.bench.running import BenchConfig, BenchReport, Turn, load_average, usable_threads
from knnmt_lab.bench.running import bench as measure
from knnmt_lab.commands.options import SourceLanguage, TargetLanguage, ends_with


@takes_settings("bench", groups=("text", "decoding", "memory"), usual="raw")
def bench(
    source: Annotated[
        Path,
        typer.Option(
            "--source",
            "-s",
            help="Text to translate, one segment per line. The stores must not hold it.",
            show_default=False,
        ),
    ],
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            metavar="[NAME=]STORE[,SETTING=VALUE]...",
            help="A system to measure; can be repeated: base, STORE, or NAME=STORE,cache=6,exact with the "
            "settings of `knnmt translate`. The model alone is always measured first, and the others are "
            "compared with it.",
            show_default=False,
        ),
    ] = None,
    datastore: Annotated[
        list[Path] | None,
        typer.Option(
            "--datastore",
            "-d",
            metavar="STORE",
            help="A system: the model with this store. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="A shipped model, a checkpoint directory, or a Hugging Face name.")
    ] = DEFAULT_MODEL,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A directory for report.md, report.json and, if matplotlib is installed, the two plots.",
            show_default=False,
        ),
    ] = None,
    sentences: Annotated[
        int, typer.Option(min=1, help="Number of lines to take from the text, not counting empty ones.")
    ] = 64,
    rounds: Annotated[
        int, typer.Option(min=1, help="Number of measured rounds. One more round comes first, to warm up.")
    ] = 5,
    batch_sizes: Annotated[
        str, typer.Option(help="Numbers of sentences decoded together, separated by commas.")
    ] = "1,8,16",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads of each system.  [default: all available cores]", show_default=False),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N.  [default: cuda if available]", show_default=False)
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="As in `knnmt translate`.  [default: float32 on a CPU, float16 on cuda]", show_default=False),
    ] = None,
    *,
    settings: TranslationSettings,
) -> None:
    """Measure how fast systems translate. They are the model alone and stores with settings.

    Each system runs in its own process. The systems take turns in every round, so that a slow moment of the machine
    affects all of them. The command prints tokens per second (median, slowest and fastest round), the ratio to the
    model alone, the searches that the cache saved, memory, and where the time went. Close other programs first.

    Examples:

        knnmt bench --source fragen.txt -d projekt.store

        knnmt bench -s fragen.txt --system base --system projekt.store --system "cached=projekt.store,cache=6"

        knnmt bench -s fragen.txt -d projekt.store --batch-sizes 1,32 --rounds 9 -o speed/
    """
    systems = gather_systems(datastore or [], system or [])
    if any(each.other is not None for each in systems):
        raise SettingError("bench measures this machine and takes no endpoints: use knnmt evaluate")
    config = BenchConfig(
        _numbers(batch_sizes),
        rounds,
        settings,
        threads or usable_threads(),
        model,
        device=device,
        dtype=dtype,
        source_lang=source_language,
        target_lang=target_language,
    )
    texts = list(islice((line for line in read_lines(source) if line.strip()), sentences))
    if not texts:
        raise InputError(f"{source}: expected text to translate, one segment per line; found none")
    if output is not None:  # fail before hours of work
        _make_directory(output)
    _warn_if_busy()
    with ends_with("no report is made"):
        report = measure(systems, texts, config, _tell, _progress(len(systems), config), source.name)
    typer.echo(as_text(report), nl=False)
    if output is not None:
        _write(report, output)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingError(f"--batch-sizes {text}: expected numbers separated by commas, such as 1,8,16") from None


def _make_directory(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"--output {output}: cannot make this directory: {error.strerror}") from error


def _tell(what: str) -> None:
    typer.echo(f"knnmt: {what}", err=True)


def _warn_if_busy() -> None:
    load, cores = load_average(), os.cpu_count() or 1
    if load is not None and load > cores:
        _tell(f"warning: the machine is busy (load {load:.1f} on {cores} cores); measurements are unreliable now")


def _progress(systems: int, config: BenchConfig) -> Callable[[Turn], None]:
    """A line for every turn: a bar that updates itself would take time from the measurement."""
    if not sys.stderr.isatty():
        return lambda _: None
    turns = systems * len(config.batch_sizes) * (config.rounds + 1)
    numbers = count(1)

    def show(turn: Turn) -> None:
        what = f"round {turn.round_number} of {config.rounds}" if turn.round_number else "warming up"
        _tell(
            f"{next(numbers)} of {turns} turns, {what}: {turn.job.system}, batch {turn.job.batch_size}, "
            f"{turn.answer.tokens_per_second:,.0f} tokens/s"
        )

    return show


def _write(report: BenchReport, output: Path) -> None:
    from knnmt_lab.bench.plots import save_plots

    try:
        write_output(output / "report.md", as_markdown(report).encode())
        write_output(output / "report.json", as_json(report).encode())
        written = ["report.md", "report.json", *(path.name for path in save_plots(report, output))]
    except MissingDependencyError as missing:
        written = ["report.md", "report.json"]
        _tell(str(missing))
    typer.echo(f"\nwritten    {output}: {', '.join(written)}")
