"""The page: its structure, that text stays text, and that it stands alone."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import html
from made_explanations import END, FORCED, evidence, explanation_of, made_explanation, near, translation_of

from knnmt import Match, SegmentPair, Token, explanation_page
from knnmt.corpus.visible import visible
from knnmt.translator.explanation import Word
from knnmt.translator.wording import because, percent, token_name

ANY_TEXT = st.text(min_size=1, max_size=30)
TRAPS = [
    "<b>&amp;</b>",
    "\"'><script>alert(1)</script>",
    "--></style></script>",
    "a\x00\x1b[31m\x9b\u202eb",
    "{0} {x}",
    "]]>",
]


def parsed(page: str) -> html.HtmlElement:
    return html.document_fromstring(page)


def text_of(element: html.HtmlElement) -> str:
    return str(element.text_content())


def test_every_word_is_a_button_that_controls_a_panel_of_its_own() -> None:
    made = made_explanation()
    document = parsed(explanation_page([made, made]))
    ids = document.xpath("//@id")
    assert len(ids) == len(set(ids))
    for number, segment in enumerate(document.xpath("//article"), 1):
        buttons = segment.xpath(".//button")
        assert [text_of(button) for button in buttons] == ["Skid", "cleared", ".", "end"]
        assert [button.get("aria-controls") for button in buttons] == [
            panel.get("id") for panel in segment.xpath("./details")
        ]
        assert {button.get("aria-expanded") for button in buttons} == {"false"}
        assert {panel.get("name") for panel in segment.xpath("./details")} == {f"s{number}"}  # one open at a time
        assert [button.get("style") for button in buttons] == [f"--share:{word.share:.3f}" for word in made.words]
        labels = [button.get("aria-label") for button in buttons]
        assert labels[0] == "Skid, 94% from memory"
        assert labels[-1] == "end of the sentence, 53% from memory"
        assert text_of(segment.xpath("./div[@class='words']")[0]) == "Skid cleared.end"


def test_a_panel_shows_tokens_their_probabilities_and_neighbours_in_context() -> None:
    document = parsed(explanation_page([made_explanation()]))
    skid, cleared, *_ = document.xpath("//details[@class='panel']")
    assert [text_of(title) for title in skid.xpath(".//h4")] == ["Sk", "id"]
    first = skid.xpath("./div[@class='token']")[0]
    assert "The model gives it 1.0%, the memory 80%; with λ 0.90 that makes 72%." in text_of(first)
    groups = [text_of(group) for group in first.xpath(".//p[@class='group']")]
    assert groups == [
        "Neighbours with this token: 80% of the weight",
        "Neighbours with other tokens: 20% of the weight",
    ]
    same, other = first.xpath(".//li")
    assert [text_of(each) for each in same.xpath(".//p | .//mark | ./span")] == [
        "80%",
        "Skid cleared.",
        "Sk",
        "Die Palette wurde freigegeben.",
        "lager.tmx#tu1 · distance 2.5",
    ]
    assert text_of(other.xpath(".//mark")[0]) == "T"
    assert same.xpath(".//p[1]/@lang | .//p[2]/@lang") == ["en", "de"]
    assert "taken over from the cache" in text_of(cleared)
    assert "Nothing was looked up in the memory: the model alone gives it 97%." in text_of(cleared)
    end = document.xpath("//details[@class='panel']")[-1]
    assert text_of(end.xpath(".//mark")[0]) == "end"


def test_what_the_model_alone_says_and_the_closest_segment() -> None:
    document = parsed(explanation_page([made_explanation()], note="model:de-en|k:8"))
    facts = document.xpath("//dl/dd")
    assert text_of(facts[1]) == "The pallet is cleared."
    assert [text_of(mark) for mark in facts[1].xpath("./mark")] == ["The pallet is"]
    assert [text_of(line) for line in facts[2]] == [
        "Die Palette wurde freigegeben.",
        "Skid cleared.",
        "80% · lager.tmx#tu1",
    ]
    assert [text_of(mark) for mark in facts[2].xpath(".//mark")] == ["wurde"]
    assert "model:de-en|k:8" in text_of(document.xpath("//footer")[0])


def test_many_neighbours_are_folded_away_and_all_there() -> None:
    pairs = [SegmentPair(f"Quelle {n}", f"one {n}", f"own#{n}") for n in range(9)]
    found = [near("▁one", pair, 1 / 9) for pair in pairs]
    document = parsed(explanation_page([explanation_of(translation_of(("▁one", evidence(0.5, 0.1, "▁one", *found))))]))
    assert len(document.xpath("//li")) == 9
    folded = document.xpath("//details[@class='more']")
    assert [len(each.xpath(".//li")) for each in folded] == [5]
    assert text_of(folded[0].xpath("./summary")[0]) == "5 more"


@settings(max_examples=50)
@given(ANY_TEXT | st.sampled_from(TRAPS))
def test_text_of_a_memory_comes_back_as_it_is(text: str) -> None:
    pair = SegmentPair(f"q{text}", f"{text}t", f"o{text}")
    made = translation_of(
        ("▁t", evidence(0.5, 0.2, "▁t", near("▁t", pair, 1.0))),
        (END, None),
        source=f"s{text}",
        match=Match(pair.source, pair.target, pair.origin, 70, False),
    )
    source = explanation_page([explanation_of(made, f"a{text}")], title=f"x{text}", note=f"n{text}")
    document = parsed(source)
    (item,) = document.xpath("//li")
    texts = [text_of(each) for each in item.xpath(".//p")]
    assert texts == [visible(pair.target), visible(pair.source), f"{visible(pair.origin)} · distance 2.5"]
    assert text_of(document.xpath("//h2")[0]) == visible(f"s{text}")
    assert text_of(document.xpath("//h1")[0]) == visible(f"x{text}")
    assert text_of(document.xpath("//dd")[1]) == visible(f"a{text}")
    assert text_of(document.xpath("//dd/span")[0]) == visible(pair.source)
    assert len(document.xpath("//script")) == len(document.xpath("//style")) == 1
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", source)
    source.encode("utf-8")


def test_the_page_needs_nothing_else_and_lets_no_other_script_run() -> None:
    page = explanation_page([made_explanation()])
    assert not re.search(r"https?:|url\(|@import|<link|<img|src=", page)
    document = parsed(page)
    script = text_of(document.xpath("//script")[0])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = document.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_languages_are_named_and_may_be_written_from_the_right() -> None:
    document = parsed(explanation_page([made_explanation()]))
    assert document.get("lang") == "en"
    assert [(each.get("lang"), each.get("dir")) for each in document.xpath("//h2 | //div[@class='words']")] == [
        ("de", "auto"),
        ("en", "auto"),
    ]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (0, "0%"),
        (1e-9, "under 0.1%"),
        (0.0123, "1.2%"),
        (0.0994, "9.9%"),
        (0.1, "10%"),
        (0.62, "62%"),
        (0.9949, "99%"),
        (0.9971, "99.7%"),
        (0.99999, "100%"),
        (1, "100%"),
    ],
)
def test_percentages(part: float, said: str) -> None:
    assert percent(part) == said


def test_tokens_are_called_by_the_characters_they_gave() -> None:
    tokens = (Token(1, "Ġgrÿ", None, (3, 5)), Token(2, "Ã¼", None, (5, 6)), Token(3, "Ġ", None, (6, 6)))
    word = Word("grün", (3, 7), tokens)
    assert [token_name(word, token) for token in tokens] == ["gr", "ü", "space"]


def test_a_token_that_was_not_looked_up_is_the_models() -> None:
    assert because(evidence(0.0, 0.5, "x")) == "Nothing was looked up in the memory: the model alone gives it 50%."
    assert because(FORCED) == "It was forced: neither the model nor the memory was asked."
