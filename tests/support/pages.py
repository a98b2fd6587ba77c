"""The project's Markdown pages as tests see them: fenced blocks, commands with their output, headings, links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support import ROOT

_FENCE = re.compile(r"^```(\S*)$")
_HEADING = re.compile(r"^#+ (.+)$")
_LINK = re.compile(r'\]\(([^)\s]+)\)|<img src="([^"]+)"')
_INLINE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """What a reader would type, without its comment, and the lines that are shown as its output."""

    line: int
    text: str
    output: tuple[str, ...]


def all_pages() -> list[Path]:
    """Every Markdown file that the project shows to people."""
    own = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/knnmt/models/*/README.md")]
    return sorted(own)


def pages_with_commands() -> list[Path]:
    """Those that tell people what to type."""
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    begun: tuple[int, str] | None = None
    held: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if not fence:
            held.append(line)
        elif begun is None:
            begun, held = (number, fence[1]), []
        else:
            yield Block(*begun, "\n".join(held) + "\n")
            begun = None
    assert begun is None, f"{page}, line {begun and begun[0]}: this fence is not closed"


def commands(block: Block) -> list[Command]:
    """The commands of a `console` block: lines that begin with "$ ", each followed by what it prints."""
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append(Command(number, re.split(r"\s+# ", line[2:])[0].rstrip(), ()))
        else:
            assert found, f"line {number}: a console block begins with a command, not with {line!r}"
            found[-1] = Command(found[-1].line, found[-1].text, (*found[-1].output, line))
    return found


def compare(shown: Sequence[str], said: str, place: str) -> None:
    """What is shown must come in this order: white space and seconds as they may be, "..." for anything."""
    lines = [".*".join(r"\s+".join(map(re.escape, part.split())) for part in line.split("...")) for line in shown]
    lines = [re.sub(r"\d+\\s\+s\b", r"\\d+ s", line) for line in lines]
    assert re.search(".*".join(lines), said, re.DOTALL), f"{place}: shown is {shown}, and what came is\n{said}"


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def inline_code(page: Path) -> list[str]:
    return [" ".join(code.split()) for code in _INLINE.findall(prose(page))]


def links(page: Path) -> list[str]:
    """What the page's links and images point to."""
    return [link or image for link, image in _LINK.findall(_INLINE.sub("", prose(page)))]


def anchors(page: Path) -> set[str]:
    """The page's headings as GitHub names them in links: lower case, hyphens for spaces, no punctuation."""
    headings = [found[1] for line in prose(page).splitlines() if (found := _HEADING.match(line))]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
