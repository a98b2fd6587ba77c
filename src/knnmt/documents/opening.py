"""Finds the format of a document, by its content and then by its name, and opens it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from knnmt.corpus.detection import XML_STARTS, begins_like_po
from knnmt.corpus.opening import HEAD
from knnmt.corpus.plain_text import document_kind
from knnmt.corpus.prolog import read_prolog
from knnmt.documents.document import Document
from knnmt.errors import InputError
from knnmt.regular_files import open_regular, read_regular

MAX_BYTES = 1 << 26  # a document is held in memory, with all its units
_Open = Callable[..., Document]
_FORMATS = {  # the module and function that opens each
    "po": "knnmt.documents.po:PoDocument",
    "xliff": "knnmt.documents.xliff:open_xliff",
    "qt": "knnmt.documents.qt:QtCatalog",
    "android": "knnmt.documents.android:AndroidStrings",
    "resx": "knnmt.documents.resx:Resources",
    "properties": "knnmt.documents.properties:Properties",
    "json": "knnmt.documents.json_strings:JsonStrings",
    "yaml": "knnmt.documents.yaml_strings:YamlStrings",
    "html": "knnmt.documents.html_pages:HtmlPage",
    "markdown": "knnmt.documents.markdown:MarkdownPage",
    "docx": "knnmt.documents.docx:Docx",
    "tmx": "knnmt.documents.tmx:Tmx",
    "subtitles": "knnmt.documents.subtitles:Subtitles",
    "text": "knnmt.documents.plain_text:PlainText",
}
_TOLD_LANGUAGES = ("tmx", "android")
_ROOTS = {"xliff": "xliff", "TS": "qt", "resources": "android", "html": "html", "tmx": "tmx"}
_ENDINGS = {
    "po": ".po .pot",
    "xliff": ".xlf .xliff .sdlxliff .mqxliff .mxliff .txlf",
    "resx": ".resx .resw",
    "properties": ".properties",
    "json": ".json .arb",
    "yaml": ".yaml .yml",
    "html": ".html .htm .xhtml",
    "markdown": ".md .markdown",
    "docx": ".docx",
    "tmx": ".tmx",
    "subtitles": ".srt .vtt",
    "text": ".txt",
}
_ENDINGS_OF_MORE = (".ts", ".xml")  # which programs use for other things, too
_KINDS = {"a JSON file": "json", "a file of subtitles": "subtitles", "an HTML page": "html"}
_BY_ENDING = {ending: name for name, endings in _ENDINGS.items() for ending in endings.split()}


def document_format(path: Path) -> str | None:
    """The format of a document that can be opened, "text" for plain text; None for other files."""
    if not path.is_file():  # a pipe must not be opened: its writer would take that for its reader
        return None
    try:
        with open_regular(path, links=True) as file:
            head = file.read(HEAD)
    except OSError:
        return None
    named = _BY_ENDING.get(path.suffix.lower())
    if head.startswith(XML_STARTS) and (root := read_prolog(head).root):
        return _ROOTS.get(root) or named
    if begins_like_po(head):
        return "po"
    if named:
        return named
    kind = document_kind(path, head)
    return _KINDS.get(kind) if kind else "text"


def open_document(path: str | Path, languages: tuple[str | None, str | None] = (None, None)) -> Document:
    """Open a document of any supported format. It is read completely, and nothing is written to it.

    languages: source and target, for formats that hold several languages (TMX) or the plural forms of a language
        (Android)
    """
    path = Path(path)
    name = document_format(path)
    if name is None:
        raise InputError(_refusal(path))
    try:
        data = read_regular(path, MAX_BYTES, links=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    module, _, opens = _FORMATS[name].partition(":")
    opened: _Open = getattr(import_module(module), opens)
    return opened(data, str(path), languages) if name in _TOLD_LANGUAGES else opened(data, str(path))


def usual_endings() -> list[str]:
    """The usual endings of document names."""
    return sorted([*_BY_ENDING, *_ENDINGS_OF_MORE])


def documents_in(directory: Path) -> Iterator[Path]:
    """The documents in a directory, including subdirectories, that have a usual name, sorted."""
    for path in sorted(directory.rglob("*")):
        suffix = path.suffix.lower()
        if path.is_file() and (suffix in _BY_ENDING or (suffix in _ENDINGS_OF_MORE and document_format(path))):
            yield path


def _refusal(path: Path) -> str:
    if not path.exists():
        return f"{path}: no such file"
    if not path.is_file():
        return f"{path}: expected a document, found no file"
    with path.open("rb") as file:
        kind = document_kind(path, file.read(HEAD))
    return f"{path}: expected a document of a format that can be written back, found {kind or 'an unknown format'}"
