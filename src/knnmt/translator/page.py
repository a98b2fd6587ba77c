"""Explanations as a page for a browser: one file, no network, usable by keyboard, in light and in dark.

Every word is a button shaded by how much of it came from memory; it opens a panel with the word's tokens, what each was
made of, and its neighbours in context. Without JavaScript the panels are a list under the translation.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from knnmt.corpus.visible import visible
from knnmt.retrieval.matches import Match
from knnmt.translator.evidence import Evidence, EvidenceNeighbour
from knnmt.translator.explanation import Explanation, Word, differences
from knnmt.translator.translation import Token
from knnmt.translator.wording import because, percent, piece_name, token_name
from knnmt.version import __version__

_SHOWN = 4  # neighbours of a token before the others are folded away

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
<p class="hint">The stronger a word is shaded, the more of it came from the memory. Choose a word to see the segments
behind it<span class="keys">; <kbd>←</kbd> <kbd>→</kbd> move, <kbd>Enter</kbd> opens, <kbd>Esc</kbd> closes</span>.</p>
<p class="legend"><span>model</span><span class="scale" aria-hidden="true"></span><span>memory</span></p>
</header>
<main>
{segments}
</main>
<footer><p>knnmt {version}</p>{note}</footer>
<script>{script}</script>
</body>
</html>
"""


def explanation_page(
    explanations: Iterable[Explanation], title: str = "Where each word came from", note: str = ""
) -> str:
    """A whole HTML page of explanations; `note` stands at its foot, such as the signature of a call."""
    script = files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return _PAGE.format(
        hash=f"sha256-{digest}",
        title=_text(title),
        style=files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
        segments="\n".join(_segment(each, f"s{number}") for number, each in enumerate(explanations, 1)),
        version=__version__,
        note=f"<p><code>{_text(note)}</code></p>" if note else "",
        script=script,
    )


def _segment(explanation: Explanation, key: str) -> str:
    source = _in(explanation.source_language)
    target = _in(explanation.target_language)
    numbers = {id(word): f"{key}w{number}" for number, word in enumerate(explanation.words, 1)}
    words = "".join(
        _text(piece) if isinstance(piece, str) else _word(piece, numbers[id(piece)]) for piece in explanation.pieces()
    )
    panels = "\n".join(_panel(word, numbers[id(word)], key, source, target) for word in explanation.words)
    return f"""<article class="segment" id="{key}" aria-labelledby="{key}source">
<h2 class="source" id="{key}source"{source}>{_text(explanation.translation.source)}</h2>
<div class="words" role="group" aria-label="Translation, word by word"{target}>{words}</div>
{panels}
<dl class="about">
<dt>From memory</dt><dd>{percent(explanation.share)}</dd>
<dt>Model alone</dt><dd{target}>{_alone(explanation)}</dd>
{_match(explanation.translation.match, explanation, source, target)}</dl>
</article>"""


def _word(word: Word, key: str) -> str:
    name = _text(word.text) or "end"
    end = "" if word.text else " end"
    label = f"{name if word.text else 'end of the sentence'}, {percent(word.share)} from memory"
    return (
        f'<button type="button" class="word{end}" style="--share:{word.share:.3f}" aria-label="{label}" '
        f'aria-expanded="false" aria-controls="{key}">{name}</button>'
    )


def _panel(word: Word, key: str, segment: str, source: str, target: str) -> str:
    name = _text(word.text) or "end of the sentence"
    tokens = "\n".join(_token(token, word, source, target) for token in word.tokens)
    return f"""<details class="panel" id="{key}" name="{segment}">
<summary><h3{target if word.text else ""}>{name}</h3> <span class="aside">{percent(word.share)} from memory</span> \
<span class="close" aria-hidden="true">✕</span></summary>
{tokens}
</details>"""


def _token(token: Token, word: Word, source: str, target: str) -> str:
    evidence = token.evidence
    if evidence is None:
        return ""
    title = f"<h4{target}>{escape(token_name(word, token))}</h4>" if len(word.tokens) > 1 else ""
    same = [near for near in evidence.neighbours if near.token == token.text]
    others = [near for near in evidence.neighbours if near.token != token.text]
    groups = "".join(_group(near, kind, source, target) for near, kind in ((same, "same"), (others, "other")) if near)
    return f'<div class="token">{title}<p>{because(evidence)}</p>{_mixture(evidence)}{groups}</div>'


def _mixture(evidence: Evidence) -> str:
    """A token's probability as a bar: what memory gave, what the model gave, and what both left to other tokens."""
    memory = evidence.probability * evidence.share
    parts = {"memory": memory, "model": evidence.probability - memory, "others": 1 - evidence.probability}
    names = {"memory": "from memory", "model": "from the model", "others": "for other tokens"}
    bar = "".join(f'<span class="{part}" style="width:{width:.2%}"></span>' for part, width in parts.items())
    key = "".join(
        f'<span><i class="{part}"></i>{percent(max(0.0, width))} {names[part]}</span>' for part, width in parts.items()
    )
    return f'<div class="mixture" aria-hidden="true">{bar}</div><p class="parts">{key}</p>'


def _group(neighbours: Sequence[EvidenceNeighbour], kind: str, source: str, target: str) -> str:
    weight = percent(min(1.0, sum(near.weight for near in neighbours)))
    which = {"same": "this token", "other": "other tokens"}[kind]
    shown, folded = neighbours[:_SHOWN], neighbours[_SHOWN:]
    more = ""
    if folded:
        rest = _neighbours(folded, source, target)
        more = f'<details class="more"><summary>{len(folded)} more</summary>{rest}</details>'
    title = f'<p class="group">Neighbours with {which}: {weight} of the weight</p>'
    return f'<div class="{kind}">{title}{_neighbours(shown, source, target)}{more}</div>'


def _neighbours(neighbours: Sequence[EvidenceNeighbour], source: str, target: str) -> str:
    items = "".join(_neighbour(near, source, target) for near in neighbours)
    return f'<ol class="near">{items}</ol>'


def _neighbour(near: EvidenceNeighbour, source: str, target: str) -> str:
    start, end = near.span
    text = near.pair.target
    marked = _text(text[start:end]) or escape(piece_name(near.token))
    return (
        f'<li><span class="weight" style="--share:{near.weight:.3f}">{percent(near.weight)}</span><div class="text">'
        f"<p{target}>{_text(text[:start])}<mark>{marked}</mark>{_text(text[end:])}</p>"
        f'<p class="aside"{source}>{_text(near.pair.source)}</p>'
        f'<p class="origin"><bdi>{_text(near.pair.origin)}</bdi> · distance {near.distance:.1f}</p></div></li>'
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


def _changes(text: str, other: str) -> str:
    return "".join(
        f'<mark class="changed">{_text(piece)}</mark>' if new and piece.strip() else _text(piece)
        for piece, new in differences(text, other)
    )


def _in(language: str) -> str:
    """The attributes of text in a language, which may be written from either side."""
    return f' lang="{_text(language)}" dir="auto"' if language else ' dir="auto"'


def _text(text: str) -> str:
    return escape(visible(text))
