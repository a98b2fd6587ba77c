from __future__ import annotations

import gc
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from knnmt import DecodingConfig, Translation, Translator
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.search import search_each
from knnmt.errors import (
    CutTranslationWarning,
    InputError,
    LongSegmentWarning,
    NoTranslationError,
    NoTranslationWarning,
    SettingError,
)
from knnmt.translator.translation import Caution
from knnmt.translator.translator import CallKeywords
from support.german import german_sentences


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator("de-en", device="cpu", settings="raw")


def test_one_text_gives_one_translation_and_many_give_a_list(translator: Translator) -> None:
    one = translator.translate("Danke!")
    assert isinstance(one, Translation)
    assert one.source == "Danke!"
    assert one.text == "Thank you!"
    assert [token.text for token in one.tokens] == ["▁Thank", "▁you", "!", "</s>"]
    assert one.tokens[-1].id == 0
    assert -1 < one.score < 0
    assert one.complete
    assert translator.translate(iter(["Danke!"])) == [one]
    assert translator.translate([]) == []


def test_output_order_is_input_order_however_it_is_batched(translator: Translator) -> None:
    texts = german_sentences(10)
    expected = translator.translate(texts, beam=2)
    assert [each.source for each in expected] == texts
    every: list[CallKeywords] = [{"batch_size": 1}, {"batch_size": 7}, {"batch_tokens": 60}, {"window": 5}]
    for options in every:
        options["beam"] = 2
        found = translator.translate(texts, **options)
        assert [each.text for each in found] == [each.text for each in expected], options


def test_n_best_are_different_and_sorted(translator: Translator) -> None:
    best = translator.translate(german_sentences(1)[0], n_best=4)
    ranked = [best, *best.alternatives]
    assert len({each.text for each in ranked}) == 4
    assert [each.score for each in ranked] == sorted((each.score for each in ranked), reverse=True)
    assert translator.translate(german_sentences(1)[0]).alternatives == ()


def test_empty_texts_stay_as_they_are(translator: Translator) -> None:
    texts = ["", "Ja.", "  \t", "Nein."]
    for split in (False, True):
        found = [each.text for each in translator.translate(texts, split_sentences=split)]
        assert found[0] == ""
        assert found[2] == "  \t"
        assert found[1]
        assert found[3]


def test_sentences_are_translated_one_by_one_with_their_white_space(translator: Translator) -> None:
    text = "  Guten Morgen!   Wie geht es Ihnen?\tDas ist gut. "
    parts = [translator.translate(part).text for part in ("Guten Morgen!", "Wie geht es Ihnen?", "Das ist gut.")]
    whole = translator.translate(text, split_sentences=True)
    assert whole.text == f"  {parts[0]}   {parts[1]}\t{parts[2]} "
    assert sum(token.id == 0 for token in whole.tokens) == 3
    assert translator.translate(text).text != whole.text


def test_a_text_longer_than_the_model_is_cut_at_clause_ends_with_a_warning(translator: Translator) -> None:
    clauses = german_sentences(60)
    text = ", ".join(clause.rstrip(".!") for clause in clauses)
    assert len(translator.engine.tokenizer.encode_sources([text])[0]) > 2 * 512
    with pytest.warns() as caught:
        long = translator.translate(text, beam=1, max_tokens=200)
    (said,) = [str(each.message) for each in caught if each.category is LongSegmentWarning]
    parts = re.fullmatch(
        r"a segment of \d+ tokens, more than the model's 512, was translated in (\d+) parts: 'Ge.*'", said
    )
    assert parts is not None
    assert long.warnings[0] == Caution(LongSegmentWarning, said)
    assert sum(token.id == 0 for token in long.tokens) == int(parts.group(1)) >= 3


def test_a_translation_that_hits_the_limit_is_marked(translator: Translator) -> None:
    with pytest.warns(CutTranslationWarning, match="reached the limit of 5 tokens"):
        cut = translator.translate(german_sentences(1)[0], max_tokens=5)
    assert not cut.complete
    assert len(cut.tokens) == 5


@pytest.fixture(scope="module")
def overflowing(overflowing_checkpoint: Path) -> Translator:
    return Translator(overflowing_checkpoint, device="cpu", settings="raw")


@pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
@pytest.mark.parametrize("settings", [{}, {"beam": 1}, {"n_best": 3}, {"window": 2}, {"batch_size": 1}], ids=str)
def test_a_text_without_a_translation_is_named_and_the_others_come(
    overflowing: Translator, settings: CallKeywords
) -> None:
    texts = ["Satz 4", "aßc", "Guten Tag", "", "ß"]
    with pytest.warns(NoTranslationWarning) as caught:
        found = overflowing.translate(texts, **settings)
    said = [str(each.message) for each in caught if each.category is NoTranslationWarning]
    assert [each.partition(":")[0] for each in said] == ["no translation of 'aßc'", "no translation of 'ß'"]
    assert [each.error for each in found] == [None, said[0], None, None, said[1]]
    warned = (Caution(NoTranslationWarning, said[0]),)
    assert found[1] == Translation("aßc", "", (), float("-inf"), complete=False, error=said[0], warnings=warned)
    for each in (found[0], found[2]):
        alone = overflowing.translate(each.source, **settings)
        assert (each.text, each.tokens) == (alone.text, alone.tokens)


@pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")
def test_a_text_with_a_lost_sentence_is_not_translated_in_part(overflowing: Translator) -> None:
    with pytest.raises(NoTranslationError, match=r"^no translation of 'Der ß ist da\.': no hypothesis"):
        overflowing.translate("Das ist gut. Der ß ist da. Ja.", split_sentences=True)


def endless() -> Iterator[str]:
    return itertools.cycle(german_sentences(8))


def test_an_endless_stream_is_read_only_as_far_as_needed(translator: Translator) -> None:
    read = 0

    def counted() -> Iterator[str]:
        nonlocal read
        for text in endless():
            read += 1
            yield text

    stream = translator.stream(counted(), window=4, beam=1)
    assert [next(stream).source for _ in range(5)] == list(itertools.islice(endless(), 5))
    assert read == 8


def test_a_translation_comes_as_soon_as_those_before_it_are_done(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []

    def counted(engine: Any, asked: Iterable[Any], config: Any) -> Iterator[Any]:
        for found in search_each(engine, asked, config):
            batches.append(len(found))
            yield found

    monkeypatch.setattr("knnmt.translator.stages.search_each", counted)
    long, short = german_sentences(1)[0], "Ja."
    texts = ["", short, long, "", short, long, long, short, " "]
    done: list[int] = []
    stream = translator.stream(texts, batch_size=2, beam=1, progress=done.append)
    seen = [(found.source, len(batches), sum(done)) for found in stream]
    assert [source for source, *_ in seen] == texts
    # One of each length comes first, then two long ones, then two short ones.
    assert [count for _, count, _ in seen] == [0, 1, 2, 2, 3, 3, 3, 3, 3]
    assert [count for *_, count in seen] == [3, 5, 7, 7, 9, 9, 9, 9, 9]


def test_a_stream_holds_no_more_than_its_window(translator: Translator) -> None:
    gc.collect()
    before = [type(each) for each in gc.get_objects()]  # what other tests hold
    stream = translator.stream(itertools.cycle(["Ja.", "Nein, danke."]), window=8, beam=1)
    for _ in range(81):
        next(stream)
    gc.collect()
    held = [type(each) for each in gc.get_objects()]
    assert held.count(Translation) - before.count(Translation) <= 1
    assert held.count(Hypothesis) - before.count(Hypothesis) <= 8


def test_what_is_no_text_is_refused_after_what_came_before_it_is_translated(translator: Translator) -> None:
    for odd, message in ((None, "found NoneType"), ("\ud800", "half of a surrogate pair")):
        stream = translator.stream(["Ja.", "Nein.", odd, "Ja."], beam=1)  # type: ignore[list-item]
        assert [next(stream).source, next(stream).source] == ["Ja.", "Nein."]
        with pytest.raises(InputError, match=message):
            next(stream)


def test_forbidden_tokens_are_never_an_alternative(translator: Translator) -> None:
    with pytest.warns(CutTranslationWarning):
        best = translator.translate("Ja.", n_best=2, max_tokens=1)
    assert [each.score for each in (best, *best.alternatives)] == [0.0]  # only the forced end was left


def test_settings_that_cannot_work_are_refused(translator: Translator) -> None:
    with pytest.raises(SettingError, match="n_best must lie between 1 and the beam size 2, got 3"):
        translator.translate("Ja.", beam=2, n_best=3)
    with pytest.raises(SettingError, match="beam must be at least 1"):
        translator.translate("Ja.", beam=0)
    with pytest.raises(SettingError, match="max_tokens must be at most 511"):
        translator.translate("Ja.", max_tokens=512)
    with pytest.raises(SettingError, match="batch_size must be at least 1"):
        translator.translate("Ja.", batch_size=0)
    with pytest.raises(SettingError, match="length_penalty must be at least -100 and at most 100, got nan"):
        translator.translate("Ja.", length_penalty=float("nan"))
    with pytest.raises(SettingError, match="half the vocabulary of 12000"):
        translator.translate("Ja.", beam=7000)
    with pytest.raises(SettingError, match="stream takes many texts"):
        translator.stream("Ja.")
    with pytest.raises(SettingError, match="threads must be at least 1"):
        Translator(threads=0)


def test_the_signature_says_what_made_a_score(translator: Translator) -> None:
    signature = translator.signature(beam=4, early_stopping=True)
    model, _, rest = signature.partition("|weights:")
    assert model == "model:de-en|dtype:float32"
    assert rest.partition("|")[2] == "beam:4|lp:1|early:yes|max:511|text:raw|v:0.1.0"
    assert DecodingConfig(beam=1).signature() == "beam:1|max:511"


def test_a_checkpoint_directory_works_like_the_shipped_name(translator: Translator) -> None:
    directory = Path("src/knnmt/models/de-en")
    assert Translator(directory, device="cpu", settings="raw").translate("Guten Morgen!") == translator.translate(
        "Guten Morgen!"
    )
