"""Explanations as a page for a browser: one file, no network, usable by keyboard, in light and dark mode.

Every word is a button, shaded by how much of it came from memory. It opens a panel with the word's tokens, the parts of
their probabilities, and their neighbours in context. Without JavaScript the panels are a list under the translation.

The same segments of the memory are often neighbours. Each is on the page once, at its end; a neighbour is shown as a
few words and a number, which the script replaces by source and origin when a panel is opened.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.visible import visible
from knnmt.segments.matches import Match
from knnmt.translator.evidence import Evidence, EvidenceNeighbour, in_per_cent, percent
from knnmt.translator.explanation import Explanation, Word, differences, marked, piece_name, token_name
from knnmt.translator.translation import Token, Translation
from knnmt.version import __version__

NEIGHBOURS = 4  # of a token, unless the page is to show more
_MAX_SHOWN = 4  # of a group before the rest is folded
_CONTEXT = 72  # characters of a neighbour

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src '{hash}'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="hint">The stronger the shade of a word, the more of it came from the memory. Select a word to see its
segments<span class="keys">; <kbd>←</kbd> <kbd>→</kbd> move, <kbd>Enter</kbd> opens, <kbd>Esc</kbd> closes</span>.</p>
<p class="legend"><span>model</span><span class="scale" aria-hidden="true"></span><span>memory</span></p>
</header>
<main>
{segments}
{pairs}</main>
<footer><p>knnmt {version}</p>{note}</footer>
<script>{script}</script>
</body>
</html>
"""


def explanation_page(
    explanations: Iterable[Explanation],
    title: str = "Where each word came from",
    note: str = "",
    neighbours: int = NEIGHBOURS,
) -> str:
    """A whole HTML page of explanations.

    note: a text at its foot, such as the signature of a call
    neighbours: how many neighbours of each token are shown, those with the largest weights first
    """
    pairs = _Pairs(neighbours)
    script = files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return _PAGE.format(
        hash=f"sha256-{digest}",
        title=_text(title),
        style=files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
        segments="\n".join(_segment(each, f"s{number}", pairs) for number, each in enumerate(explanations, 1)),
        pairs=pairs.listed(),
        version=__version__,
        note=f"<p><code>{_text(note)}</code></p>" if note else "",
        script=script,
    )


class _Pairs:
    """The segments of the memory that a page shows, numbered as they occur.

    most: neighbours of a token that are shown
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._numbers: dict[tuple[SegmentPair, str, str], int] = {}

    def number(self, pair: SegmentPair, source: str, target: str) -> int:
        return self._numbers.setdefault((pair, source, target), len(self._numbers) + 1)

    def listed(self) -> str:
        """All of them, folded; a link opens its target."""
        if not self._numbers:
            return ""
        items = "".join(
            f'<li id="p{number}"><p{target}>{_text(pair.target)}</p><p class="aside"{source}>{_text(pair.source)}</p>'
            f'<p class="origin"><bdi>{_text(pair.origin)}</bdi></p></li>\n'
            for (pair, source, target), number in self._numbers.items()
        )
        count = len(self._numbers)
        title = f"{count:,} segment{'s' * (count != 1)} of the memory"
        return f'<details class="pairs"><summary>{title}</summary>\n<ol>\n{items}</ol></details>\n'


def _segment(explanation: Explanation, key: str, pairs: _Pairs) -> str:
    source = _in(explanation.source_language)
    target = _in(explanation.target_language)
    numbers = {id(word): f"{key}w{number}" for number, word in enumerate(explanation.words, 1)}
    words = "".join(_words(explanation, numbers))
    panels = "\n".join(_panel(word, numbers[id(word)], key, source, target, pairs) for word in explanation.words)
    return f"""<article class="segment" id="{key}" aria-labelledby="{key}source">
<h2 class="source" id="{key}source"{source}>{_text(explanation.translation.source)}</h2>
<div class="words" role="group" aria-label="Translation, word by word"{target}>{words}</div>
{panels}
<dl class="about">
<dt>From memory</dt><dd>{percent(explanation.share)}</dd>
<dt>Model alone</dt><dd{target}>{_alone(explanation)}</dd>
{_match(explanation.translation.match, explanation, source, target)}{_known(explanation.translation)}\
</dl>
</article>"""


def _words(explanation: Explanation, numbers: dict[int, str]) -> Iterator[str]:
    """The translation, so that no line starts with a closing mark or with the end alone."""
    pieces = list(explanation.pieces())
    first = 0
    for last, piece in enumerate(pieces):
        after = pieces[last + 1] if last + 1 < len(pieces) else " "
        if isinstance(piece, Word) and isinstance(after, Word) and not any(map(str.isalnum, after.text)):
            continue
        made = "".join(
            _text(each) if isinstance(each, str) else _word(each, numbers[id(each)])
            for each in pieces[first : last + 1]
        )
        yield f'<span class="unbroken">{made}</span>' if last > first else made
        first = last + 1


def _word(word: Word, key: str) -> str:
    name = _text(word.text) or "end"
    end = "" if word.text else " end"
    label = f"{name if word.text else 'end of the sentence'}, {percent(word.share)} from memory"
    return (
        f'<button type="button" class="word{end}" style="--share:{word.share:.3f}" aria-label="{label}" '
        f'aria-expanded="false" aria-controls="{key}">{name}</button>'
    )


def _panel(word: Word, key: str, segment: str, source: str, target: str, pairs: _Pairs) -> str:
    name = _text(word.text) or "end of the sentence"
    tokens = "\n".join(_token(token, word, source, target, pairs) for token in word.tokens)
    return f"""<details class="panel" id="{key}" name="{segment}">
