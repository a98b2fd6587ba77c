"""Where a translation came from, word by word: its evidence in a form for people.

The share of a token that came from memory is the posterior part of equation 3's mixture, `Evidence.share`. A word's
share is the mean over its tokens, and so is a translation's: the expected part of the tokens that are the memory's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, tee
from statistics import fmean
from typing import TYPE_CHECKING, Unpack

from knnmt.corpus.match_tokens import UNPARTED
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.visible import visible
from knnmt.errors import SettingError
from knnmt.translator.spans import Span, changes_between
from knnmt.translator.translation import Token, Translation

if TYPE_CHECKING:
    from knnmt.translator.translator import CallKeywords, Translator

END = "</s>"  # how the vocabularies of all models spell the end of a sentence
_EDGE = re.compile("[][.,;:!?…\"'()«»‹›“”„‘’‚¿¡。、，；：！？「」『』（）]+")  # punctuation around words
_UNPARTED = re.compile(f"[{UNPARTED}]")
_PART = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Word:
    """A part of a translation that its tokens gave together, without white space; empty for the end of a sentence.

    span: its characters in the translation's text, (start, end)
    """

    text: str
    span: Span
    tokens: tuple[Token, ...]

    @property
    def share(self) -> float:
        """How much of it came from memory, 0 to 1."""
        return _mean_share(self.tokens)

    def part(self, token: Token) -> str:
        """The characters of the word that one of its tokens gave."""
        start, end = _span(token)
        return self.text[start - self.span[0] : end - self.span[0]]


@dataclass(frozen=True, slots=True)
class Passage:
    """Successive words that depend mostly on the same segment of the memory.

    spans: the characters of pair.target that supported them, (start, end) each, in order
    """

    text: str
    words: tuple[Word, ...]
    pair: SegmentPair
    spans: tuple[Span, ...]

    @property
    def share(self) -> float:
        """How much of the words came from memory, 0 to 1."""
        return _mean_share(token for word in self.words for token in word.tokens)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A translation with a memory, its words, and the translation of the model alone.

    source_language, target_language: those of the store, such as "de" and "en"
    """

    translation: Translation
    words: tuple[Word, ...]
    alone: str
    source_language: str = ""
    target_language: str = ""

    @property
    def share(self) -> float:
        """How much of the translation came from memory, 0 to 1."""
        return _mean_share(token for word in self.words for token in word.tokens)

    def pieces(self) -> Iterator[str | Word]:
        """The translation's text from start to end: words, and the text between them."""
        done = 0
        for word in self.words:
            if word.span[0] > done:
                yield self.translation.text[done : word.span[0]]
            yield word
            done = word.span[1]
        if done < len(self.translation.text):
            yield self.translation.text[done:]


def explain(translator: Translator, texts: Iterable[str], **settings: Unpack[CallKeywords]) -> Iterator[Explanation]:
    """Translate texts with and without a memory, and explain where each word came from. Lazy, and in order.

    Texts that the memory holds are decoded like any other.

    settings: those of `Translator.stream`; a datastore or a retrieval is needed, here or in the translator
    """
    datastore, ready = settings.get("datastore", translator.datastore), settings.get("retrieval")
    if ready is not None:
        manifest = ready.store.datastore.manifest
    elif datastore is not None:
        manifest = translator.memories.open(datastore).opened.datastore.manifest
    else:
        raise SettingError("expected a memory to explain translations with, found none: name a datastore")
    with_memory: CallKeywords = {"match": True, **settings, "evidence": True, "exact_matches": "ignore"}
    without: CallKeywords = {**settings, "datastore": None, "retrieval": None}
    without |= {"evidence": False, "steps": False, "match": False, "exact_matches": "ignore"}
    here, there = tee(texts)
    streams = translator.stream(here, **with_memory), translator.stream(there, **without)
    both: Iterator[tuple[Translation, Translation]] = zip(*streams, strict=True)
    return (
        Explanation(made, tuple(words_of(made)), alone.text, manifest.source_language, manifest.target_language)
        for made, alone in both
    )


def words_of(translation: Translation) -> Iterator[Word]:
    """The words of a translation whose tokens have spans, in order.

    Every token is in one of them, except forced ones without text: a language code comes from neither model nor memory.
    """
    group: list[Token] = []
    for token in translation.tokens:
        start, end = _span(token)
        if token.evidence and token.evidence.forced and start == end and token.text != END:
            continue
        if group and _parted(group, token, translation.text):
            yield from _without_edges(group, translation.text)
            group = []
        group.append(token)
    yield from _without_edges(group, translation.text)


