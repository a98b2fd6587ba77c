"""Writes segment pairs as TSV or TMX: streamed, and either the whole file or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.tmx import CONTEXT_PROPERTY, ORIGIN_PROPERTY
from knnmt.output_files import replacing

# A byte order mark at the start of a line may be at the start of the file, where readers drop it.
_NOT_IN_TSV = re.compile(r"[\t\n\r\ufeff]")
_NOT_IN_UTF8 = re.compile(r"[\ud800-\udfff]")
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_REPLACEMENT = "\ufffd"
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})

_TMX_START = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="knnmt" creationtoolversion="1" segtype="sentence" o-tmf="knnmt" adminlang="en" \
srclang="{source}" datatype="plaintext"/>
<body>
"""
_TMX_UNIT = """<tu><prop type="{property}">{origin}</prop>{context}
<tuv xml:lang="{source_language}"><seg>{source}</seg></tuv>
<tuv xml:lang="{target_language}"><seg>{target}</seg></tuv></tu>
"""
_TMX_END = "</body>\n</tmx>\n"


def write_tsv(path: Path, pairs: Iterable[SegmentPair]) -> int:
    """Write source, target and origin in columns; returns how many pairs had to be changed.

    Tabs, line ends and byte order marks inside a column become spaces.
    """
    changed = 0
    with replacing(path) as file:
        for pair in pairs:
            fields = [pair.source, pair.target, pair.origin]
            written = [_NOT_IN_UTF8.sub(_REPLACEMENT, _NOT_IN_TSV.sub(" ", text)) for text in fields]
            changed += written != fields
            file.write(("\t".join(written) + "\n").encode())
    return changed


def write_tmx(path: Path, pairs: Iterable[SegmentPair], source_language: str, target_language: str) -> int:
    """Write TMX 1.4 with origin and context as properties of each unit; returns how many pairs had to be changed.

    Characters that XML does not allow become U+FFFD.
    """
    changed = 0
    with replacing(path) as file:
        file.write(_TMX_START.format(source=_escape(source_language)).encode())
        for pair in pairs:
            fields = [pair.source, pair.target, pair.origin, pair.context]
            written = [_NOT_IN_XML.sub(_REPLACEMENT, text) for text in fields]
            changed += written != fields
            source, target, origin, context = map(_escape, written)
            unit = _TMX_UNIT.format(
                property=ORIGIN_PROPERTY,
                origin=origin,
                context=f'\n<prop type="{CONTEXT_PROPERTY}">{context}</prop>' if context else "",
                source_language=_escape(source_language),
                source=source,
                target_language=_escape(target_language),
                target=target,
            )
            file.write(unit.encode())
        file.write(_TMX_END.encode())
    return changed


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)
