"""An explanation for a terminal: the translation, shaded by what came from memory, and the segments behind it.

Without colour, numbers replace shades. Everything is `rich` text, never its markup, so brackets in a segment stay
brackets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from knnmt.corpus.visible import visible
from knnmt.translator.evidence import in_per_cent, percent
from knnmt.translator.explanation import Explanation, Passage, Word, differences, marked, passages_of, token_name

if TYPE_CHECKING:
    from knnmt.corpus.pairs import SegmentPair
    from knnmt.segments.matches import Match
    from knnmt.translator.spans import Span
    from knnmt.translator.translation import Token

# From none to all: backgrounds on which black is readable, whatever the terminal's colours.
_SHADES = ["", "black on #e3f1ee", "black on #c2e4dc", "black on #97d3c6", "black on #62bfad", "bold black on #3fae9a"]
_MAX_PASSAGES = 10  # shown without --full
_MIN_SHARE = 0.05  # of a word, to be worth naming
_CONTEXT = 72  # characters of a segment


def print_explanation(explanation: Explanation, console: Console, full: bool = False) -> None:
    """Show an explanation: the segments that gave most, with the words that they gave; or, in full, everything."""
    console.print(_summary(explanation, console))
    for part in map(_in_full, explanation.words) if full else _passages(passages_of(explanation, _MIN_SHARE)):
        console.print()
        console.print(Padding(part, (0, 0, 0, 2)))


def segment_text(pair: SegmentPair, spans: Iterable[Span], most: int = _CONTEXT) -> Text:
    """A segment on three lines: its target with tokens in angle quotes, its source, its origin."""
    text = Text()
    for piece, is_marked in marked(pair.target, spans, most):
        text.append(f"«{visible(piece) or 'end'}»" if is_marked else visible(piece), "bold" if is_marked else "")
    source = "".join(piece for piece, _ in marked(pair.source, (), most))
    return text.append(f"\n{visible(source)}\n").append(visible(pair.origin), "dim")


def _summary(explanation: Explanation, console: Console) -> RenderableType:
    translation = explanation.translation
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    lines.add_row("source", Text(visible(translation.source)))
    lines.add_row("target", Text(translation.error, "red") if translation.error else _shaded(explanation, console))
    same = explanation.alone == translation.text
    alone = [
        (visible(text), "underline" if new else "") for text, new in differences(explanation.alone, translation.text)
    ]
    lines.add_row("alone", Text("the same", "dim") if same else Text.assemble(*alone))
    if translation.match:
        lines.add_row("closest", _match(translation.match))
    if translation.coverage:
        lines.add_row("covered", in_per_cent(translation.coverage))
    if translation.certainty is not None:
        lines.add_row("certainty", f"about {translation.certainty}% is likely to need no change")
    lines.add_row("memory", Text.assemble((percent(explanation.share), "bold"), " of it  ", _legend(console)))
    return lines


def _shaded(explanation: Explanation, console: Console) -> Text:
    text = Text()
    for piece, following in pairwise([*explanation.pieces(), ""]):
        if isinstance(piece, str):
            text.append(visible(piece))
        elif piece.text or piece.share >= _MIN_SHARE:
            text.append(visible(piece.text) or " [end]", _SHADES[_shade(piece.share)] if _colours(console) else "")
            # "today.(77)" would look like the word's number, so a mark right before a number gets its own.
            if not _colours(console) and (piece.share >= _MIN_SHARE or _numbered(following)):
                text.append(f"({100 * piece.share:.0f})")
    return text


def _numbered(piece: str | Word) -> bool:
    return isinstance(piece, Word) and bool(piece.text) and piece.share >= _MIN_SHARE


def _legend(console: Console) -> Text:
    if not _colours(console):
        return Text("in brackets: per cent of each word", "dim")
    steps = len(_SHADES) - 1
    return Text(" ").join(Text(f" {100 * step // steps}% ", style) for step, style in enumerate(_SHADES))


def _colours(console: Console) -> bool:
    return console.color_system is not None and not console.no_color


def _shade(share: float) -> int:
    return round(share * (len(_SHADES) - 1))


def _match(match: Match) -> Text:
    return Text.assemble(
        (f"{match.score}% ", "bold"), visible(match.source), " → ", visible(match.target), "  ",
        (visible(match.origin), "dim"),
    )  # fmt: skip


def _passages(passages: list[Passage]) -> Iterator[RenderableType]:
    """The passages with most from memory, in the order of the text."""
    if not passages:
        return
    by_weight = sorted(passages, key=lambda each: each.share * sum(len(word.tokens) for word in each.words))
    shown = by_weight[-_MAX_PASSAGES:]
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold", max_width=28)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for passage in passages:
        if passage in shown:
            words = Text(visible(passage.text) or "[end]", "bold")
            table.add_row(words, percent(passage.share), segment_text(passage.pair, passage.spans))
    yield table
    if len(passages) > _MAX_PASSAGES:
        yield Text(f"and {len(passages) - _MAX_PASSAGES} more, with less from memory: --full shows all", "dim")


def _in_full(word: Word) -> RenderableType:
    parts: list[RenderableType] = [Text.assemble((visible(word.text) or "end", "bold"), f"  {percent(word.share)}")]
    for token in word.tokens:
        parts.extend(Padding(part, (0, 0, 0, 2)) for part in _token(token, word))
    return Group(*parts)


def _token(token: Token, word: Word) -> Iterator[RenderableType]:
    evidence = token.evidence
    if evidence is None:
        return
    title = f"{token_name(word, token)}: " if len(word.tokens) > 1 else ""
    yield Text.assemble((title, "bold"), str(evidence))
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for near in evidence.neighbours:
        other = "" if near.token == token.text else "≠ "
        weight = Text.assemble(f"{other}{percent(near.weight)}", "\n", (f"d {near.distance:.1f}", "dim"))
        table.add_row(weight, segment_text(near.pair, [near.span]))
    yield table
