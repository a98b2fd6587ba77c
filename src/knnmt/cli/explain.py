"""`knnmt explain`: show where each word of a translation came from, on the terminal or as a page."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knnmt.cli.interrupt import ends_with
from knnmt.cli.lines import count_lines, lines_of
from knnmt.cli.memories import typed_parameters
from knnmt.cli.progress import track
from knnmt.cli.setting_options import takes_settings
from knnmt.cli.start import load_translator
from knnmt.cli.streams import noticing_loss, unguarded
from knnmt.cli.translate import translate
from knnmt.errors import InputError, KnnmtWarning, SettingError
from knnmt.translator.settings import TranslationSettings

if TYPE_CHECKING:
    from knnmt.translator.explanation import Explanation

_OF_LANGUAGES = ["source_language", "target_language"]
_OF_LOADING = ["model", "device", "dtype", "threads", "exact"]
_WINDOW = 32  # texts that are translated together: explanations are read as they appear


def _with_options_of_translate(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, as `options`, the options of `knnmt translate` for the model, the search and the text."""
    offered = {each.name: each for each in typed_parameters(translate)}
    shared = [offered[name] for name in [*_OF_LANGUAGES, *_OF_LOADING, "plain"]]
    own = {each.name: each for each in typed_parameters(command) if each.kind is not each.VAR_KEYWORD}
    settings = own.pop("settings")

    parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in [*own.values(), *shared, settings]]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


@takes_settings("explain")
@_with_options_of_translate
def explain(
    datastore: Annotated[
        Path, typer.Option("--datastore", "-d", help="Translate like this memory.", show_default=False)
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts to translate. Without TEXT and --file, standard input is read."),
    ] = None,
    more_texts: Annotated[
        list[str] | None,
        typer.Option("--text", "-t", help="The same as TEXT; can be repeated.", show_default=False),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="A text file, one segment per line; can be repeated.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write a page for a browser. It is one file that needs no other.", show_default=False
        ),
    ] = None,
    neighbours: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --html: the number of neighbours that the page shows for each token, those with the largest "
            "weights first.  [default: 4]",
            show_default=False,
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show every neighbour of every token on the terminal.")] = False,
    *,
    settings: TranslationSettings,
    **options: Any,
) -> None:
    """Show where each word of a translation came from.

    For each word, the command shows how much of it came from the memory, and from which segments. It also shows what
    the model alone would have said, and the memory's closest segment.

    Examples:

        knnmt explain -d projekt.store "Die Datei wurde gelöscht."

        knnmt explain -d projekt.store --file fragen.txt --html fragen.html
    """
    texts = [*(texts or []), *(more_texts or [])]
    if texts and files:
        raise SettingError("expected texts or --file, found both: give one of them")
    if html and full:
        raise SettingError("--full is for the terminal; with --html, use --neighbours N: leave --full or --html out")
    if neighbours is not None and not html:
        raise SettingError("--neighbours is for a page (--html); on the terminal, --full shows every neighbour")
    if html and (html.is_dir() or not html.parent.is_dir()):
        raise SettingError(f"--html {html}: expected the name of a file in a directory that exists")
    if html and html.exists() and not html.is_file():
        raise SettingError(f"--html {html}: expected the name of a file, found a device or a pipe. Name a file")
    keyboard = not texts and not files and sys.stdin.isatty()
    if keyboard:
        print("Reading lines from the keyboard; Ctrl-D ends.", file=sys.stderr)
    warnings.simplefilter("default", KnnmtWarning)  # once, though a text is translated twice
    plain = options.pop("plain")
    if not texts:
        count_lines(files, plain)  # report unreadable input before the model is loaded
    loading = {name: options.pop(name) for name in _OF_LOADING}
    languages = (options.pop("source_language"), options.pop("target_language"))
    translator = load_translator(datastore=datastore, languages=languages, settings=settings, **loading)

    from knnmt.translator.explanation import explain as explaining

    failed: list[str] = []
    asked = (text for text in texts or lines_of(files, plain) if text.strip())
    explanations = _noting(explaining(translator, asked, window=1 if keyboard else _WINDOW), failed)
    with ends_with("no page is written"):
        if html is None:
            shown = _print_all(explanations, full)
        else:
            shown = _write_page(explanations, html, translator.signature(exact_matches="ignore"), neighbours)
    if not shown:
        raise InputError("expected a text to explain, found none")
    if failed:
        raise typer.Exit(1)


def _noting(explanations: Iterator[Explanation], failed: list[str]) -> Iterator[Explanation]:
    """The same explanations; messages about those without a translation are recorded."""
    for explanation in explanations:
        if explanation.translation.error is not None:
            failed.append(explanation.translation.error)
        yield explanation


def _print_all(explanations: Iterator[Explanation], full: bool) -> int:
    from rich.console import Console

    from knnmt.translator.terminal import print_explanation

    screen = unguarded(sys.stdout)  # every text is made visible before it is coloured
    screen.reconfigure(encoding="utf-8")  # type: ignore[attr-defined]
    console = Console(file=screen, highlight=False, emoji=False, markup=False)
    shown = 0
    for shown, explanation in enumerate(explanations, 1):
        with noticing_loss():
            if shown > 1:
                console.rule(style="dim")
            print_explanation(explanation, console, full)
    return shown


def _write_page(explanations: Iterator[Explanation], html: Path, signature: str, neighbours: int | None) -> int:
    from knnmt.output_files import write_output
    from knnmt.translator.page import NEIGHBOURS, explanation_page

    found = list(track(explanations, "explaining", None, "lines"))
    if found:
        content = explanation_page(found, note=signature, neighbours=NEIGHBOURS if neighbours is None else neighbours)
        write_output(html, content.encode())
        typer.echo(f"wrote {html}: {len(found):,} segment{'s' * (len(found) != 1)}; open it in a browser")
    return len(found)
