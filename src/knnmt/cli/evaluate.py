"""`knnmt evaluate`: compare systems on a text with references."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from knnmt.cli.interrupt import ends_with
from knnmt.cli.languages import SourceLanguage, TargetLanguage
from knnmt.cli.options import Device, Dtype, StoresAsSystems, Threads
from knnmt.cli.progress import track
from knnmt.cli.setting_options import takes_settings
from knnmt.cli.start import heavy_imports
from knnmt.errors import CometError, KnnmtWarning, SettingError
from knnmt.evaluation.scoring import require_sacrebleu
from knnmt.evaluation.segments import Half
from knnmt.evaluation.systems import DESCRIPTION, OTHER, USUAL_RUN, gather_systems
from knnmt.extensions import METRICS, named
from knnmt.translator.settings import TranslationSettings

if TYPE_CHECKING:
    from knnmt.translator.translation import Translation


@takes_settings("evaluate", groups=("text", "decoding", "memory"), usual=USUAL_RUN)
def evaluate(
    source: Annotated[
        Path | None,
        typer.Option("--source", "-s", help="Text to translate, one segment per line.", show_default=False),
    ] = None,
    reference: Annotated[Path | None, typer.Option(help="Its translation, line by line.", show_default=False)] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Instead of both: one TMX, XLIFF, PO, TSV or CSV file.", show_default=False),
    ] = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    half: Annotated[
        str,
        typer.Option(
            help="all, or one half of the text: report or tune. A hash of the source divides the text, so that "
            "settings chosen on one half can be reported on the other."
        ),
    ] = "all",
    skip_known: Annotated[
        bool,
        typer.Option("--skip-known", help="Skip segments whose source a store holds."),
    ] = False,
    datastore: StoresAsSystems = None,
    system: Annotated[
        list[str] | None,
        typer.Option(
            metavar=DESCRIPTION,
            help="A system with settings: the options of knnmt translate without their dashes. Or a large language "
            f"model: {OTHER}. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    base: Annotated[
        bool,
        typer.Option(
            "--base/--no-base",
            help="Compare with the model alone, as the first system. Without it, compare with the first -d STORE "
            "or, if there is none, the first --system.",
        ),
    ] = True,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A shipped model, a checkpoint directory, or a Hugging Face name.  [default: the model that the first "
            "store was built with; without a store the shipped model for the languages of the text]",
            show_default=False,
        ),
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A directory for hypotheses and reports. Systems that are finished there are not run again, so "
            "that an interrupted evaluation resumes.",
            show_default=False,
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Also write the report as JSON.", show_default=False),
    ] = None,
    markdown_file: Annotated[
        Path | None,
        typer.Option("--markdown", help="Also write the report as Markdown.", show_default=False),
    ] = None,
    comet_python: Annotated[
        Path | None,
        typer.Option(
            help="The Python interpreter of an environment with unbabel-comet (docs/evaluation.md).", show_default=False
        ),
    ] = None,
    comet_model: Annotated[
        str | None,
        typer.Option(
            help="A model that COMET knows, or a checkpoint.  [default: Unbabel/wmt22-comet-da]", show_default=False
        ),
    ] = None,
    *,
    settings: TranslationSettings,
) -> None:
    """Compare systems by BLEU, chrF, COMET and speed. The text needs references.

    Every system is compared with the first, which is the model alone, by paired bootstrap resampling. The command warns
    if a store holds the text. Every number comes with its signature. Texts are decoded as they are: with
    --split-sentences, --protect and --exact-matches use, as knnmt translate does it.

    Examples:

        knnmt evaluate --source test.de --reference test.en -d it.store

        knnmt evaluate --pairs test.tmx -d it.store --output results

        knnmt evaluate --pairs test.tmx --system "cached=it.store,cache=6,k=4"

        knnmt evaluate --pairs test.tmx --system "llm=http://127.0.0.1:8000/v1,model=NAME,store=it.store,examples=5"

        knnmt evaluate --pairs test.tmx --comet-python comet-env/bin/python
    """
    if comet_model is not None and comet_python is None:
        raise SettingError(f"--comet-model needs --comet-python. {CometError.advice}")
    require_sacrebleu()
    systems = gather_systems(datastore or [], system or [], base)
    text = _text(source, reference, pairs)
    warnings.simplefilter("always", KnnmtWarning)
    with heavy_imports():
        from knnmt.evaluation.evaluating import evaluate as run_evaluation
        from knnmt.evaluation.evaluating import write_json, write_markdown
    advice = "rerun the command; it resumes" if output else "with --output DIR, rerunning the command would resume here"
    with ends_with(advice), _comet(comet_python, comet_model) as comet:
        report = run_evaluation(
            text,
            settings=settings,
            systems=systems,
            base=False,  # included if it was requested
            half=cast("Half", half),
            model=model,
            source_lang=source_language,
            target_lang=target_language,
            device=device,
            dtype=dtype,
            threads=threads,
            skip_known=skip_known,
            output=output,
            comet=comet,
            on_translation=_bar,
        )
    typer.echo(report.as_text(), nl=False)
    if json_file is not None:
        write_json(report, json_file)
    if markdown_file is not None:
        write_markdown(report, markdown_file)
    if comet_python is not None and report.no_comet:
        print("knnmt: error: COMET failed; the report says why", file=sys.stderr)
        raise typer.Exit(1)


def _comet(python: Path | None, model: str | None) -> AbstractContextManager[Any]:
    if python is None:
        return nullcontext()
    print("knnmt: loading COMET; if necessary, its model is downloaded first", file=sys.stderr)
    chosen = () if model is None else (model,)
    metric: AbstractContextManager[Any] = named("comet", METRICS, "metric")(python, *chosen)
    return metric


def _text(source: Path | None, reference: Path | None, pairs: Path | None) -> Path | tuple[Path, Path]:
    """The files with the text and its references."""
    if pairs is not None and source is None and reference is None:
        return pairs
    if pairs is None and source is not None and reference is not None:
        return source, reference
    raise SettingError("expected a text with references: --source FILE and --reference FILE, or --pairs FILE")


def _bar(translations: Iterator[Translation], name: str, total: int) -> Iterable[Translation]:
    return track(translations, name, total, "segments")
