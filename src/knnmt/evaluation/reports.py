"""The report of an evaluation, the same in text, JSON and Markdown; every number with its signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from knnmt.datastore.overlap import Known
from knnmt.errors import CometError
from knnmt.evaluation.running import Run
from knnmt.evaluation.scoring import Score, Scores
from knnmt.evaluation.segments import HALVES, EvaluationText
from knnmt.translator.settings import TranslationSettings
from knnmt.version import __version__

NOT_MEASURED = "not measured"
_HEADER = ["system", "BLEU", "±", "p", "chrF", "±", "p", "COMET", "searches", "saved", "tokens/s"]


@dataclass(frozen=True, slots=True)
class SystemReport:
    """A system with its hypotheses' scores; `comet` is None if it was not measured."""

    run: Run
    scores: Scores
    comet: Score | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The systems, the text and the results of a comparison.

    text: the translated text; with `skipped_known` without known segments
    known: how much of the complete text each store holds
    no_comet: why COMET was not measured
    """

    systems: Sequence[SystemReport]
    text: EvaluationText
    known: Mapping[str, Known]
    skipped_known: bool
    settings: TranslationSettings
    machine: str
    no_comet: str = CometError.advice

    def __str__(self) -> str:
        return self.as_text()

    def as_text(self) -> str:
        """For a terminal: facts, the table, signatures and warnings."""
        facts = self._facts()
        width = max(len(name) for name, _ in facts) + 2
        lines = [f"{name:<{width}}{fact}" for name, fact in facts]
        rows = [_HEADER, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
        lines.append("")
        for row in rows:
            cells = [
                f"{cell:<{wide}}" if column == 0 else f"{cell:>{wide}}"
                for column, (cell, wide) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        signatures = self._signatures()
        width = max(len(name) for name, _ in signatures) + 2
        lines += ["", *(f"{name:<{width}}{signature}" for name, signature in signatures)]
        lines += [f"\n{remark}" for remark in self._remarks()]
        return "\n".join(lines) + "\n"

    def as_markdown(self) -> str:
        """The report as Markdown."""
        lines = ["# Evaluation", "", *(f"- {name}: {fact}" for name, fact in self._facts()), ""]
        for number, row in enumerate([_HEADER, *self._rows()]):
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
            if number == 0:
                lines.append("|---|" + "---:|" * (len(_HEADER) - 1))
        lines += ["", *(f"- {name}: `{signature}`" for name, signature in self._signatures())]
        lines += [f"\n{remark}" for remark in self._remarks()]
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        """The report for programs, with all digits."""
        return {
            "knnmt": __version__,
            "machine": self.machine,
            **self.settings.without_retrieval.given(),
            "text": self.text.name,
            "half": self.text.half,
            "segments": len(self.text.segments),
            "left_out": dict(self.text.left_out),
            "known": [
                {"store": store, "sources": len(each.sources), "pairs": len(each.pairs)}
                for store, each in self.known.items()
            ],
            "skipped_known": self.skipped_known,
            "not_measured": {} if self._has_comet else {"COMET": self.no_comet},
            "remarks": self._remarks(),
            "systems": [
                {
                    "name": each.run.name,
                    "signature": each.run.signature,
                    "bleu": asdict(each.scores.bleu),
                    "chrf": asdict(each.scores.chrf),
                    "comet": {"value": each.comet.value, "signature": each.comet.signature} if each.comet else None,
                    **asdict(each.run.figures),
                    "tokens_per_second": each.run.figures.tokens_per_second,
                    "reused": each.run.reused,
                }
                for each in self.systems
            ],
        }

    @property
    def _has_comet(self) -> bool:
        return all(each.comet for each in self.systems)

    def _facts(self) -> list[tuple[str, str]]:
        split = ", split into sentences" if self.settings.split_sentences else ""
        facts = [
            ("text", f"{len(self.text.segments):,} segments of {self.text.name}: {HALVES[self.text.half]}"),
            *(("left out", f"{count:,}  {reason}") for reason, count in self.text.left_out.items()),
            ("search", f"beam {self.settings.beam}, batches of {self.settings.batch_size}{split}"),
            ("machine", f"{self.machine}; knnmt {__version__}"),
        ]
        reused = [each.run.name for each in self.systems if each.run.reused]
        return [*facts, ("taken over", f"{', '.join(reused)}, from an earlier run")] if reused else facts

    def _rows(self) -> list[list[str]]:
        rows = []
        for each in self.systems:
            figures = each.run.figures
            scores = [cell for score in (each.scores.bleu, each.scores.chrf) for cell in _score_cells(score)]
            comet = f"{each.comet.value:.4f}" if each.comet else NOT_MEASURED
            searched = [f"{figures.searches:,}", f"{figures.saved:.1%}"] if figures.rows else ["-", "-"]
            rows.append([each.run.name, *scores, comet, *searched, f"{figures.tokens_per_second:,.0f}"])
        return rows

    def _signatures(self) -> list[tuple[str, str]]:
        first = self.systems[0]
        metrics = [("BLEU", first.scores.bleu.signature), ("chrF", first.scores.chrf.signature)]
        comet = [("COMET", first.comet.signature)] if first.comet else []
        return [*metrics, *comet, *((each.run.name, each.run.signature) for each in self.systems)]

    def _remarks(self) -> list[str]:
        total = len(self.text.segments)
        remarks = [
            f"Warning: the source of {len(each.sources):,} of {total:,} segments is in {store} "
            f"({len(each.pairs):,} with the same target), which favours systems with this store. --skip-known "
            "leaves them out for all systems."
            for store, each in self.known.items()
            if each.sources and not self.skipped_known
        ]
        if not self._has_comet:
            remarks.append(f"COMET {NOT_MEASURED}: {self.no_comet}")
        if len(self.systems) > 1:
            remarks.append(
                "± is half of the 95 % interval; p is the probability that chance alone makes as large a "
                f"difference from {self.systems[0].run.name} (paired bootstrap)."
            )
        return remarks


def _score_cells(score: Score) -> list[str]:
    interval = "-" if score.interval is None else f"{score.interval:.2f}"
    return [f"{score.value:.2f}", interval, "-" if score.p_value is None else f"{score.p_value:.3f}"]
