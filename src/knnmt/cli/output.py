"""What `knnmt translate` writes: lines, with scores and numbers on request, or JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from knnmt.cli.interrupt import Interrupts
from knnmt.cli.progress import Tally
from knnmt.cli.streams import unguarded
from knnmt.errors import NoTranslationWarning, SettingError, StorageError

if TYPE_CHECKING:
    from knnmt.corpus.pairs import SegmentPair
    from knnmt.index.covering import Coverage
    from knnmt.translator.evidence import Evidence
    from knnmt.translator.translation import Translation


def require_other_output(output: Path | None, files: list[Path] | None) -> None:
    """Refuse to write over what is being read."""
    if output is None or not output.exists():
        return
    read = [file.stat() for file in files if file.exists()] if files else [os.fstat(sys.stdin.fileno())]
    if any(os.path.samestat(output.stat(), each) for each in read):
        raise SettingError(f"--output {output} is what is read from, and would be overwritten while it is read")


@contextmanager
def open_output(output: Path | None) -> Iterator[TextIO]:
    """A file to write to, or standard output.

    Translations are data, written as they are, except where a person reads them: on a terminal nothing may act.
    """
    if output is None:
        stream = sys.stdout if sys.stdout.isatty() else unguarded(sys.stdout)
        stream.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield stream
        return
    try:
        file = output.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise SettingError(f"--output {output}: cannot be written: {error.strerror}") from error
    try:
        yield file
    except BaseException:
        with suppress(OSError):  # a full disk refuses what is left once more; the first time is what is told
            file.close()
        raise
    file.close()


@dataclass(frozen=True, slots=True)
class Columns:
    """What is printed before a translation. n_best: how many there are a line; above 1 with the line's number"""

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
    """Write translations as they come, and say how many failed; what is written stays, whatever ends it."""
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
                f"knnmt: {waiting} more were done before lines that stand above them, and are not written; "
                "a smaller --window leaves fewer",
                file=sys.stderr,
            )
        raise typer.Exit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on; not an error
        raise typer.Exit(141) from None
    except OSError as error:
        raise StorageError(
            f"the output cannot be written: {error.strerror or error}. {done} lines are written; make room, try again."
        ) from error
    return failed


def _as_lines(translation: Translation, number: int, columns: Columns, jsonl: bool) -> str:
    if jsonl:
        return json.dumps(_as_json(translation), ensure_ascii=False) + "\n"
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
    """How much of the source is covered, and how sure the translation is."""
    covered = "-" if translation.coverage is None else f"{100 * translation.coverage.covered:.0f}"
    return covered, "-" if translation.certainty is None else str(translation.certainty)


def _as_json(translation: Translation) -> dict[str, object]:
    alternatives = [
        {"text": each.text, "score": each.score, "tokens": [token.text for token in each.tokens]}
        for each in translation.alternatives
    ]
    told = [each for each in translation.warnings if each.kind is not NoTranslationWarning]  # which is its error
    cautions = [{"kind": each.kind.__name__, "message": each.message} for each in told]
    segments: dict[SegmentPair, int] = {}  # which the steps of a sentence find again and again
    evidence = [token.evidence and _told(token.evidence, segments) for token in translation.tokens]
    return {
        "source": translation.source,
        "text": translation.text,
        "kind": translation.kind,
        "score": translation.score if translation.error is None else None,
        "complete": translation.complete,
        "tokens": [token.text for token in translation.tokens],
        **({"alternatives": alternatives} if alternatives else {}),
        **({"evidence": evidence, "segments": [asdict(each) for each in segments]} if any(evidence) else {}),
        **({"match": asdict(translation.match)} if translation.match else {}),
        **({"warnings": cautions} if cautions else {}),
        **({"coverage": _rounded(translation.coverage)} if translation.coverage else {}),
        **({"certainty": translation.certainty} if translation.certainty is not None else {}),
        **({"error": translation.error} if translation.error is not None else {}),
    }


def _rounded(coverage: Coverage) -> dict[str, float]:
    return {name: round(part, 4) for name, part in asdict(coverage).items()}


def _told(evidence: Evidence, segments: dict[SegmentPair, int]) -> dict[str, object]:
    """Evidence with as many digits as mean something; a neighbour's pair is its place among `segments`."""
    neighbours = [
        {
            "token": near.token,
            "distance": round(near.distance, 4),
            "weight": round(near.weight, 6),
            "segment": segments.setdefault(near.pair, len(segments)),
            "position": near.position,
            "span": near.span,
            "entry": near.entry,
        }
        for near in evidence.neighbours
    ]
    return {
        "probability": round(evidence.probability, 6),
        "model_probability": round(evidence.model_probability, 6),
        "memory_probability": round(evidence.memory_probability, 6),
        "interpolation_weight": round(evidence.interpolation_weight, 6),
        "cached": evidence.cached,
        "forced": evidence.forced,
        "neighbours": neighbours,
    }