def passages_of(explanation: Explanation, least: float = 0.05) -> list[Passage]:
    """The words of which at least so much came from memory, grouped by segment."""
    passages: list[Passage] = []
    next_to_it = False  # whether the previous word is the last of the last passage
    for word in explanation.words:
        spoke = _segments_for(word) if word.share >= least else {}
        if spoke:
            words: tuple[Word, ...] = (word,)
            spans: set[Span] = set()
            pair = max(spoke, key=lambda each: spoke[each][0])
            last = passages[-1] if next_to_it else None
            if last and last.pair in spoke and spoke[last.pair][0] >= spoke[pair][0] / 2:  # prefer one segment to two
                passages.pop()
                words, pair, spans = (*last.words, word), last.pair, set(last.spans)
            text = explanation.translation.text[words[0].span[0] : word.span[1]]
            passages.append(Passage(text, words, pair, tuple(sorted(spans | spoke[pair][1]))))
        next_to_it = bool(spoke)
    return passages


def _segments_for(word: Word) -> dict[SegmentPair, tuple[float, set[Span]]]:
    """The segments that supported the tokens of a word: how much each gave, and where."""
    spoke: dict[SegmentPair, tuple[float, set[Span]]] = {}
    for token, evidence in ((each, each.evidence) for each in word.tokens if each.evidence):
        for near in evidence.neighbours:
            if near.token == token.text:
                gave, spans = spoke.get(near.pair, (0.0, set()))
                spoke[near.pair] = (gave + evidence.share * near.weight, {*spans, near.span})
    return spoke


def differences(text: str, other: str) -> list[tuple[str, bool]]:
    """A text in pieces, each with whether the other text lacks it there; whole words are compared."""
    mine = _PART.findall(text)
    changes = changes_between(mine, _PART.findall(other))
    pieces = [("".join(mine[start:end]), kind != "equal") for kind, start, end, _, _ in changes if end > start]
    for place in range(1, len(pieces) - 1):
        if pieces[place - 1][1] and pieces[place + 1][1] and not pieces[place][0].strip():
            pieces[place] = pieces[place][0], True
    return [("".join(text for text, _ in same), new) for new, same in groupby(pieces, key=lambda piece: piece[1])]


def marked(text: str, spans: Iterable[Span], most: int) -> list[tuple[str, bool]]:
    """A text in pieces, each with whether ordered spans mark it; marks with only white space between them are joined.

    If the text is longer than `most`, parts far from the marks are cut at words and become …
    """
    joined: list[Span] = []
    for start, end in spans:
        if joined and not text[joined[-1][1] : start].strip():
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    first, last = (joined[0][0], joined[-1][1]) if joined else (0, 0)
    room = max(0, most - (last - first))
    behind = max(room - (len(text) - last), room // 2)  # one side gets what the other does not use
    ahead = max(room - first, room - room // 2)
    left, right = max(0, first - behind), min(len(text), last + ahead)
    if left:
        left = min(first, 1 + text.find(" ", left) or first)
    if right < len(text):
        right = max(last, text.rfind(" ", last, right))
    pieces, done = [("… " if left else "", False)], left
    for start, end in joined:
        pieces += [(text[done:start], False), (text[start:end], True)]
        done = end
    pieces += [(text[done:right], False), (" …" if right < len(text) else "", False)]
    return [piece for piece in pieces if piece[0] or piece[1]]


def _mean_share(tokens: Iterable[Token]) -> float:
    return fmean([token.evidence.share if token.evidence else 0.0 for token in tokens] or [0.0])


def _span(token: Token) -> Span:
    if token.span is None:
        raise SettingError("expected a translation made with evidence=True, found tokens without spans")
    return token.span


def _parted(group: list[Token], token: Token, text: str) -> bool:
    """Whether a token starts a new word."""
    start, end = _span(token)
    before = _span(group[-1])[1]
    if END in (token.text, group[-1].text) or start > before:
        return True
    # In scripts without spaces, every token is a word.
    letters = text[_span(group[0])[0] : before][-1:] + text[start:end][:1]
    return len(letters) == 2 and _UNPARTED.search(letters) is not None


def _without_edges(group: list[Token], text: str) -> Iterator[Word]:
    """A group of tokens as a word, with the punctuation before and after it as separate words."""
    marks = [_EDGE.fullmatch(text[slice(*_span(token))]) is not None for token in group]
    first = marks.index(False) if False in marks else len(marks)
    last = len(marks) - marks[::-1].index(False) if False in marks else len(marks)
    for part in (group[:first], group[first:last], group[last:]):
        if part:
            span = _span(part[0])[0], _span(part[-1])[1]
            yield Word(text[slice(*span)], span, tuple(part))


def piece_name(piece: str) -> str:
    """A readable name of a token of the vocabulary."""
    return "end" if piece == END else visible(piece.strip("▁Ġ") or "space")


def token_name(word: Word, token: Token) -> str:
    """A readable name of a token of a word: vocabularies have their own spellings, such as Ġ and bytes."""
    return visible(word.part(token)) or piece_name(token.text)
