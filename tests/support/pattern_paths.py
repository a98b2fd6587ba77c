"""Finds the texts that a pattern reads in more than one way, from its parse tree; without matching a text.

The tree becomes an automaton whose positions are the pattern's characters (Glushkov's construction). A backtracking
engine needs more than linear time only if one word leads from a repeat to itself, from that repeat to another, and from
the other to itself (Weber and Seidl 1991). A search is a repeat of any character before the pattern.
Lookarounds count exactly if they look at one character, and as if they always held if they look at more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_MANY = 100  # a repeat with a higher limit counts as one without
_SAMPLE = (
    "".join(map(chr, range(0x100)))
    + "ŠšΩдЖשع中あ가٣\u0300\u0e01\u2009\u2028\u200b\u202f…“”„‘’–—、。！？：；」』）（￼\ufeff\ud800😀"
)
_BEFORE = -1  # the position before the pattern


@dataclass(frozen=True)
class _Condition:
    """What holds between two characters; an empty string stands for the text's begin or end.

    exact: whether it can fail only if it does not hold; otherwise more of the text decides
    """

    holds: Callable[[str, str], bool]
    exact: bool = True


_Conditions = tuple[_Condition, ...]
_UNKNOWN = _Condition(lambda _before, _after: True, exact=False)
_Ends = list[tuple[int, _Conditions]]


@dataclass
class _Part:
    """A part of a pattern: where it can begin and end, and on which conditions it is empty."""

    first: _Ends = field(default_factory=list)
    last: _Ends = field(default_factory=list)
    empty: list[_Conditions] = field(default_factory=list)


class Automaton:
    """The automaton of one alternative of a pattern.

    characters: what each position reads, one character for all that the alternative treats alike
    """

    def __init__(self, nodes: Sequence[Any], state: Any, flags: int, is_bytes: bool) -> None:
        self._state = state
        self._bytes = is_bytes
        named = "".join(_named(nodes))
        known = dict.fromkeys(_SAMPLE + named + named.swapcase())
        self._sample = [each for each in known if not is_bytes or ord(each) < 256]
        self.characters: list[frozenset[str]] = []
        self._sets: list[frozenset[str]] = [self._word_characters(flags), frozenset("\n")]
        self._word = self._sets[0]
        self.edges: dict[int, _Ends] = {}
        self.atomic: list[frozenset[int]] = []
        self._known_ways: dict[tuple[int, str, frozenset[int]], dict[str, list[int]]] = {}
        whole = self._sequence(nodes, flags)
        self.edges[_BEFORE] = whole.first
        self._merge_characters()
        self.sure = self._sure(whole.last)

    def _word_characters(self, flags: int) -> frozenset[str]:
        word = re.compile(r"\w", flags & re.ASCII)
        return frozenset(each for each in self._sample if (not self._bytes or ord(each) < 128) and word.match(each))

    def _merge_characters(self) -> None:
        alike: dict[tuple[bool, ...], str] = {}
        for each in sorted(self._sample, key=lambda each: (not each.isalnum(), not each.isprintable())):
            alike.setdefault(tuple(each in some for some in self._sets), each)
        self.alphabet = frozenset(alike.values())
        self.characters = [some & self.alphabet for some in self.characters]

    def _sure(self, last: _Ends) -> frozenset[int]:
        """The positions from which a match cannot fail, whatever follows."""
        sure = frozenset(range(len(self.characters)))
        while (fewer := frozenset(each for each in sure if self._goes_on(each, last, sure))) != sure:
            sure = fewer
        return sure

    def _goes_on(self, position: int, last: _Ends, sure: frozenset[int]) -> bool:
        ends = [conditions for each, conditions in last if each == position]
        ways = [*((_BEFORE, each) for each in ends), *(way for way in self.edges.get(position, ()) if way[0] in sure)]
        return all(
            any(
                (following == _BEFORE or after in self.characters[following])
                and all(each.exact and each.holds(before, after) for each in conditions)
                for following, conditions in ways
            )
            for before, after in product(self.characters[position], (*self.alphabet, ""))
        )

    # The construction

    def _sequence(self, nodes: Iterable[Any], flags: int) -> _Part:
        whole = _Part(empty=[()])
        for node in nodes:
            whole = self._joined(whole, self._part(node, flags))
        return whole

    def _joined(self, left: _Part, right: _Part) -> _Part:
        self._connect(left.last, right.first)
        return _Part(
            left.first + [(each, before + own) for before in left.empty for each, own in right.first],
            right.last + [(each, own + after) for after in right.empty for each, own in left.last],
            [one + other for one, other in product(left.empty, right.empty)],
        )

    def _connect(self, last: _Ends, first: _Ends) -> None:
        for (end, after), (begin, before) in product(last, first):
            self.edges.setdefault(end, []).append((begin, after + before))

    def _part(self, node: tuple[Any, Any], flags: int) -> _Part:
        kind, value = node
        if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            return self._character(self._read(node, flags))
        if kind is sre.GROUPREF:
            return self._joined(self._character(frozenset(self._sample)), _Part(empty=[(_UNKNOWN,)]))
        if kind is sre.SUBPATTERN:
            return self._sequence(value[3], (flags | value[1]) & ~value[2])
        if kind is sre.BRANCH:
            parts = [self._sequence(branch, flags) for branch in value[1]]
            return _Part(
                [each for part in parts for each in part.first],
                [each for part in parts for each in part.last],
                [each for part in parts for each in part.empty],
            )
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            return self._repeat(value, flags, possessive=kind is sre.POSSESSIVE_REPEAT)
        if kind is sre.ATOMIC_GROUP:
            if len(value) == 1 and value[0][0] is sre.MAX_REPEAT:  # (?>a*) is a*+
                return self._repeat(value[0][1], flags, possessive=True)
            return self._bound(len(self.characters), self._sequence(value, flags))
        if kind is sre.AT:
            return _Part(empty=[(self._place(value, flags),)])
        if kind in (sre.ASSERT, sre.ASSERT_NOT):
            return self._lookaround(value[0], value[1], kind is sre.ASSERT, flags)
        raise NotImplementedError(f"expected a kind of node that this module knows, found {kind}: add it to `_part`")

    def _character(self, characters: frozenset[str]) -> _Part:
        self.characters.append(characters)
        self._sets.append(characters)
        position = len(self.characters) - 1
        return _Part([(position, ())], [(position, ())])

    def _read(self, node: tuple[Any, Any], flags: int) -> frozenset[str]:
        one = re._compiler.compile(parser.SubPattern(self._state, [node]), flags)  # type: ignore[attr-defined]
        text = (lambda each: each.encode("latin-1")) if self._bytes else str
        return frozenset(each for each in self._sample if one.fullmatch(text(each)))

    def _repeat(self, repeat: tuple[int, Any, Any], flags: int, possessive: bool) -> _Part:
        """A repeat: without a limit a cycle; with one at most two copies that must be there and one that may."""
        least, most, body = repeat
        start = len(self.characters)
        endless = most is sre.MAXREPEAT or most > _MANY
        whole = _Part(empty=[()])
        for _ in range(min(least, 2) - (endless and least > 0)):
            whole = self._joined(whole, self._sequence(body, flags))
        if endless or most > least:
            more = self._sequence(body, flags)
            if endless:
                self._connect(more.last, more.first)
            goes_on = frozenset[str]()  # what is enough for another round
            if possessive:
                whole_rounds = {each for each in more.first if each in more.last and not each[1]}
                goes_on = goes_on.union(*(self.characters[each] for each, _ in whole_rounds))
            ended = (_Condition(lambda _before, after: after not in goes_on),) if goes_on else ()
            if endless:
                more.last = [(each, conditions + ended) for each, conditions in more.last]
            if not endless or least == 0:
                more.empty = [*more.empty, ended]
            whole = self._joined(whole, more)
        return self._bound(start, whole) if possessive else whole

    def _bound(self, start: int, part: _Part) -> _Part:
        """An atomic part: what follows it is tried once."""
        self.atomic.append(frozenset(range(start, len(self.characters))))
        return part

    def _place(self, place: Any, flags: int) -> _Condition:
        word = self._word
        if place in (sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY):
            return _Condition(lambda before, after: ((before in word) != (after in word)) == (place is sre.AT_BOUNDARY))
        if place is sre.AT_BEGINNING and flags & re.MULTILINE:
            return _Condition(lambda before, _after: before in ("", "\n"))
        if place in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            return _Condition(lambda before, _after: before == "")
        return _Condition(lambda _before, after: after == "" or (after == "\n" and place is sre.AT_END))

    def _lookaround(self, direction: int, body: Any, positive: bool, flags: int) -> _Part:
        if len(body) == 1 and body[0][0] in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            some = self._read(body[0], flags)
            self._sets.append(some)
            if direction < 0:
                return _Part(empty=[(_Condition(lambda before, _after: (before in some) == positive),)])
            return _Part(empty=[(_Condition(lambda _before, after: (after in some) == positive),)])
        inside = self._sequence(body, flags) if direction > 0 else _Part()
        return _Part(first=inside.first, empty=[(_UNKNOWN,)])

    # The search for words

    def steps(self, position: int, before: str) -> Iterator[tuple[int, str]]:
        """The positions and characters that can follow a position that has read `before`."""
        for following, conditions in self.edges.get(position, ()):
            for character in self.characters[following]:
                if all(each.holds(before, character) for each in conditions):
                    yield following, character

    def word(
        self, begin: tuple[int, ...], end: tuple[int, ...], before: str, within: Sequence[frozenset[int]]
    ) -> str | None:
        """The shortest word that leads each of some positions to another, and ends with the character before it."""
        words = {(begin, before): ""}
        waiting = [(begin, before)]
        for state in waiting:
            ways = [self._ways(each, state[1], inside) for each, inside in zip(state[0], within, strict=True)]
            for read in sorted(set(ways[0]).intersection(*ways[1:])):
                for following in product(*(way[read] for way in ways)):
                    if following == end and read == before:
                        return words[state] + read
                    if (following, read) not in words:
                        words[following, read] = words[state] + read
                        waiting.append((following, read))
        return None

    def _ways(self, position: int, before: str, within: frozenset[int]) -> dict[str, list[int]]:
        key = position, before, within
        if key in self._known_ways:
            return self._known_ways[key]
        ways: dict[str, list[int]] = self._known_ways.setdefault(key, {})
        if position == _BEFORE and _BEFORE in within:
            ways.update({each: [_BEFORE] for each in self.alphabet})
        for following, read in self.steps(position, before):
            if following in within:
                ways.setdefault(read, []).append(following)
        return ways

    def reached(self, position: int) -> frozenset[int]:
        """The positions that can follow a position, at once or later."""
        found: set[int] = set()
        waiting = [position]
        while waiting:
            for following, _ in self.edges.get(waiting.pop(), ()):
                if following not in found:
                    found.add(following)
                    waiting.append(following)
        return frozenset(found)


def repeated_words(pattern: re.Pattern[Any], searched: bool) -> list[str]:
    """Words that, repeated, a pattern reads in more ways than one; a linear pattern has none.

    searched: whether a search can begin at any place
    """
    tree = parser.parse(pattern.pattern, pattern.flags)
    automata = (
        Automaton(each, tree.state, pattern.flags, isinstance(pattern.pattern, bytes)) for each in alternatives(tree)
    )
    return sorted({word for each in automata for word in _repeated_words(each, searched)}, key=len)


def alternatives(nodes: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The alternatives of a whole pattern; no text is read in part by one and in part by another."""
    if len(nodes) == 1 and nodes[0][0] is sre.BRANCH:
        for each in nodes[0][1][1]:
            yield from alternatives(each)
    elif len(nodes) == 1 and nodes[0][0] is sre.SUBPATTERN and not (nodes[0][1][1] or nodes[0][1][2]):
        yield from alternatives(nodes[0][1][3])
    else:
        yield nodes