<summary><h3{target if word.text else ""}>{name}</h3> <span class="aside">{percent(word.share)} from memory</span> \
<span class="close" aria-hidden="true">✕</span></summary>
{tokens}
</details>"""


def _token(token: Token, word: Word, source: str, target: str, pairs: _Pairs) -> str:
    evidence = token.evidence
    if evidence is None:
        return ""
    title = f"<h4{target}>{escape(token_name(word, token))}</h4>" if len(word.tokens) > 1 else ""
    chosen = {id(near) for near in sorted(evidence.neighbours, key=lambda near: -near.weight)[: pairs.most]}

    def item(near: EvidenceNeighbour) -> str:
        return _neighbour(near, pairs.number(near.pair, source, target), target) if id(near) in chosen else ""

    same = [near for near in evidence.neighbours if near.token == token.text]
    others = [near for near in evidence.neighbours if near.token != token.text]
    groups = "".join(_group(near, kind, item) for near, kind in ((same, "same"), (others, "other")) if near)
    return f'<div class="token">{title}<p>{evidence}</p>{_mixture(evidence)}{groups}</div>'


def _mixture(evidence: Evidence) -> str:
    """A token's probability as a bar: the parts of the memory, of the model, and of other tokens."""
    memory = evidence.probability * evidence.share
    parts = memory, evidence.probability - memory, 1 - evidence.probability
    names = "from memory", "from the model", "for other tokens"
    key = "".join(f"<span>{percent(max(0.0, part))} {name}</span>" for part, name in zip(parts, names, strict=True))
    widths = f"--memory:{memory:.1%};--both:{evidence.probability:.1%}"
    return f'<div class="mixture" style="{widths}"></div><p class="parts">{key}</p>'


def _group(neighbours: Sequence[EvidenceNeighbour], kind: str, item: Callable[[EvidenceNeighbour], str]) -> str:
    """item: shows a neighbour; empty for one that is left out"""
    weight = percent(min(1.0, sum(near.weight for near in neighbours)))
    which = {"same": "this token", "other": "other tokens"}[kind]
    items = [shown for near in neighbours if (shown := item(near))]
    told = "" if len(items) == len(neighbours) else f", {len(items)} of {len(neighbours)} shown"
    near = f'<ol class="near">{"".join(items[:_MAX_SHOWN])}</ol>' if items else ""
    more = ""
    if folded := items[_MAX_SHOWN:]:
        rest = f'<ol class="near">{"".join(folded)}</ol>'
        more = f'<details class="more"><summary>{len(folded)} more</summary>{rest}</details>'
    title = f"Neighbours with {which}: {weight} of the weight{told}"
    return f'<div class="{kind}"><p class="group">{title}</p>{near}{more}</div>'


def _neighbour(near: EvidenceNeighbour, number: int, target: str) -> str:
    end = escape(piece_name(near.token))
    pieces = (
        f"<mark>{_text(piece) or end}</mark>" if is_marked else _text(piece)
        for piece, is_marked in marked(near.pair.target, [near.span], _CONTEXT)
    )
    return (
        f'<li><b style="--share:{near.weight:.3f}">{percent(near.weight)}</b><div><p{target}>{"".join(pieces)}</p>'
        f'<small><a href="#p{number}">segment {number}</a> · distance {near.distance:.1f}</small></div></li>'
    )


def _alone(explanation: Explanation) -> str:
    if explanation.alone == explanation.translation.text:
        return '<span class="aside" lang="en">the same</span>'
    return _changes(explanation.alone, explanation.translation.text)


def _match(match: Match | None, explanation: Explanation, source: str, target: str) -> str:
    if match is None:
        return ""
    return (
        f"<dt>Closest segment</dt><dd><span{source}>{_changes(match.source, explanation.translation.source)}</span>"
        f"<span{target}>{_text(match.target)}</span>"
        f'<span class="origin">{match.score}% · <bdi>{_text(match.origin)}</bdi></span></dd>\n'
    )


def _known(translation: Translation) -> str:
    """Facts about the whole translation."""
    covered, certainty = translation.coverage, translation.certainty
    lines = "" if covered is None else f"<dt>Source covered</dt><dd>{in_per_cent(covered)}</dd>\n"
    return lines + (
        "" if certainty is None else f"<dt>Certainty</dt><dd>about {certainty}% is likely to need no change</dd>\n"
    )


def _changes(text: str, other: str) -> str:
    return "".join(
        f'<mark class="changed">{_text(piece)}</mark>' if new and piece.strip() else _text(piece)
        for piece, new in differences(text, other)
    )


def _in(language: str) -> str:
    """The attributes of text in a language, which may run in either direction."""
    return f' lang="{_text(language)}" dir="auto"' if language else ' dir="auto"'


def _text(text: str) -> str:
    return escape(visible(text))
