"""The comparison with fine-tuning: rare words, and tables in which the seeds of a system are together."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from knnmt.corpus.pairs import SegmentPair
from knnmt.evaluation.scoring import Difference, resampled_scores
from knnmt_lab.reproduction.choices import over_seeds

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TARGETS = [f"the {word} of a house stands here" for word in ("roof", "door", "wall", "floor", "lamp", "table")]


@pytest.fixture
def finetune(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import finetune

    def read(domain: str, part: str) -> list[SegmentPair]:
        return [SegmentPair(f"{domain} {part} {text}", text, f"#{number}") for number, text in enumerate(TARGETS)]

    monkeypatch.setattr(finetune, "read_domain", read)
    monkeypatch.setattr(finetune, "halves", lambda pairs: ([], list(pairs)))
    yield finetune
    sys.modules.pop("finetune")


def test_rare_words_occur_in_the_training_text_at_most_five_times(finetune: ModuleType) -> None:
    training = ["often " * 6 + "rare", "Rare seldom", "seldom, once"]
    references = ["rare often new", "once Once seldom"]
    # rare (2 times), seldom (2) and once (1) are rare; "often" is frequent, and "new" does not occur
    assert finetune.rare_recall(training, ["RARE often new", "once"], references) == (2 / 4, 4)
    assert finetune.rare_recall(training, references, references) == (1.0, 4)
    assert finetune.rare_recall(training, ["", ""], ["new", "often"]) == (0.0, 0)


def test_seeds_are_shown_as_their_mean(finetune: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sacrebleu")
    trained: dict[str, object] = {
        "updates": 3,
        "passes": 1.0,
        "before": 2.0,
        "best": 1.0,
        "ended": True,
        "seconds": 8.0,
    }
    best = [TARGETS[0].upper(), *TARGETS[1:]]
    worse, worst = ["nothing", *TARGETS[1:]], ["nothing", "at all", *TARGETS[2:]]

    def line(system: str, own: list[str], training: dict[str, object] | None = None, **others: object) -> object:
        store = system == "kNN-MT"
        numbers = (4.0, 0.5 if store else None, 0.25 if store else None, 2_000_000, 10.0)
        return finetune.Measured("it", system, own, TARGETS, *numbers, training, **others)

    found = [
        line("kNN-MT", worst, other_domain="law"),
        line("fine-tuned", worse, trained, seed=1, other_domain="law"),
        line("fine-tuned", TARGETS, {**trained, "passes": 2.0, "seconds": 10.0}, seed=2, other_domain="law"),
        line("fine-tuned, kNN-MT on top", best, trained, seed=1, other_domain="law"),
    ]
    finetune.show(found, argparse.Namespace(lines=len(TARGETS), pairs=0, domains=["it"]))
    shown = [[cell.strip() for cell in each.split("|")[1:-1]] for each in capsys.readouterr().out.lstrip().splitlines()]
    scores = [resampled_scores(each, TARGETS) for each in (worst, worse, TARGETS, best)]
    bleu, chrf = ((scores[1][metric] + scores[2][metric]) / 2 for metric in (0, 1))
    rare = f"{(5 / 6 + 1) / 2:.1%} of 6"
    assert shown[2][:4] == ["it", "kNN-MT", "1", f"{scores[0][0][0]:.2f} / {scores[0][1][0]:.2f}"]
    assert shown[2][4] == ""
    assert shown[2][7:] == ["4.0", "0.50", "0.25", "2.0", "10", "", ""]
    assert shown[3][:4] == ["it", "fine-tuned", "2", f"{bleu[0]:.2f} / {chrf[0]:.2f}"]
    assert shown[3][4:7] == [f"{scores[1][0][0]:.2f} to 100.00", "law 100.00 / 100.00", rare]
    assert shown[3][8:] == ["train again", "train again", "2.0", "10", "1.5", "9"]
    difference = Difference.of(over_seeds([scores[1][0], scores[2][0]]) - scores[0][0])
    assert difference.value == pytest.approx(float(bleu[0] - scores[0][0][0]))
    assert len(shown) == 11
    assert shown[8][:4] == ["it", "fine-tuned", "kNN-MT", told(difference)]
    assert [shown[9][:4], shown[10][:4]] == [
        ["it", "fine-tuned, kNN-MT on top", "kNN-MT", told(Difference.of(scores[3][0] - scores[0][0]))],
        [
            "it",
            "fine-tuned, kNN-MT on top",
            "fine-tuned",
            told(Difference.of(scores[3][0] - over_seeds([scores[1][0], scores[2][0]]))),
        ],
    ]


def told(difference: Difference) -> str:
    return f"{difference.value:+.2f} ± {(difference.high - difference.low) / 2:.2f}, p {difference.p_value:.3f}"