def _repeated_words(automaton: Automaton, searched: bool) -> Iterator[str]:
    reached = {each: automaton.reached(each) for each in range(_BEFORE, len(automaton.characters))}
    cycles = {each: frozenset(other for other in reached[each] if each in reached[other]) for each in reached}
    repeated = [each for each in reached if cycles[each]]
    for each in repeated:
        double = [other for other, _ in automaton.edges[each] if other in cycles[each]]
        yield from filter(None, (_parallel(automaton, each, other) for other in {*double} if double.count(other) > 1))
    triples = [
        (one, other, cycles[other])
        for one in repeated
        for other in repeated
        if one != other and not any(cycles[one] <= each and other not in each for each in automaton.atomic)
    ]
    if searched:  # a search goes on behind a run in which a match can end anywhere
        cycles[_BEFORE] = frozenset({_BEFORE})
        triples += [(_BEFORE, each, cycles[each] - automaton.sure) for each in repeated if each not in automaton.sure]
    for one, other, cycle in triples:
        if other in reached[one]:
            between = frozenset(each for each in {one, *reached[one]} if each == other or other in reached[each])
            common = automaton.characters[other] & (automaton.alphabet if one == _BEFORE else automaton.characters[one])
            within = (cycles[one], between, cycle)
            words = (automaton.word((one, one, other), (one, other, other), each, within) for each in sorted(common))
            yield from islice(filter(None, words), 1)


def _parallel(automaton: Automaton, one: int, other: int) -> str | None:
    """A word with two ways over one step of a repeat."""
    ways = [conditions for each, conditions in automaton.edges[one] if each == other]
    for before, after in product(sorted(automaton.characters[one]), sorted(automaton.characters[other])):
        if sum(all(each.holds(before, after) for each in conditions) for conditions in ways) > 1:
            return before + after
    return None


def _named(nodes: Iterable[Any]) -> Iterator[str]:
    """The ends of the ranges of a pattern, and the characters beside them."""
    for node in nodes:
        if isinstance(node, tuple | list | parser.SubPattern):
            if len(node) == 2 and node[0] is sre.RANGE:
                low, high = node[1]
                yield from (chr(each) for each in (low - 1, low, high, high + 1) if 0 <= each < 0x110000)
            elif len(node) == 2 and node[0] in (sre.LITERAL, sre.NOT_LITERAL):
                yield chr(node[1])
            else:
                yield from _named(node)
