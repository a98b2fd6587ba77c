"""The command line. Each file has one verb and no logic.

No module imports PyTorch before a verb needs it, so that help and listings answer at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from knnmt.cli import (
    adapt,
    build,
    change,
    combine,
    compress,
    copy,
    evaluate,
    explain,
    index,
    look,
    models,
    serve,
    train_gate,
    translate,
    tune,
)
from knnmt.cli.ending import TRACEBACK, run
from knnmt.cli.panels import CommandInPanels
from knnmt.cli.registered import WithRegisteredCommands
from knnmt.cli.streams import guard_streams
from knnmt.corpus.visible import visible
from knnmt.errors import LanguageWarning
from knnmt.version import __version__

_said_of_languages: set[str] = set()

app = typer.Typer(
    name="knnmt",
    cls=WithRegisteredCommands,
    help="Nearest-neighbour machine translation: a frozen model that translates like your translation memory.",
    epilog='Try: echo "Guten Morgen, wie geht es Ihnen?" | knnmt translate',
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("translate", cls=CommandInPanels)(translate.translate)
app.command("explain", cls=CommandInPanels)(explain.explain)
app.command("adapt", cls=CommandInPanels)(adapt.adapt)
app.command("build", cls=CommandInPanels)(build.build)
app.command("add", cls=CommandInPanels)(change.add)
app.command("replace", cls=CommandInPanels)(change.replace)
app.command("remove", cls=CommandInPanels)(change.remove)
app.command("compact", cls=CommandInPanels)(change.compact)
app.command("merge", cls=CommandInPanels)(combine.merge)
app.command("split", cls=CommandInPanels)(combine.split)
app.command("shard-set", cls=CommandInPanels)(combine.shard_set)
app.command("copy", cls=CommandInPanels)(copy.copy)
app.command("reduce", cls=CommandInPanels)(compress.reduce)
app.command("prune", cls=CommandInPanels)(compress.prune)
app.command("index", cls=CommandInPanels)(index.index)
app.command("tune", cls=CommandInPanels)(tune.tune)
app.command("train-gate", cls=CommandInPanels)(train_gate.train_gate)
app.command("inspect", cls=CommandInPanels)(look.inspect)
app.command("verify", cls=CommandInPanels)(look.verify)
app.command("export", cls=CommandInPanels)(look.export)
app.command("evaluate", cls=CommandInPanels)(evaluate.evaluate)
app.command("serve", cls=CommandInPanels)(serve.serve)
app.command("serve-key", cls=CommandInPanels)(serve.serve_key)
app.command("models", cls=CommandInPanels)(models.models)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"knnmt {__version__}")
        raise typer.Exit


def _show_tracebacks(wanted: bool) -> None:
    if wanted:
        os.environ[TRACEBACK] = "1"


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    traceback: Annotated[  # noqa: ARG001 - its callback does it
        bool,
        typer.Option(
            "--traceback",
            callback=_show_tracebacks,
            help=f"If the command fails, print a traceback. {TRACEBACK}=1 in the environment does the same.",
        ),
    ] = False,
) -> None:
    warnings.showwarning = _show_warning


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without its place in the code, and once for a memory that is read twice."""
    if isinstance(message, LanguageWarning):
        if str(message) in _said_of_languages:
            return
        _said_of_languages.add(str(message))
    print(f"knnmt: warning: {visible(str(message))}", file=sys.stderr)


def main() -> None:
    """Run a command. An error is printed as one message, without a traceback."""
    guard_streams()
    sys.exit(run(app))
