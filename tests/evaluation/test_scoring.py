from __future__ import annotations

import sys

import numpy as np
import pytest
import sacrebleu

from knnmt.errors import MissingDependencyError, SettingError
from knnmt.evaluation.scoring import compare, require_sacrebleu, score

REFERENCES = [
    f"the file number {n} has been {'saved' if n % 3 else 'deleted'} in the folder {n % 5}" for n in range(14)
]
GOOD = [text.replace("folder", "directory") if n % 4 == 0 else text for n, text in enumerate(REFERENCES)]
POOR = [text.replace("has been", "was").replace("number ", "") if n % 2 else text for n, text in enumerate(REFERENCES)]


def test_the_scores_are_those_of_sacrebleu() -> None:
    found = score(POOR, REFERENCES)
    assert found.bleu.value == sacrebleu.corpus_bleu(POOR, [REFERENCES]).score
    assert found.chrf.value == sacrebleu.corpus_chrf(POOR, [REFERENCES]).score
    assert found.bleu.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert found.chrf.signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|")
    assert (found.bleu.interval, found.bleu.p_value) == (None, None)


def naive_bootstrap(metric: str, first: list[str], other: list[str], resamples: int) -> tuple[float, float]:
    """Interval of the other system and p-value of its difference, by scoring whole resampled corpora."""
    corpus_score = {"bleu": sacrebleu.corpus_bleu, "chrf": sacrebleu.corpus_chrf}[metric]
    draws = np.random.default_rng(12345).choice(len(first), size=(resamples, len(first)), replace=True)

    def scores(hypotheses: list[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        resampled = [
            corpus_score([hypotheses[i] for i in draw], [[REFERENCES[i] for i in draw]]).score for draw in draws
        ]
        return np.array(resampled)

    real = corpus_score(other, [REFERENCES]).score - corpus_score(first, [REFERENCES]).score
    of_other = np.sort(scores(other))
    differences = scores(other) - scores(first)
    as_far = sum(abs(difference - differences.mean()) >= abs(real) for difference in differences)
    cut = resamples // 40
    return (of_other[-1 - cut] - of_other[cut]) / 2, (as_far + 1) / (resamples + 1)


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_significance_is_that_of_a_naive_bootstrap(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    close = [*REFERENCES[:-1], "something else"]
    for other in (POOR, close, GOOD):
        alone, found = (getattr(each, metric) for each in compare([GOOD, other], REFERENCES, resamples=41))
        interval, p_value = naive_bootstrap(metric, GOOD, other, 41)
        assert alone.p_value is None
        assert alone.value == getattr(score(GOOD, REFERENCES), metric).value
        assert found.interval == pytest.approx(interval, abs=1e-3)
        assert found.p_value == pytest.approx(p_value, abs=1e-9)
        assert "|bs:41|seed:12345|" in found.signature


def test_equal_systems_differ_by_chance_and_clearly_different_ones_do_not() -> None:
    _, same, other = compare([GOOD, GOOD, ["nothing alike"] * len(GOOD)], REFERENCES, resamples=99)
    assert (same.bleu.p_value, same.chrf.p_value) == (1.0, 1.0)
    assert (other.bleu.p_value, other.chrf.p_value) == (0.01, 0.01)


def test_chance_alone_is_rarely_called_a_difference() -> None:
    """Of two systems that differ by chance alone, p is below a half for about half of the texts, not for all."""
    rng = np.random.default_rng(0)
    small = 0
    for _ in range(30):
        either = rng.integers(0, 2, len(REFERENCES)).astype(bool)
        one = [poor if coin else good for good, poor, coin in zip(REFERENCES, POOR, either, strict=True)]
        two = [good if coin else poor for good, poor, coin in zip(REFERENCES, POOR, either, strict=True)]
        p_value = compare([one, two], REFERENCES, resamples=40)[1].chrf.p_value
        assert p_value is not None
        small += p_value < 0.5
    assert 5 <= small <= 25


def test_a_language_that_sacrebleu_cannot_score_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", None)
    with pytest.raises(SettingError, match="cannot score the language 'ja'"):
        require_sacrebleu("ja")


def test_one_system_has_an_interval_and_nothing_to_be_compared_with() -> None:
    (found,) = compare([POOR], REFERENCES, resamples=20)
    assert found.bleu.interval is not None
    assert found.bleu.interval > 0
    assert found.bleu.p_value is None


def test_the_target_language_chooses_the_tokens() -> None:
    assert "|tok:zh|" in score(["文件"], ["文件"], "zh-CN").bleu.signature
    assert "|tok:13a|" in score(["a"], ["a"], "de-AT").bleu.signature


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(SettingError, match="a hypothesis for each of 14 references, got 13"):
        compare([POOR, GOOD[:-1]], REFERENCES)
    with pytest.raises(SettingError, match="no segment"):
        score([], [])


def test_without_sacrebleu_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'knnmt\[evaluate\]'"):
        score(POOR, REFERENCES)
