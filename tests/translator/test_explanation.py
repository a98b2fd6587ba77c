"""Explanations: words rejoin to the text, and shares are what equations 2 and 3 say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt import Explanation, SegmentPair, Translator, explain
from knnmt.datastore.store import Datastore
from knnmt.engine.transformer import TransformerEngine
from knnmt.errors import SettingError
from knnmt.translator.explanation import Word, differences, marked, passages_of, words_of
from support.datastore_pairs import some_pairs
from support.family_checkpoints import make_family, write_tokenizer
from support.made_explanations import END, evidence, explanation_of, made_explanation, near, translation_of

TEXTS = ["Satz 3 ja ja", "Satz 12. anders!", "", "Satz 100 ja. Satz 7."]
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.CutTranslationWarning")


@pytest.fixture(scope="module")
def translator(tiny_checkpoint: Path, tiny: TransformerEngine, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    store = Datastore.build(tmp_path_factory.mktemp("stores") / "s", some_pairs(25), tiny)
    return Translator(tiny_checkpoint, device="cpu", datastore=store, k=4, temperature=20.0, settings="raw")


def test_shares_are_those_of_equations_2_and_3(translator: Translator) -> None:
    weight, seen = 0.6, 0
    for found in explain(translator, TEXTS, interpolation_weight=weight, split_sentences=True):
        for token in found.translation.tokens:
            why = token.evidence
            assert why is not None
            if not why.neighbours:  # the last token, forced where the translation grew too long
                assert why.share == 0
                continue
            scores = np.exp(-(np.array([each.distance for each in why.neighbours]) ** 2) / 20.0)
            same = [each.token == token.text for each in why.neighbours]
            memory = weight * (scores / scores.sum())[same].sum()
            expected = memory / (memory + (1 - weight) * why.model_probability)
            assert why.share == pytest.approx(expected, abs=1e-4)
            seen += 0.01 < expected < 0.99
        of_words = [word.share * len(word.tokens) for word in found.words]
        assert sum(of_words) == pytest.approx(found.share * len(found.translation.tokens))
    assert seen > 10


def rejoined(found: Explanation) -> str:
    return "".join(piece if isinstance(piece, str) else piece.text for piece in found.pieces())


def test_words_hold_every_token_and_rejoin_to_the_text(translator: Translator) -> None:
    for found in explain(translator, TEXTS, split_sentences=True):
        assert rejoined(found) == found.translation.text
        assert [token for word in found.words for token in word.tokens] == list(found.translation.tokens)
        for word in found.words:
            assert word.text == found.translation.text[slice(*word.span)]
            assert word.text.split() == ([word.text] if word.text else [])


def test_a_language_code_is_no_part_of_a_word(tmp_path: Path) -> None:
    checkpoint = make_family(tmp_path, "m2m100", {"max_length": 12, "forced_bos_token_id": None})
    write_tokenizer(checkpoint, ["__de__", "__en__"])
    translator = Translator(checkpoint, device="cpu", source_lang="de", target_lang="en")
    store = Datastore.build(tmp_path / "store", some_pairs(5), translator.engine)
    sure = {"datastore": store, "k": 1, "interpolation_weight": 0.9, "temperature": 1.0, "split_sentences": True}
    (found,) = explain(translator, ["Satz ja! Satz nein!"], **sure)  # type: ignore[arg-type]
    assert [token.text for token in found.translation.tokens].count("__en__") == 2
    assert rejoined(found) == found.translation.text
    tokens = [token for word in found.words for token in word.tokens]
    assert tokens == [token for token in found.translation.tokens if token.text != "__en__"]
    assert found.share == pytest.approx(np.mean([token.evidence.share for token in tokens if token.evidence]))


def test_an_explanation_has_what_the_model_alone_says_the_closest_segment_and_languages(translator: Translator) -> None:
    found = list(explain(translator, iter(TEXTS), interpolation_weight=0.9))
    plain = translator.translate(TEXTS, interpolation_weight=0.9, match=True)
    assert [each.translation.text for each in found] == [each.text for each in plain]
    assert [each.translation.match for each in found] == [each.match for each in plain]
    alone = [each.text for each in translator.translate(TEXTS, datastore=None)]
    assert [each.alone for each in found] == alone
    assert alone != [each.text for each in plain]
    assert {(each.source_language, each.target_language) for each in found} == {("de", "en")}


def test_with_a_weight_of_nothing_nothing_comes_from_memory(translator: Translator) -> None:
    for found in explain(translator, TEXTS, interpolation_weight=0.0):
        assert found.share == 0
        assert found.alone == found.translation.text
        assert passages_of(found) == []


def test_without_a_memory_there_is_nothing_to_explain(translator: Translator) -> None:
    with pytest.raises(SettingError, match="expected a memory to explain translations with"):
        explain(translator, TEXTS, datastore=None)


def test_words_are_made_of_translations_with_evidence(translator: Translator) -> None:
    with pytest.raises(SettingError, match="made with evidence=True"):
        list(words_of(translator.translate(TEXTS[0])))


def texts(words: tuple[Word, ...]) -> list[str]:
    return [word.text for word in words]


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["▁Good", "s", "-", "in", "▁record", "."], ["Goods-in", "record", "."]),
        (["▁(", "don", "'", "t", "!", ")"], ["(", "don't", "!)"]),
        (["▁", "5", "0", "▁%", "s", "▁<", "b", ">"], ["50", "%s", "<b>"]),
        (["▁...", "▁—"], ["...", "—"]),
        (["▁", "你", "好", "▁ok"], ["你", "好", "ok"]),
        (["▁Yes", ".", END, "▁No", END], ["Yes", ".", "", "No", ""]),
    ],
)
def test_words_are_made_of_the_tokens_between_spaces_without_the_punctuation_around_them(
    pieces: list[str], words: list[str]
) -> None:
    assert texts(tuple(words_of(translation_of(*((piece, None) for piece in pieces))))) == words


@given(st.lists(st.sampled_from(["▁a", "b", "▁", ".", "▁(", "你", "-", END]), max_size=12))
def test_any_tokens_rejoin(pieces: list[str]) -> None:
    made = explanation_of(translation_of(*((piece, None) for piece in pieces)))
    assert rejoined(made) == made.translation.text
    assert [token for word in made.words for token in word.tokens] == list(made.translation.tokens)


def test_the_shares_of_tokens_words_and_translation() -> None:
    made = made_explanation()
    memory = [0.72 / (0.72 + 0.1 * 0.01), 0.8 / (0.8 + 0.2 * 0.5), 0.9 / (0.9 + 0.1 * 0.1), 0, 0.3 / 0.93, 0.5 / 0.95]
    assert [token.evidence.share for token in made.translation.tokens if token.evidence] == pytest.approx(memory)
    assert texts(made.words) == ["Skid", "cleared", ".", ""]
    assert made.words[0].share == pytest.approx((memory[0] + memory[1]) / 2)
    assert made.share == pytest.approx(sum(memory) / 6)


def test_words_in_a_row_that_owe_most_to_one_segment_are_a_passage() -> None:
    first, second = passages_of(made_explanation())[:2]
    assert (first.text, first.pair.origin, first.spans) == ("Skid cleared", "lager.tmx#tu1", ((0, 2), (2, 4), (5, 10)))
    assert (second.text, second.pair.origin) == (".", "lager.tmx#tu2")
    assert first.share == pytest.approx(sum(word.share * 2 for word in first.words) / 4)


def test_a_word_of_the_model_parts_two_passages_of_one_segment() -> None:
    pair = SegmentPair("x", "one two three", "own#1")
    made = explanation_of(
        translation_of(
            ("▁one", evidence(0.9, 0.1, "▁one", near("▁one", pair, 1.0))),
            ("▁new", evidence(0.9, 0.9, "▁new", near("▁two", pair, 1.0))),
            ("▁three", evidence(0.9, 0.1, "▁three", near("▁three", pair, 1.0))),
        )
    )
    assert [each.text for each in passages_of(made)] == ["one", "three"]


@given(st.text(alphabet="ab .", max_size=20), st.text(alphabet="ab .", max_size=20))
def test_differences_rejoin_and_mark_nothing_where_texts_are_the_same(text: str, other: str) -> None:
    pieces = differences(text, other)
    assert "".join(piece for piece, _ in pieces) == text
    assert not any(new for _, new in differences(text, text))
    if not set(re.findall(r"\w+|\.", text)) & set(re.findall(r"\w+|\.", other)):
        assert all(new for piece, new in pieces if piece.strip())


def test_differences_are_whole_words_with_the_spaces_between_them() -> None:
    changes = differences("Do you want to delete the file?", "Scrap the file?")
    assert changes == [("Do you want to delete", True), (" the file?", False)]


@given(
    text=st.text(alphabet="abc  ", max_size=60),
    cuts=st.lists(st.integers(0, 60), min_size=2, max_size=6),
    most=st.integers(0, 70),
)
def test_marked_text_keeps_its_marks_and_what_is_near(text: str, cuts: list[int], most: int) -> None:
    places = sorted(min(cut, len(text)) for cut in cuts)[: len(cuts) // 2 * 2]
    spans = list(zip(places[::2], places[1::2], strict=True))
    pieces = marked(text, spans, most)
    plain = "".join(piece for piece, _ in pieces)
    assert plain.removeprefix("… ").removesuffix(" …").strip() in text
    for start, end in spans:
        assert text[start:end] in "".join(piece for piece, is_marked in pieces if is_marked)
    if most >= len(text):
        assert plain == text
    assert len(plain) <= max(most, places[-1] - places[0]) + len("…  …")
