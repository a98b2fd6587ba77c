"""A translator that is none, for tests of documents: it writes words in capitals, and keeps codes where they are."""

from __future__ import annotations

from collections.abc import Sequence

from knnmt.documents.document import Document
from knnmt.documents.kept import Kept
from knnmt.documents.translating import Outcome, translate_document
from knnmt.protection.marked import Marked
from knnmt.translator.translation import Translation
from support import TESTS

GOLDEN = TESTS / "documents" / "golden"


def shouted(text: Marked) -> Marked:
    return tuple(part.upper() if isinstance(part, str) else part for part in text)


def shout(texts: Sequence[Marked], *_: object) -> list[Translation]:
    return [Translation(source="", text="", tokens=(), score=0.0, marked=shouted(text)) for text in texts]


def shout_document(document: Document, retranslate: bool = False) -> Outcome:
    with Kept(None, "") as kept:
        return translate_document(document, shout, kept, retranslate)
