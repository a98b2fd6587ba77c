"""A report of speed for people and programs: text, Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from knnmt_lab.bench.running import REST, STAGES, BenchReport, Measurement
from knnmt_lab.bench.text import BenchText

_Rows = list[list[str]]


def as_text(report: BenchReport) -> str:
    """For the terminal, in aligned columns."""
    return _written(report, _aligned, "")


def as_markdown(report: BenchReport) -> str:
    """For documents."""
    return "# Generation speed\n\n" + _written(report, _marked_down, "- ")


def as_json(report: BenchReport) -> str:
    """All measurements of every round, with medians and ratios."""
    content = asdict(report)
    content["config"]["settings"] = report.config.settings.given()
    for told, each in zip(content["measurements"], report.measurements, strict=True):
        told |= {"median": each.median, "ratio": report.ratio(each)}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _written(report: BenchReport, table: Callable[[_Rows], str], item: str) -> str:
    parts = [
        _conditions(report),
        *(f"{warning[0].upper()}{warning[1:]}." for warning in report.text.warnings),
        "Tokens per second (median, slowest and fastest round); searches saved (of all, and without first steps):",
        table(_speed_rows(report)),
        "Where the time went, in milliseconds per token:",
        table(_stage_rows(report)),
        "\n".join(f"{item}{name}: {signature}" for name, signature in report.signatures.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _conditions(report: BenchReport) -> str:
    config = report.config
    parts = [
        _machines(report),
        f"beam {config.settings.resolved().beam}",
        _text(report.text),
        _counted(config.rounds, "round"),
    ]
    return ", ".join(parts if report.load is None else [*parts, f"load before {report.load:.1f}"])


def _machines(report: BenchReport) -> str:
    """The machines: only one, if it is the same for all systems, as it should be."""
    told = set(report.machines.values())
    return told.pop() if len(told) == 1 else "; ".join(f"{name}: {each}" for name, each in report.machines.items())


def _text(text: BenchText) -> str:
    name = f" of {text.name}" if text.name else ""
    return f"{_counted(text.sentences, 'sentence')}{name} (sha256 {text.sha256})"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _speed_rows(report: BenchReport) -> _Rows:
    rows = [["system", "batch", "tokens/s", "range", f"/ {report.systems[0]}", "saved", "MiB"]]
    for each in report.measurements:
        saved, after = each.saved, each.saved_after_first_steps
        rows.append(
            [
                *_which(each),
                f"{each.median:,.0f}",
                f"{min(each.speeds):,.0f} to {max(each.speeds):,.0f}",
                f"{report.ratio(each):.2f}",
                "-" if saved is None else f"{saved:.0%} ({'-' if after is None else f'{after:.0%}'})",
                "-" if each.resident_mib is None else f"{each.resident_mib:,}",
            ]
        )
    return rows


def _stage_rows(report: BenchReport) -> _Rows:
    stages = [*STAGES, REST]
    return [["system", "batch", *stages]] + [
        [*_which(each), *(f"{each.stage_milliseconds[stage]:.3f}" for stage in stages)] for each in report.measurements
    ]


def _which(measurement: Measurement) -> list[str]:
    return [measurement.system, str(measurement.batch_size)]


def _aligned(rows: _Rows) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        name, *numbers = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        return "  ".join([f"{name.strip():<{widths[0]}}", *numbers])

    return "\n".join(map(line, rows))


def _marked_down(rows: _Rows) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    head, *others = (f"| {' | '.join(row)} |" for row in escaped)
    return "\n".join([head, "|---" + "|---:" * (len(rows[0]) - 1) + "|", *others])
