"""What reads foreign text takes time that grows like the text: measured from n to 8n, on generated worst cases.

`test_patterns.py` proves it for expressions; here loops are measured, too, and other people's parsers.
"""

from __future__ import annotations

import gc
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from knnmt.corpus.accelerators import drop_accelerators
from knnmt.corpus.glossary import Glossary, Term
from knnmt.corpus.inline import visible_text
from knnmt.corpus.language_guess import LanguageGuess, guess_of, recognise
from knnmt.corpus.match_tokens import word_hashes
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import loose, plain
from knnmt.corpus.sentences import split_lines, split_long, split_sentences
from knnmt.corpus.units import lines_of
from knnmt.corpus.visible import visible
from knnmt.documents.checking import check_units
from knnmt.documents.document import State, Unit
from knnmt.documents.opening import open_document
from knnmt.errors import KnnmtError
from knnmt.protection.content import content_faults
from knnmt.protection.form import in_the_form_of
from knnmt.protection.layout import layout_of
from knnmt.protection.marked import Code
from knnmt.protection.placeholder_kinds import KINDS
from knnmt.protection.placeholder_syntax import PlaceholderSyntax
from knnmt.protection.placeholders import Needs, find
from knnmt.protection.placing import Placed, arrange, proportional
from knnmt.protection.tags import with_tags
from knnmt.service.dialects.texts import TextWork, _marked
from knnmt.translator.code_placing import units_of
from knnmt.translator.explanation import differences
from knnmt.translator.guarding import Guarding
from knnmt.translator.repairing import repaired
from knnmt.translator.spans import moved_spans
from support.package_patterns import of_the_package
from support.pretending import shout_document
from support.worst_cases import documents, texts, texts_for

pytestmark = pytest.mark.soak
SEED = int(os.environ.get("KNNMT_SEED", "0"))
PAIRS = 50  # of pieces, for each function
LENGTH = 16_000  # of texts; documents are longer
FASTER = 0.02  # seconds for LENGTH that need no second look
MOST = 20.0  # times as long for 8 times the text; 64 is quadratic
EVERY_KIND = PlaceholderSyntax(tuple(dict.fromkeys(each for kind in KINDS for each in kind.where.split())))


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """The CPU time of some work, at best."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def growth(make: Callable[[int], object], read: Callable[..., object], length: int) -> float:
    """How many times as long the reader takes for 8 times the length; 0 if it is fast."""
    long, short = make(length), make(length // 8)
    read(short)
    if seconds(lambda: read(long)) < FASTER:
        return 0.0
    return seconds(lambda: read(long), 2) / max(1e-9, seconds(lambda: read(short), 3))


def require_linear(
    read: Callable[..., object], cases: Iterable[tuple[str, Callable[[int], object]]], length: int = LENGTH
) -> None:
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            grown = {name: growth(make, read, length) for name, make in cases}
    finally:
        gc.enable()
    assert grown
    slow = {name: times for name, times in grown.items() if times > MOST}
    assert not slow, "\n".join(f"{times:.0f} times as long for 8 times {name}" for name, times in slow.items())


def _glossary_of(text: str) -> Glossary:
    words = text.split()
    terms = [*words[:500], *(" ".join(words[place : place + 20]) for place in range(0, min(len(words), 500), 20))]
    return Glossary([Term(each, "end") for each in [*terms, text] if each], "de", "en")


def _in_glossary(text: str) -> None:
    glossary = _glossary_of(text)
    list(glossary.uses(text))
    for term in (Term("a", "a b a c"), Term("a", text)):
        glossary.is_met(term, text)


def _checked(source: str, target: str) -> object:
    return check_units("a", [Unit("1", (source,), (target,), State.TRANSLATED)], _glossary_of(source), language="en")


def _guarded(text: str) -> object:
    guarding = Guarding(True, None, lambda shown: len(shown) < 10, EVERY_KIND)
    return [
        guarding.segments(layout_of(marked, EVERY_KIND), True, None, False) for marked in ((text,), with_tags(text))
    ]


def _guessed(text: str) -> None:
    LanguageGuess().see(text)
    guess_of(text)
    recognise(text)


def _needed(text: str) -> object:
    needs = Needs.of(find(text, syntax=EVERY_KIND))
    return needs.unmet_in(text[: len(text) // 2], syntax=EVERY_KIND), needs.unmet_in(text)


def _units_placed(text: str) -> object:
    """Codes are placed in segments, which are not longer than a model's positions."""
    text = text[:2_000]
    units = units_of(text, find(text))[:500]
    codes = [Placed(Code(f"<x{number}/>"), number) for number in range(len(units))]
    return arrange(text, units, codes, proportional(len(units), max(1, len(units))))


