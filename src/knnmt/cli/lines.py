"""`knnmt translate` with lines of text: where they come from, and the loop that translates and prints them."""

from __future__ import annotations

import io
import os
import stat
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from knnmt.cli.output import Columns, open_output, require_other_output, write_all
from knnmt.cli.progress import tally
from knnmt.corpus.glossary import Glossary
from knnmt.corpus.lines import decode_lines, read_lines
from knnmt.corpus.plain_text import require_plain_text
from knnmt.corpus.sides import watched
from knnmt.errors import InputError, KnnmtWarning, NoTranslationWarning, SettingError
from knnmt.timing import stage_times

if TYPE_CHECKING:
    from knnmt.translator.translator import Translator

_FIRST_LINES = 200  # lines that show the language of the text


def translate_lines(
    files: list[Path] | None,
    texts: list[str] | None,
    output: Path | None,
    plain: bool,
    load: Callable[[], Translator],
    glossary: Glossary | None,
    datastore: Path | None,
    columns: Columns,
    jsonl: bool,
    timings: bool,
) -> None:
    """Translate texts, or else the lines of files, or else standard input, and print a line for each.

    load: is called after everything that can be checked without a model
    glossary: terms that translations must contain
    """
    window = 1 if _from_keyboard(files, texts) else None
    total = len(texts) if texts else count_lines(files, plain)
    warnings.simplefilter("always", KnnmtWarning)
    warnings.simplefilter("ignore", NoTranslationWarning)  # reported with the number of the line

    with stage_times() if timings else nullcontext() as record:
        translator = load()
        from knnmt.translator.memories import languages_of

        if timings:
            translator.statistics.hit_distances = Counter()
        # A bar does not fit on a terminal that shows the translations themselves.
        shown = output is not None or not sys.stdout.isatty()
        with open_output(output) as out, tally("translating", total, "lines", shown) as finished:
            lines = texts or lines_of(files, plain)
            language = translator.engine.languages.source or (datastore and languages_of(datastore)[0])
            asked = watched(lines, language) if language else lines
            translations = translator.stream(asked, glossary=glossary, progress=finished, window=window)
            failed = write_all(translations, total, out, finished, columns=columns, jsonl=jsonl)
    if record is not None:
        print(record.table(), file=sys.stderr)
        if translator.statistics.rows:
            print(translator.statistics.summary(), file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def check_input(files: list[Path] | None, texts: list[str] | None, output: Path | None) -> None:
    """Raise an error for input that cannot be read, and say if lines are to be typed."""
    if texts and files:
        raise SettingError("expected --text or files, found both: give one of them")
    for file in files or []:
        if not file.exists():
            raise InputError(f"{file}: no such file. To translate these words themselves, use --text")
    if not texts:
        require_other_output(output, files)
    if _from_keyboard(files, texts):
        print("Reading lines from the keyboard; Ctrl-D ends.", file=sys.stderr)


def _from_keyboard(files: list[Path] | None, texts: list[str] | None) -> bool:
    return not files and not texts and sys.stdin.isatty()


def count_lines(files: list[Path] | None, plain: bool) -> int | None:
    """The number of lines, if it can be known. Unreadable input fails before the model is loaded."""
    if not files:
        with suppress(OSError):  # a standard input that is not a file of the system
            if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
                _look_at_standard_input(plain)
        return None
    # Data from a pipe comes once, and cannot be counted first.
    counts = [sum(1 for _ in read_lines(file, plain)) for file in files if file.is_file()]
    return sum(counts) if len(counts) == len(files) else None


def lines_of(files: list[Path] | None, plain: bool = False) -> Iterator[str]:
    """The lines of files, or of standard input if there are none. Documents fail with an error unless `plain`."""
    if not files:
        _look_at_standard_input(plain)
        yield from decode_lines(sys.stdin.buffer, "standard input")
    for file in files or []:
        yield from read_lines(file, plain)


def first_lines(files: list[Path] | None, plain: bool) -> list[str]:
    """The first lines of regular files, or those that standard input has already got; none of them is taken away."""
    if files:
        return [line for file in files if file.is_file() for line in islice(read_lines(file, plain), _FIRST_LINES)]
    _look_at_standard_input(plain)
    stream = sys.stdin.buffer
    if isinstance(stream, io.BufferedReader):
        begun = stream.peek()
    else:  # what stands for standard input in a test or another program
        place = stream.tell()
        begun = stream.read(io.DEFAULT_BUFFER_SIZE)
        stream.seek(place)
    return begun.decode("utf-8", "ignore").splitlines()[:_FIRST_LINES]


def _look_at_standard_input(plain: bool) -> None:
    if isinstance(sys.stdin.buffer, io.BufferedReader):
        require_plain_text(None, sys.stdin.buffer.peek(), plain)
