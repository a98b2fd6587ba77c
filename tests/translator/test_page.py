"""The page: its structure, that text stays text, and that it stands alone."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import html

from knnmt import Evidence, Match, SegmentPair, Token, explanation_page
from knnmt.corpus.visible import visible
from knnmt.translator.evidence import percent
from knnmt.translator.explanation import Word, token_name
from support.made_explanations import END, FORCED, evidence, explanation_of, made_explanation, near, translation_of

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


def test_no_line_begins_with_a_closing_mark_or_the_end_alone() -> None:
    words = parsed(explanation_page([made_explanation()])).xpath("//div[@class='words']")[0]
    assert [text_of(each) for each in words] == ["Skid", "cleared.end"]
    assert words[1].get("class") == "unbroken"


def test_a_panel_shows_tokens_their_probabilities_and_neighbours_in_context() -> None:
    document = parsed(explanation_page([made_explanation()]))
    skid, cleared, *_ = document.xpath("//details[@class='panel']")
    assert [text_of(title) for title in skid.xpath(".//h4")] == ["Sk", "id"]
    first = skid.xpath("./div[@class='token']")[0]
    assert "The model gives 1.0% and the memory 80%. With λ = 0.90 the result is 72%." in text_of(first)
    groups = [text_of(group) for group in first.xpath(".//p[@class='group']")]
    assert groups == [
        "Neighbours with this token: 80% of the weight",
        "Neighbours with other tokens: 20% of the weight",
    ]
    same, other = first.xpath(".//li")
    assert [text_of(each) for each in same.xpath("./b | .//p | .//mark | .//small")] == [
        "80%",
        "Skid cleared.",
        "Sk",
        "segment 1 · distance 2.5",
    ]
    assert text_of(other.xpath(".//mark")[0]) == "T"
    assert same.xpath(".//p/@lang") == ["en"]
    parts = [text_of(part) for part in first.xpath("./p[@class='parts']/span")]
    assert parts == ["72% from memory", "0.1% from the model", "28% for other tokens"]
    (bar,) = first.xpath("./div[@class='mixture']/@style")
    assert bar == "--memory:72.0%;--both:72.1%"
    assert "come from the cache" in text_of(cleared)
    assert "The memory was not searched. The model alone gives 97%." in text_of(cleared)
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


def test_a_segment_of_the_memory_stands_there_once_and_neighbours_lead_to_it() -> None:
    made = made_explanation()
    page = explanation_page([made, made])
    document = parsed(page)
    (listed,) = document.xpath("//details[@class='pairs']")
    assert text_of(listed.xpath("./summary")[0]) == "2 segments of the memory"
    assert [[text_of(part) for part in item] for item in listed.xpath("./ol/li")] == [
        ["Skid cleared.", "Die Palette wurde freigegeben.", "lager.tmx#tu1"],
        ["Tag cleared.", "Das Etikett wurde freigegeben.", "lager.tmx#tu2"],
    ]
    assert listed.xpath("./ol/li[1]/p/@lang") == ["en", "de"]
    assert page.count("Das Etikett wurde freigegeben.") == page.count("lager.tmx#tu2") == 1
    targets = {item.get("id"): text_of(item[0]) for item in listed.xpath("./ol/li")}
    neighbours = document.xpath("//ol[@class='near']/li")
    assert len(neighbours) == 14
    for item in neighbours:
        (place,) = item.xpath(".//small/a/@href")
        assert targets[place.removeprefix("#")].startswith(text_of(item.xpath(".//p")[0]).removesuffix("end"))
    assert "pairs" not in parsed(explanation_page([explanation_of(translation_of(("▁x", None)))])).xpath("//@class")


def test_a_long_segment_is_shown_around_the_token() -> None:
    pair = SegmentPair("Quelle", f"{'before ' * 30}here {'after ' * 30}", "own#1")
    found = translation_of(("▁here", evidence(0.5, 0.1, "▁here", near("▁here", pair, 1.0))))
    document = parsed(explanation_page([explanation_of(found)]))
    (shown,) = document.xpath("//ol[@class='near']/li//p")
    assert re.fullmatch("… (before )+here( after)+ …", text_of(shown))
    assert len(text_of(shown)) < 90
    assert text_of(document.xpath("//details[@class='pairs']/ol/li/p")[0]) == pair.target


def test_those_that_weigh_most_are_shown_and_the_others_counted() -> None:
    pairs = [SegmentPair(f"Quelle {n}", f"one two {n}", f"own#{n}") for n in range(12)]
    same = [near("▁one", pair, 0.01 * n) for n, pair in enumerate(pairs[:10], 1)]
    others = [near("▁two", pair, 0.225) for pair in pairs[10:]]
    made = explanation_of(translation_of(("▁one", evidence(0.5, 0.1, "▁one", *same, *others))))
    document = parsed(explanation_page([made]))
    assert [text_of(each) for each in document.xpath("//ol[@class='near']/li/b")] == ["9.0%", "10%", "22%", "22%"]
    assert [text_of(each) for each in document.xpath("//p[@class='group']")] == [
        "Neighbours with this token: 55% of the weight, 2 of 10 shown",
        "Neighbours with other tokens: 45% of the weight",
    ]
    assert len(document.xpath("//details[@class='pairs']/ol/li")) == 4
    document = parsed(explanation_page([made], neighbours=12))
    assert len(document.xpath("//ol[@class='near']/li")) == 12
    (folded,) = document.xpath("//details[@class='more']")
    assert len(folded.xpath(".//li")) == 6
    assert text_of(folded.xpath("./summary")[0]) == "6 more"
    assert not parsed(explanation_page([made], neighbours=0)).xpath("//li")


def test_a_page_of_many_segments_is_not_made_of_the_same_texts_again_and_again() -> None:
    """200 segments of 20 tokens with 8 neighbours each, of a memory of 400: it was 18 MB."""
    pairs = [SegmentPair(f"{n} {'Quelle ' * 12}", f"one {n} {'target ' * 12}", f"{'x' * 40}#{n}") for n in range(400)]

    def token(number: int) -> tuple[str, Evidence]:
        found = (near("▁one", pairs[(7 * number + n) % 400], 1 / 8) for n in range(8))
        return "▁one", evidence(0.5, 0.1, "▁one", *found)

    made = [explanation_of(translation_of(*(token(20 * each + n) for n in range(20)))) for each in range(200)]
    assert len(explanation_page(made).encode()) < 8_000_000


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
    shown, listed = document.xpath("//li")
    assert text_of(shown.xpath(".//p")[0]) == visible(pair.target)
    assert [text_of(each) for each in listed] == list(map(visible, (pair.target, pair.source, pair.origin)))
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
    assert str(evidence(0.0, 0.5, "x")) == "The memory was not searched. The model alone gives 50%."
    assert str(FORCED) == "This token was forced; neither the model nor the memory chose it."
