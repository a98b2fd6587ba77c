"""knnmt: nearest-neighbour machine translation.

from knnmt import Translator
print(Translator().translate("Guten Morgen!").text)

Names are loaded when first used, so that `import knnmt` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from knnmt.threads import TORCH_SPINS, loading
from knnmt.version import __version__

if TYPE_CHECKING:
    from knnmt.config import DecodingConfig, OpenStores
    from knnmt.corpus.pairs import SegmentPair
    from knnmt.errors import KnnmtError, KnnmtWarning
    from knnmt.fitting.ready_store import Datastore
    from knnmt.huggingface.processor import KNNLogitsProcessor
    from knnmt.retrieval.matches import Match
    from knnmt.translator.evidence import Evidence
    from knnmt.translator.explanation import Explanation, explain
    from knnmt.translator.memories import Request
    from knnmt.translator.page import explanation_page
    from knnmt.translator.translation import Token, Translation
    from knnmt.translator.translator import Translator

_HOMES = {
    "Datastore": "knnmt.fitting.ready_store",
    "DecodingConfig": "knnmt.config",
    "Evidence": "knnmt.translator.evidence",
    "Explanation": "knnmt.translator.explanation",
    "KNNLogitsProcessor": "knnmt.huggingface.processor",
    "KnnmtError": "knnmt.errors",
    "KnnmtWarning": "knnmt.errors",
    "Match": "knnmt.retrieval.matches",
    "OpenStores": "knnmt.config",
    "Request": "knnmt.translator.memories",
    "SegmentPair": "knnmt.corpus.pairs",
    "Token": "knnmt.translator.translation",
    "Translation": "knnmt.translator.translation",
    "Translator": "knnmt.translator.translator",
    "explain": "knnmt.translator.explanation",
    "explanation_page": "knnmt.translator.page",
}

__all__ = [
    "Datastore",
    "DecodingConfig",
    "Evidence",
    "Explanation",
    "KNNLogitsProcessor",
    "KnnmtError",
    "KnnmtWarning",
    "Match",
    "OpenStores",
    "Request",
    "SegmentPair",
    "Token",
    "Translation",
    "Translator",
    "__version__",
    "explain",
    "explanation_page",
]


if not TYPE_CHECKING:  # a type checker knows the names, and should complain of others

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'knnmt' has no attribute {name!r}; it has {', '.join(__all__)}")
        with loading("torch", TORCH_SPINS):
            return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
