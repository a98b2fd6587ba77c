"""What the site of the documentation has beside docs/: references made from the code, and files that pages link to."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent
_OVERVIEW = "overview.md"  # the README of the repository; docs/README.md is the list of pages
_LINK = re.compile(r'(\]\(|src=")([^)"#:\s]+)([)"#])')


def on_files(files: Files, config: Any) -> Files:
    """Add the README, what pages link to outside docs/, and the references."""
    pages = {page: (ROOT / "docs" / page).read_text(encoding="utf-8") for page in _pages()}
    made = {
        _OVERVIEW: (ROOT / "README.md").read_text(encoding="utf-8"),
        "reference/command-line.md": _command_line(),
        "reference/python.md": _python(),
    }
    linked = {place for page, text in pages.items() for place in _outside(f"docs/{page}", text)}
    linked |= _outside("README.md", made[_OVERVIEW])
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    for place in sorted(linked):
        path = ROOT / place
        if path.is_file() and place != "README.md":
            content = path.read_text(encoding="utf-8") if path.suffix == ".md" else path.read_bytes()
            files.append(File.generated(config, f"files/{place}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links go to where the site has what they point to in the repository."""
    source = page.file.src_uri
    here = "README.md" if source == _OVERVIEW else f"docs/{source}"
    if source.startswith(("files/", "reference/")):
        here = source.removeprefix("files/")
    at = PurePosixPath(source).parent.as_posix()

    def moved(link: re.Match[str]) -> str:
        place = normpath(PurePosixPath(here).parent / link[2])
        if place == "README.md":
            place = f"docs/{_OVERVIEW}"
        inside = place.removeprefix("docs/") if place.startswith("docs/") else f"files/{place}"
        return f"{link[1]}{relpath(inside if place != 'docs' else 'README.md', at)}{link[3]}"

    return markdown if source.startswith("reference/") else _LINK.sub(moved, markdown)


def as_github_does(heading: str, _separator: str) -> str:
    """The anchor of a heading: lower case, hyphens for spaces, no punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _pages() -> list[str]:
    return [path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]


def _outside(page: str, text: str) -> set[str]:
    """What a page links to in the repository outside docs/."""
    places = {normpath(PurePosixPath(page).parent / link[2]) for link in _LINK.finditer(text)}
    return {place for place in places if not place.startswith(("docs/", ".."))}


def _command_line() -> str:
    command = [sys.executable, "-m", "typer", "knnmt.cli", "utils", "docs", "--name", "knnmt"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own


def _python() -> str:
    import knnmt

    homes = [f"::: {home}.{name}" for name, home in sorted(knnmt._homes().items()) if name != "__version__"]
    return "\n\n".join(["# Python", "All of this is imported from `knnmt`.", *homes]) + "\n"
