"""Puts the codes of a source into its translation: in the same order around the same words, and well nested.

The translation is cut into units: words, marks, and placeholders. An alignment says how much of each unit comes from
each source token. A pair of codes goes around the units that come mostly from what it enclosed in the source, with the
pairs and codes that it contained inside. A single code goes to the place after which the least comes from the tokens
that preceded it in the source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from knnmt.protection.marked import Code, Marked, Role, joined_strings

Alignment = npt.NDArray[np.float32]
_EVEN = 0.5  # a unit belongs to the part of the source from which more than this share of it comes


@dataclass(frozen=True, slots=True)
class Placed:
    """A code in a source.

    token: the number of source tokens before it
    left: it is right after a word, without a space
    blank: it is white space, and takes the place of a space
    """

    code: Code
    token: int
    left: bool = False
    blank: bool = False


@dataclass(slots=True, eq=False)
class _Node:
    """A code or a pair, and its content. If the other half of a pair is in another segment, one of the two is None.

    start, end: source tokens; first, last: the units that it was put around
    """

    start: int
    end: int
    opening: Placed | None = None
    closing: Placed | None = None
    alone: Placed | None = None
    children: list[_Node] = field(default_factory=list)
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Units with codes between them. whole: every pair that was around words is still around words"""

    marked: Marked
    whole: bool


def arrange(text: str, units: Sequence[tuple[int, int]], codes: Sequence[Placed], alignment: Alignment) -> Arrangement:
    """The text of a translation with the codes of its source.

    units: of the text, in order; between them is white space, or nothing
    codes: in the order of the source
    alignment: (units, source tokens), not negative
    """
    weights = alignment.sum(1)
    shares = alignment / np.maximum(weights, 1e-9)[:, None]
    placing = _Placing(shares, [text[max(0, start - 1) : start].isspace() for start, _ in units])
    root = _tree(codes, alignment.shape[1])
    placing.place(root.children, 0, len(units))
    return Arrangement(_written(text, units, placing.emit(root.children, 0, len(units))), placing.whole)


def proportional(units: int, tokens: int) -> Alignment:
    """The alignment of a word-by-word translation: every unit comes from the tokens at the same relative place."""
    alignment = np.zeros((units, tokens), dtype=np.float32)
    for unit in range(units):
        first, last = unit * tokens / units, (unit + 1) * tokens / units
        for token in range(int(first), min(tokens, int(np.ceil(last)))):
            alignment[unit, token] = min(last, token + 1) - max(first, token)
    return alignment


def _tree(codes: Sequence[Placed], tokens: int) -> _Node:
    """The nesting of the codes. A pair that is cut by the end of the segment reaches that end."""
    root = _Node(0, tokens)
    opened = {placed.code.pair for placed in codes if placed.code.role is Role.OPENING}
    open_ = [root]
    for placed in codes:
        role, pair = placed.code.role, placed.code.pair
        if role is Role.OPENING and pair is not None:
            node = _Node(placed.token, tokens, opening=placed)
            open_[-1].children.append(node)
            open_.append(node)
        elif role is Role.CLOSING and pair is not None and pair in opened:
            while len(open_) > 1:
                node = open_.pop()
                if node.opening is not None and node.opening.code.pair == pair:
                    node.end, node.closing = placed.token, placed
                    break
        elif role is Role.CLOSING and pair is not None:
            # Its opening half is in an earlier segment, so it holds everything up to here.
            outer = open_[-1]
            node = _Node(0, placed.token, closing=placed, children=outer.children[:])
            outer.children[:] = [node]
        else:
            open_[-1].children.append(_Node(placed.token, placed.token, alone=placed))
    return root


