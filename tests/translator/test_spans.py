"""Where tokens stand in text: every character is found again, also where decoding does not give the segment back."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.engine.checkpoint import find_checkpoint
from knnmt.engine.shipped import DEFAULT_MODEL
from knnmt.engine.tokenizer import Tokenizer, load_tokenizer
from knnmt.translator.spans import changes_between, span_in_segment, spans_of

WORDS = st.sampled_from(
    ["Goods-in", "record", "cleared", ".", "50", "%s", "über", "<b>", "你好", "😀", "\u200bx", "ﬁn…"]
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(find_checkpoint(DEFAULT_MODEL))


def marked(tokenizer: Tokenizer, segment: str) -> list[str]:
    (tokens,) = tokenizer.encode_targets([segment])
    spans = [span_in_segment(tokenizer, tokens, position, segment) for position in range(len(tokens))]
    return [segment[start:end] for start, end in spans]


@given(words=st.lists(WORDS, min_size=1, max_size=8))
def test_spans_follow_each_other_and_leave_out_only_white_space(tokenizer: Tokenizer, words: list[str]) -> None:
    (tokens,) = tokenizer.encode_targets([" ".join(words)])
    text, spans = tokenizer.decode(tokens), spans_of(tokenizer, tokens)
    assert len(spans) == len(tokens)
    done = 0
    for start, end in spans:
        assert done <= start <= end
        assert not text[done:start].strip()
        assert text[start:end] == text[start:end].strip()
        done = end
    assert done == len(text)


def test_tokens_in_a_segment_that_decodes_to_itself(tokenizer: Tokenizer) -> None:
    assert marked(tokenizer, "Goods-in record cleared.") == [
        "Go",
        "od",
        "s",
        "-",
        "in",
        "record",
        "clear",
        "ed",
        ".",
        "",
    ]


def test_the_end_of_a_sentence_is_the_end_of_its_segment(tokenizer: Tokenizer) -> None:
    for segment in ("Job cleared.", "Job cleared.  ", "Job 世", " Job"):
        (tokens,) = tokenizer.encode_targets([segment])
        end = len(segment)
        assert span_in_segment(tokenizer, tokens, len(tokens) - 1, segment) == (end, end)


@pytest.mark.parametrize("gap", [" ", "  ", "\t", "\n ", "\u00a0"])
def test_white_space_that_the_vocabulary_does_not_have_moves_no_mark(tokenizer: Tokenizer, gap: str) -> None:
    assert marked(tokenizer, f"{gap}Job{gap}cleared.") == ["Jo", "b", "clear", "ed", ".", ""]


def test_each_byte_of_a_character_stands_for_all_of_it(tokenizer: Tokenizer) -> None:
    *found, end = marked(tokenizer, "a 你b")
    assert [each for each in found if each != "a"][-4:] == ["你", "你", "你", "b"]
    assert end == ""


class Normalising:
    """A tokenizer that writes characters in their plainest form; each is a token, 0 the end."""

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*map(ord, unicodedata.normalize("NFKC", text)), 0] for text in texts]

    encode_targets = encode_sources

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(each) for each in ids if each)

    def piece(self, token: int) -> str:
        return chr(token)


def test_what_is_written_in_another_way_is_found() -> None:
    assert marked(Normalising(), "b…cﬁ!") == ["b", "…", "…", "…", "c", "ﬁ", "ﬁ", "!", ""]


@given(words=st.lists(WORDS, min_size=1, max_size=8), gap=st.sampled_from([" ", "  ", "\t"]))
def test_marks_go_from_left_to_right_and_reach_every_letter(words: list[str], gap: str) -> None:
    segment = gap.join(words)
    (tokens,) = Normalising().encode_targets([segment])
    spans = [span_in_segment(Normalising(), tokens, position, segment) for position in range(len(tokens))]
    letters = [(span, token) for span, token in zip(spans, tokens, strict=True) if chr(token).strip() and token]
    assert [span for span, _ in letters] == sorted(span for span, _ in letters)
    assert {place for (start, end), _ in letters for place in range(start, end)} >= {
        place for place, letter in enumerate(segment) if letter.strip()
    }


def test_a_character_that_the_vocabulary_lacks_is_marked_where_it_was(tiny_tokenizer: Tokenizer) -> None:
    assert tiny_tokenizer.decode(tiny_tokenizer.encode_targets(["a世b"])[0]) == "ab"
    assert marked(tiny_tokenizer, "a世b") == ["a", "世", "b", ""]


@pytest.fixture(scope="module")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    from support.checkpoints import write_letter_tokenizer

    place = tmp_path_factory.mktemp("tokenizer")
    write_letter_tokenizer(place / "tokenizer.json")
    return load_tokenizer(place)


@given(st.text("ab \n", max_size=12), st.text("ab \n", max_size=12), st.text("a b", max_size=12))
def test_changes_turn_one_text_into_the_other(first: str, second: str, same: str) -> None:
    for one, other in ((first, second), (same + first, same + second), (first + same, second + same)):
        changes = changes_between(one, other)
        assert "".join(one[start:end] for _, start, end, _, _ in changes) == one
        assert "".join(other[start:end] for _, _, _, start, end in changes) == other
        assert all(one[a:b] == other[c:d] for kind, a, b, c, d in changes if kind == "equal")


def test_long_texts_are_compared_from_both_ends() -> None:
    one, other = f"x{'ab' * 5000}y", f"x{'ba' * 5000}y"
    assert changes_between(one, other) == [
        ("equal", 0, 1, 0, 1),
        ("replace", 1, 10001, 1, 10001),
        ("equal", 10001, 10002, 10001, 10002),
    ]