READERS: dict[str, Callable[[str], object]] = {
    "placeholders": lambda text: find(text),
    "placeholders of every kind": lambda text: find(text, syntax=EVERY_KIND),
    "shown codes": lambda text: find(text, ("{1}", "X1", "a b")),
    "needs": _needed,
    "sentences": lambda text: [split_sentences(text), split_lines(text)],
    "long sentences": lambda text: split_long(text, lambda piece: len(piece) <= 20),
    "tags": lambda text: [with_tags(text, mode) for mode in ("auto", "xml", "html")],
    "dialects' mark-up": lambda text: _marked(text, TextWork(direction=None, markup=True, one_line=True)),  # type: ignore[arg-type]
    "layouts": lambda text: layout_of((text,), EVERY_KIND),
    "layouts with codes": lambda text: layout_of(with_tags(text)),
    "guarded segments": _guarded,
    "sameness": lambda text: (plain(text), loose(text)),
    "tokens": word_hashes,
    "accelerators": lambda text: drop_accelerators(text, text),
    "lines": lambda text: lines_of(SegmentPair(text, text, "a")),
    "form": lambda text: (
        in_the_form_of(text, "End", "en"),
        in_the_form_of("Ende", text, "en"),
        in_the_form_of(text, text + "a", "fr"),
    ),
    "content": lambda text: (
        content_faults(text, text + "1"),
        content_faults(text, "End"),
        content_faults("Ende", text),
    ),
    "languages": _guessed,
    "glossary": _in_glossary,
    "checking": lambda text: (_checked(text, text + " 1"), _checked(text, "End"), _checked("Ende", text)),
    "repaired matches": lambda text: repaired(text + "7", text + "8", text + "8", "en"),
    "differences": lambda text: differences(text, text[::-1]),
    "moved spans": lambda text: moved_spans([(n, n + 1) for n in range(0, len(text), 5)], text, " ".join(text.split())),
    "visible text": lambda text: (visible_text(text), visible(text)),
    "code placing": _units_placed,
}


@pytest.mark.parametrize("name", READERS)
def test_readers_of_texts_are_linear(name: str) -> None:
    require_linear(READERS[name], texts(SEED, PAIRS))


@pytest.mark.parametrize(
    ("name", "file", "make"), [pytest.param(*each, id=f"{each[1]}: {each[0]}") for each in documents()]
)
def test_documents_are_read_and_written_in_linear_time(
    name: str, file: str, make: Callable[[int], bytes], tmp_path: Path
) -> None:
    def read(content: bytes) -> None:
        (tmp_path / file).write_bytes(content)
        try:
            document = open_document(tmp_path / file, ("de", "en"))
        except KnnmtError:
            return
        shout_document(document, retranslate=True)

    require_linear(read, [(name, make)], 16 * LENGTH)  # long ones: copying is fast


@pytest.mark.parametrize("ending", ["po", "html", "md", "properties", "json", "yaml", "txt", "srt", "vtt", "xml"])
def test_documents_of_any_pieces_are_read_in_linear_time(ending: str, tmp_path: Path) -> None:
    def read(text: str) -> None:
        (tmp_path / f"a.{ending}").write_text(text, encoding="utf-8", errors="replace")
        try:
            document = open_document(tmp_path / f"a.{ending}", ("de", "en"))
        except KnnmtError:
            return
        shout_document(document)

    require_linear(read, texts(SEED, PAIRS))


def test_patterns_are_linear() -> None:
    slow = []
    for each in of_the_package():
        read = partial(_match_and_search, each.pattern, each.searched)
        try:
            require_linear(read, texts_for(each.pattern, SEED, 20))
        except AssertionError as error:
            slow.append(f"{each.place}: {error}")
    assert not slow, "\n".join(slow)


def _match_and_search(pattern: re.Pattern[Any], searched: bool, text: str) -> None:
    given: Any = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
    pattern.match(given)
    pattern.fullmatch(given)
    if searched:
        for _ in pattern.finditer(given):
            pass


def test_a_quadratic_reader_is_found() -> None:
    with pytest.raises(AssertionError, match=r"for 8 times 'a' repeated"):
        require_linear(re.compile("a*b").findall, [("'a' repeated", lambda length: "a" * (length // 4))])
    require_linear(re.compile("(?<!a)a*b").findall, [("'a' repeated", lambda length: "a" * (length // 4))])