class _Placing:
    """Finds the places of codes among units."""

    def __init__(self, shares: Alignment, spaced: list[bool]) -> None:
        self._shares, self._spaced = shares, spaced
        self.whole = True

    def place(self, nodes: list[_Node], low: int, high: int) -> None:
        """Put nodes around units between low and high, and their inner nodes inside them."""
        waiting = [(nodes, low, high)]
        while waiting:  # not recursive: codes may be nested more deeply than Python allows calls
            ranges = self._place_level(*waiting.pop())
            waiting += [(node.children, node.first, node.last) for node in ranges]

    def _place_level(self, nodes: list[_Node], low: int, high: int) -> list[_Node]:
        """Put nodes around units, without their inner nodes. Returns the nodes that can have some."""
        ranges = [node for node in nodes if node.alone is None]
        free = [True] * (high - low)
        for node in sorted(ranges, key=lambda each: -self._gain(each, low, high).clip(min=0).sum()):
            node.first, node.last = self._range(node, low, high, free)
            for unit in range(node.first, node.last):
                free[unit - low] = False
        inside = {gap for node in ranges for gap in range(node.first + 1, node.last)}
        for node in nodes:
            if node.alone is not None:
                node.first = node.last = self._gap(node, low, high, inside)
        return ranges

    def _gain(self, node: _Node, low: int, high: int) -> Alignment:
        gain: Alignment = self._shares[low:high, node.start : node.end].sum(1) - _EVEN
        return gain

    def _range(self, node: _Node, low: int, high: int, free: Sequence[bool]) -> tuple[int, int]:
        """The range of free units that comes most from the node's tokens."""
        if node.opening is None or node.closing is None:
            return self._reaching_an_end(node, low, high, free)
        gain = self._gain(node, low, high)
        best, found = 0.0, None
        total, start = 0.0, 0
        for unit, is_free in enumerate(free):
            if not is_free or total <= 0:
                total, start = 0.0, unit
            if is_free:
                total += float(gain[unit])
                if total > best:
                    best, found = total, (start, unit + 1)
        if found is None and node.start < node.end:
            allowed = [unit for unit, is_free in enumerate(free) if is_free]
            if allowed:
                nearest = max(allowed, key=lambda unit: float(gain[unit]))
                found = nearest, nearest + 1
            self.whole &= bool(allowed)
        if found is None:  # around nothing
            gap = self._gap(node, low, high, frozenset())
            while low < gap < high and not free[gap - low] and not free[gap - 1 - low]:
                gap += 1
            return gap, gap
        return low + found[0], low + found[1]

    def _reaching_an_end(self, node: _Node, low: int, high: int, free: Sequence[bool]) -> tuple[int, int]:
        """For half a pair: the free units up to the end that it reaches."""
        gain = self._gain(node, low, high)
        from_end = list(zip(gain, free, strict=True))
        if node.closing is None:
            from_end.reverse()
        sums = [0.0]
        for each, is_free in from_end:
            if not is_free:
                break
            sums.append(sums[-1] + float(each))
        count = max(range(len(sums)), key=lambda units: sums[units])
        return (low, low + count) if node.closing is not None else (high - count, high)

    def _gap(self, node: _Node, low: int, high: int, inside: Collection[int]) -> int:
        """The place between units that best keeps what preceded it in the source before it.

        inside: the places inside of pairs, which are not allowed
        """
        before = self._shares[low:high, : node.start].sum(1) - self._shares[low:high, node.start :].sum(1)
        sums = [0.0, *accumulate(float(each) for each in before)]
        places = [gap for gap in range(low, high + 1) if gap not in inside]
        if node.alone is not None and node.alone.blank:
            places = [gap for gap in places if low < gap < high and self._spaced[gap]] or places
        return max(places, key=lambda gap: sums[gap - low])

    def emit(self, nodes: Sequence[_Node], low: int, high: int) -> list[int | Placed]:
        """Units, by their numbers, and codes."""
        found: list[int | Placed] = []
        waiting: list[Placed | range | _Node] = [*reversed(list(_level(nodes, low, high)))]
        while waiting:
            part = waiting.pop()
            if isinstance(part, Placed):
                found.append(part)
            elif isinstance(part, range):
                found += part
            else:
                inside = [part.alone] if part.alone is not None else _level(part.children, part.first, part.last)
                parts = [each for each in (part.opening, *inside, part.closing) if each is not None]
                waiting += reversed(parts)
        return found


def _level(nodes: Sequence[_Node], low: int, high: int) -> Iterator[range | _Node]:
    """Nodes in the order of their places, and the units between them."""
    unit = low
    # At the same place, nodes that hold units come after nodes that hold none.
    for node in sorted(nodes, key=lambda each: (each.first, each.last > each.first)):
        yield range(unit, node.first)
        yield node
        unit = max(unit, node.last)
    yield range(unit, high)


def _written(text: str, units: Sequence[tuple[int, int]], arranged: Sequence[int | Placed]) -> Marked:
    """Units and codes as text, with the white space that was between the units."""
    parts: list[str | Code] = []
    waiting: list[Placed] = []
    place = 0
    for each in arranged:
        if isinstance(each, Placed):
            waiting.append(each)
            continue
        start, end = units[each]
        parts += _spaced(text[place:start], waiting)
        parts.append(text[start:end])
        waiting, place = [], end
    return joined_strings([*parts, *_spaced(text[place:], waiting)])


def _spaced(space: str, codes: Sequence[Placed]) -> list[str | Code]:
    """Codes between two units: codes that close, or come right after a word, are put before the space."""
    blanks = [each for each in codes if each.blank]
    if blanks:
        space = "".join(each.code.raw for each in blanks)
        codes = [each for each in codes if not each.blank]
    lefts = [place for place, each in enumerate(codes) if each.left or each.code.role is Role.CLOSING]
    split = lefts[-1] + 1 if lefts else 0
    if any(each.code.role is Role.OPENING for each in codes[:split]):
        split = next(place for place, each in enumerate(codes) if each.code.role is Role.OPENING)
    return [*(each.code for each in codes[:split]), space, *(each.code for each in codes[split:])]
