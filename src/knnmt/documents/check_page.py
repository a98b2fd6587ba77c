"""A report on documents as a page for a browser, in the style of the page of explanations: one file, no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from itertools import groupby

from knnmt.corpus.visible import visible
from knnmt.documents.checking import KINDS, Problem, Report
from knnmt.documents.document import State
from knnmt.version import __version__

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="hint">{hint}</p>
</header>
<main>
{reports}
</main>
<footer><p>knnmt {version}</p></footer>
</body>
</html>
"""


def check_page(reports: Iterable[Report], style: str, title: str = "Findings") -> str:
    """A whole HTML page. style: its style sheet"""
    found = list(reports)
    count = sum(len(report.problems) for report in found)
    return _PAGE.format(
        title=escape(title),
        hint=f"{count:,} finding{'s' * (count != 1)} in {len(found):,} document{'s' * (len(found) != 1)}",
        style=style,
        reports="\n".join(map(_report, found)),
        version=__version__,
    )


def summary(report: Report) -> str:
    """A report in one line."""
    states = ", ".join(f"{report.states.get(state, 0):,} {state.value}" for state in reversed(State))
    kinds = Counter(problem.kind for problem in report.problems)
    told = ", ".join(f"{kind} {kinds[kind]:,}" for kind in KINDS if kinds[kind])
    return f"{states}; {told or 'no findings'}"


def _report(report: Report) -> str:
    units = groupby(report.problems, key=lambda problem: problem.unit)
    articles = "\n".join(_unit(name, list(problems)) for name, problems in units)
    head = f'<h2>{_text(report.name)}</h2>\n<p class="hint">{_text(summary(report))}</p>'
    return f"<section>\n{head}\n{articles}\n</section>"


def _unit(name: str, problems: list[Problem]) -> str:
    rows = "".join(f"<dt>{escape(each.kind)}</dt><dd>{_text(each.message)}</dd>\n" for each in problems)
    return f"""<article class="segment">
<h3 class="source" dir="auto">{_text(problems[0].source)}</h3>
<div class="words" dir="auto">{_text(problems[0].target)}</div>
<dl class="about">
<dt>Unit</dt><dd class="origin">{_text(name)}</dd>
{rows}</dl>
</article>"""


def _text(text: str) -> str:
    return escape(visible(text))
