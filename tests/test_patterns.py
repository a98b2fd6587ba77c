"""Every pattern takes time that grows like the text it reads, whatever the text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.package_patterns import EXAMPLES, made_in_functions, of_the_package
from support.pattern_paths import repeated_words


def test_every_pattern_is_linear() -> None:
    refused = {each: words for each in of_the_package() if (words := repeated_words(each.pattern, each.searched))}
    assert not refused, "\n".join(
        f"{each.place} reads {words[0]!r}, repeated, in more ways than one: {each.pattern.pattern!r}. "
        "See docs/contributing.md, Patterns."
        for each, words in refused.items()
    )


def test_every_pattern_is_found() -> None:
    unread = {each for each in made_in_functions() if isinstance(each, str)}
    assert unread == EXAMPLES.keys(), "make the pattern of constants and re.escape, or add examples of it"


@pytest.mark.parametrize(
    ("pattern", "searched"),
    [
        (r"a*a*b", False),  # adjacent repeats
        (r"\s*\n\s*x", False),
        (r".*x.*y", False),
        (r"a*b?a*c", False),  # adjacent if what is between them is not there
        (r"(?:a|a)*b", False),
        (r"(a*)*b", False),  # nested repeats
        (r"(?:a?b?)*c", False),
        (r"(?:\w+\s?)*!", False),
        (r"(?:\d{1,3})*x", False),
        (r"\w{0,300}\w{0,300}x", False),
        (r"a+(?=a*b)", False),
        (r"(?:a*+b?)*a*c", False),
        (r"(?i:A*)a*b", False),
        (rb"\s*\s*x", False),
        (r"\s+$", True),  # a search begins again inside the run
        (r"<[^>]*>", True),
        (r"<!--.*?-->", True),
        (r"[.!?]++(?=\s)", True),
        (r"(?=[\w-]*[A-Z])\w", True),
        (r"(?<!x)\w+:", True),
        (r"a(?:a*b)?", True),
        (r"(?m)^\s*#", True),
    ],
)
def test_a_repeat_that_reads_a_text_in_many_ways_is_found(pattern: str | bytes, searched: bool) -> None:
    assert repeated_words(re.compile(pattern), searched)


@pytest.mark.parametrize(
    ("pattern", "searched"),
    [
        (r"\s+$", False),
        (r"a*+a*b", False),
        (r"(?>a*)a*b", False),
        (r"(?:[^\\]|\\.)*+\\", False),
        (r"\s*x\s*y", False),
        (r"(?:\d{3})*x", False),
        (r'"(?:[^"\\]|\\.)*"', False),
        (r"(?:ab|c)*d", False),
        (r"\w+(?:-\w+)*", True),
        (r"\s+", True),
        (r"<[^<>]*>", True),
        (r"<[^>]*+>?", True),
        (r"<!--.*?(?:-->|\Z)(?s:)", False),
        (r"(?s)<!--.*?(?:-->|\Z)", True),
        (r"(?<!\s)\s+$", True),
        (r"(?<![.!?])[.!?]++(?=\s)", True),
        (r"\b\w+:", True),
        (r"\A\s*#", True),
        (r"(?m)^[ \t]*#", True),
        (r"xa*y", True),
    ],
)
def test_a_linear_pattern_is_not_refused(pattern: str, searched: bool) -> None:
    assert not repeated_words(re.compile(pattern), searched)


def test_the_page_for_contributors_shows_what_the_test_refuses_and_what_it_accepts() -> None:
    page = Path(__file__).parent.parent.joinpath("docs", "contributing.md").read_text("utf-8")
    section = page.partition("## Patterns\n")[2].partition("\n## ")[0].replace("\\|", "\N{BROKEN BAR}")
    rows = [line.split("|")[1:4:2] for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) > 5
    for slow, linear in rows:
        for cell, is_slow in ((slow, True), (linear, False)):
            pattern = re.compile(cell.split("`")[1].replace("\N{BROKEN BAR}", "|"), re.DOTALL)
            assert bool(repeated_words(pattern, "searched" in slow)) == is_slow
