"""Reads the part of an XML file before its root element, before anything there can do harm.

Entity declarations can make a small file expand without end, or fetch other files. No memory needs them, so they are
an error. It is raised here, before the actual parser sees a byte.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from xml.parsers import expat

from knnmt.corpus.text_encodings import text_encoding
from knnmt.records import shown


@dataclass(frozen=True, slots=True)
class Prolog:
    """The root's name without prefix if it was reached, else the name in the DOCTYPE; and the problem, if any."""

    root: str | None = None
    reached: bool = False
    entity: str | None = None
    error: str | None = None


class _Found(Exception):  # noqa: N818
    """Ends the parse early, with the result."""

    def __init__(self, prolog: Prolog) -> None:
        self.prolog = prolog


def read_prolog(head: bytes, encoding: str | None = None) -> Prolog:
    """Read the first bytes of a file, up to the root element if they contain it.

    encoding: takes precedence over the one that the file states
    """
    parser = expat.ParserCreate(encoding)
    promised: str | None = None

    def doctype(name: str, *_: object) -> None:
        nonlocal promised
        promised = _local(name)

    def declaration(_version: str, stated: str | None, _standalone: int) -> None:
        if encoding is None and stated is not None and text_encoding(stated) is None:
            error = f"a file in the encoding {shown(stated)}, which is unknown. Convert it to UTF-8"
            raise _Found(replace(read_prolog(head, "utf-8"), error=error))

    def entity(name: str, *_: object) -> None:
        raise _Found(Prolog(root=promised, entity=name))

    def attribute(_element: str, name: str, _type: str, default: str | None, _required: bool) -> None:
        if default is not None:  # every such element would have it, however often it occurs
            raise _Found(Prolog(root=promised, error=f"a DOCTYPE that gives the attribute {name!r} a value"))

    def element(name: str, *_: object) -> None:
        raise _Found(Prolog(root=_local(name), reached=True))

    parser.XmlDeclHandler = declaration
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = entity
    parser.AttlistDeclHandler = attribute
    # A reference to a parameter entity that only an external DTD could declare hides the declarations behind it.
    # It is reported when such entities are to be parsed; nothing is loaded, as there is no handler that would.
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_ALWAYS)
    parser.SkippedEntityHandler = entity
    parser.StartElementHandler = element
    try:
        parser.Parse(head, False)
    except _Found as found:
        return found.prolog
    except (expat.ExpatError, LookupError, ValueError) as error:
        return Prolog(root=promised, error=str(error))
    return Prolog(root=promised)


def _local(name: str) -> str:
    return name.rpartition(":")[2]
