"""The output of `knnmt translate`: lines, with scores and numbers on request, or JSON."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from knnmt.cli.interrupt import Interrupts
from knnmt.cli.progress import Tally
from knnmt.cli.streams import unguarded
from knnmt.errors import SettingError, StorageError
from knnmt.output_files import replacing, unfinished_path

if TYPE_CHECKING:
    from knnmt.translator.translation import Translation


def require_other_output(output: Path | None, files: list[Path] | None) -> None:
    """Raise an error if the output is also the input."""
    if output is None or not output.exists():
        return
    read = [file.stat() for file in files if file.exists()] if files else [os.fstat(sys.stdin.fileno())]
    if any(os.path.samestat(output.stat(), each) for each in read):
        raise SettingError(f"--output {output} is also the input, and its text would be lost; choose another name")


@contextmanager
def open_output(output: Path | None) -> Iterator[TextIO]:
    """A file that replaces the output when all is written, or standard output.

    Translations are written unchanged, except on a terminal, where control characters must not act.
    """
    if output is None:
        stream = sys.stdout if sys.stdout.isatty() else unguarded(sys.stdout)
        stream.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield stream
        return
    with replacing(output, keep_unfinished=True) as file:
        out = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
        try:
            yield out
        except BaseException:
            _say_what_is_left(output)
            raise
        finally:
            with suppress(OSError):  # a full disk fails again; the first error counts
                out.detach()


def _say_what_is_left(output: Path) -> None:
    """Name the file with the finished lines of a translation that does not end, unless it went to a pipe."""
    place = Path(os.path.realpath(output))
    left = unfinished_path(place)
    if left.exists() and left.stat().st_size:
        beside = f"; {output} is unchanged" if place.exists() else ""
        print(f"knnmt: the finished lines are in {left}{beside}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class Columns:
    """What is printed before a translation. n_best: translations per line; if above 1, the line's number is printed"""

    scores: bool = False
    review: bool = False
    n_best: int = 1


def write_all(
    translations: Iterator[Translation],
    total: int | None,
    out: TextIO,
    finished: Tally,
    *,
    columns: Columns,
    jsonl: bool,
) -> int:
    """Write translations as they come, and return how many failed. What is written stays, however the command ends."""
    done = failed = 0
    try:
        with Interrupts() as interrupts:
            for translation in translations:
                with interrupts.shielded():
                    out.write(_as_lines(translation, done + 1, columns, jsonl))
                    out.flush()
                    done += 1
                if translation.error is not None:
                    failed += 1
                    print(f"knnmt: error: line {done}: {translation.error}", file=sys.stderr)
    except KeyboardInterrupt:
        finished.close()
        of = f" of {total}" if total is not None else ""
        print(f"\nknnmt: interrupted; {done}{of} lines are translated and written", file=sys.stderr)
        if waiting := finished.done - done:
            print(
                f"knnmt: {waiting} more were translated but not written, because earlier lines were not done; with "
                f"a smaller --window there are fewer",
                file=sys.stderr,
            )
        raise typer.Exit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader is gone, which is not an error
        raise typer.Exit(141) from None
    except OSError as error:
        raise StorageError(
            f"the output cannot be written: {error.strerror or error}. {done} lines are written. Make room and try "
            "again."
        ) from error
    return failed


def _as_lines(translation: Translation, number: int, columns: Columns, jsonl: bool) -> str:
    if jsonl:
        from knnmt.translator.translation import as_json

        return json.dumps(as_json(translation), ensure_ascii=False) + "\n"
    lines = []
    for each in (translation, *translation.alternatives)[: columns.n_best]:
        fields = [str(number)] if columns.n_best > 1 else []
        fields += [translation.kind or "-", _match_score(each), *_known(each)] if columns.review else []
        fields += [f"{each.score:.4f}"] if columns.scores else []
        lines.append("\t".join([*fields, each.text.replace("\n", " ")]) + "\n")
    return "".join(lines)


def _match_score(translation: Translation) -> str:
    return "-" if translation.match is None else str(translation.match.score)


def _known(translation: Translation) -> tuple[str, str]:
    """How much of the source is covered, and the certainty of the translation."""
    covered = "-" if translation.coverage is None else f"{100 * translation.coverage.covered:.0f}"
    return covered, "-" if translation.certainty is None else str(translation.certainty)
