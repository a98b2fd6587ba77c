"""The tokens that fuzzy matches count: words, numbers, punctuation marks, tags and placeholders, ignoring case."""

from __future__ import annotations

import re
import unicodedata
from zlib import crc32

# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese; Khmer; kana; Chinese characters
UNPARTED = "\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_MARKS = "\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u200c\u200d"  # not in \w
_TOKEN = re.compile(
    rf"""
    </?(?:\d+|[^\W\d][^<>]*)/?>                           # a tag: <b>, </b>, <x id="1"/>, <1>
    | \$?\{{[\w.:!,-]*\}}                                 # {{0}}, {{name}}, ${{name}}
    | %(?:\(\w+\)|\d{{1,2}}\$)?[-+\#0]?\d{{0,3}}(?:\.\d{{1,3}})?[hlz]{{0,2}}[a-z](?!\w)  # %s, %1$s, %(name)s, %.2f, %lu
    | %\d{{1,2}}(?!\w)                                    # %1
    | &\#?\w+;                                            # &nbsp;
    | (?<!\d)\d++(?:[.,:]\d++)+                           # 1.5, 12:30
    | [{UNPARTED}]
    | [^\W{UNPARTED}]++(?:[{_MARKS}]++[^\W{UNPARTED}]*+)*+  # a word
    | \S
    """,
    re.VERBOSE,
)


def tokens_of(text: str) -> list[str]:
    """The tokens of a text, in order; in scripts without spaces between words, its characters."""
    return _TOKEN.findall(unicodedata.normalize("NFC", text).casefold())


def word_hashes(text: str) -> list[int]:
    """A number from 0 to 2^31 - 1 for each token. Stores keep them, so neither numbers nor tokens may ever change."""
    return [crc32(token.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF for token in tokens_of(text)]
