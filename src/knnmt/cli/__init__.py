"""The command line: one verb a file, no logic.

Nothing here imports PyTorch before a verb really needs it, so that help and listings answer at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from knnmt.cli import (
    adapt,
    bench,
    build,
    change,
    combine,
    compress,
    evaluate,
    explain,
    index,
    look,
    models,
    reproduce,
    serve,
    train_gate,
    translate,
    tune,
)
from knnmt.cli.ending import TRACEBACK, run
from knnmt.cli.streams import guard_streams
from knnmt.corpus.visible import visible
from knnmt.errors import LanguageWarning
from knnmt.version import __version__

_said_of_languages: set[str] = set()

app = typer.Typer(
    name="knnmt",
    help="Nearest-neighbour machine translation: a frozen model that translates like your translation memory.",
    epilog='Try: echo "Guten Morgen, wie geht es Ihnen?" | knnmt translate',
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("translate")(translate.translate)
app.command("explain")(explain.explain)
app.command("adapt")(adapt.adapt)
app.command("build")(build.build)
app.command("add")(change.add)
app.command("replace")(change.replace)
app.command("remove")(change.remove)
app.command("compact")(change.compact)
app.command("upgrade")(change.upgrade)
app.command("merge")(combine.merge)
app.command("split")(combine.split)
app.command("shard-set")(combine.shard_set)
app.command("reduce")(compress.reduce)
app.command("prune")(compress.prune)
app.command("index")(index.index)
app.command("tune")(tune.tune)
app.command("train-gate")(train_gate.train_gate)
app.command("inspect")(look.inspect)
app.command("verify")(look.verify)
app.command("export")(look.export)
app.command("evaluate")(evaluate.evaluate)
app.command("bench")(bench.bench)
app.command("reproduce")(reproduce.reproduce)
app.command("serve")(serve.serve)
app.command("serve-key")(serve.serve_key)
app.command("models")(models.models)


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
            help=f"Where a command fails, show where in the code; {TRACEBACK}=1 in the environment does, too.",
        ),
    ] = False,
) -> None:
    warnings.showwarning = _show_warning


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Say a warning as a line, without the place in the code; of a memory that is read twice, once."""
    if isinstance(message, LanguageWarning):
        if str(message) in _said_of_languages:
            return
        _said_of_languages.add(str(message))
    print(f"knnmt: warning: {visible(str(message))}", file=sys.stderr)


def main() -> None:
    """Run a command; what goes wrong comes as one message, without a traceback."""
    guard_streams()
    sys.exit(run(app))
