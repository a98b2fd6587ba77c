"""knnmt: nearest-neighbour machine translation.

import knnmt
print(knnmt.adapt("memory.tmx", "own.store"))
print(knnmt.Translator(datastore="own.store").translate("Guten Morgen!").text)

Names are loaded when first used, so that `import knnmt` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from knnmt.threads import TORCH_SPINS, loading
from knnmt.version import __version__

if TYPE_CHECKING:
    from knnmt.config import DecodingConfig, OpenStores, RetrievalConfig
    from knnmt.corpus.filters import FilterConfig
    from knnmt.corpus.glossary import Glossary
    from knnmt.corpus.glossary_files import read_glossary
    from knnmt.corpus.options import ReadingConfig
    from knnmt.corpus.pairs import SegmentPair
    from knnmt.corpus.reading import read_memories
    from knnmt.corpus.report import ReadingReport
    from knnmt.datastore.building import BuildConfig
    from knnmt.errors import KnnmtError, KnnmtWarning
    from knnmt.evaluation.adapting import Adapted, adapt
    from knnmt.evaluation.evaluating import evaluate
    from knnmt.evaluation.reports import Report
    from knnmt.evaluation.running import RunSettings
    from knnmt.evaluation.tuning import TuningResult, tune
    from knnmt.fitting.ready_store import Built, Datastore, build
    from knnmt.fitting.tuning_config import TuningConfig
    from knnmt.huggingface.processor import KNNLogitsProcessor
    from knnmt.retrieval.matches import Match
    from knnmt.retrieval.settings import RetrievalSettings
    from knnmt.translator.evidence import Evidence
    from knnmt.translator.explanation import Explanation, explain
    from knnmt.translator.memories import Request
    from knnmt.translator.page import explanation_page
    from knnmt.translator.steps import Steps
    from knnmt.translator.translation import Caution, Token, Translation
    from knnmt.translator.translator import Translator

_HOMES = {
    "Adapted": "knnmt.evaluation.adapting",
    "BuildConfig": "knnmt.datastore.building",
    "Built": "knnmt.fitting.ready_store",
    "Caution": "knnmt.translator.translation",
    "Datastore": "knnmt.fitting.ready_store",
    "DecodingConfig": "knnmt.config",
    "Evidence": "knnmt.translator.evidence",
    "Explanation": "knnmt.translator.explanation",
    "FilterConfig": "knnmt.corpus.filters",
    "Glossary": "knnmt.corpus.glossary",
    "KNNLogitsProcessor": "knnmt.huggingface.processor",
    "KnnmtError": "knnmt.errors",
    "KnnmtWarning": "knnmt.errors",
    "Match": "knnmt.retrieval.matches",
    "OpenStores": "knnmt.config",
    "ReadingConfig": "knnmt.corpus.options",
    "ReadingReport": "knnmt.corpus.report",
    "Report": "knnmt.evaluation.reports",
    "Request": "knnmt.translator.memories",
    "RetrievalConfig": "knnmt.config",
    "RetrievalSettings": "knnmt.retrieval.settings",
    "RunSettings": "knnmt.evaluation.running",
    "SegmentPair": "knnmt.corpus.pairs",
    "Steps": "knnmt.translator.steps",
    "Token": "knnmt.translator.translation",
    "Translation": "knnmt.translator.translation",
    "Translator": "knnmt.translator.translator",
    "TuningConfig": "knnmt.fitting.tuning_config",
    "TuningResult": "knnmt.evaluation.tuning",
    "adapt": "knnmt.evaluation.adapting",
    "build": "knnmt.fitting.ready_store",
    "evaluate": "knnmt.evaluation.evaluating",
    "explain": "knnmt.translator.explanation",
    "explanation_page": "knnmt.translator.page",
    "read_glossary": "knnmt.corpus.glossary_files",
    "read_memories": "knnmt.corpus.reading",
    "tune": "knnmt.evaluation.tuning",
}

__all__ = [
    "Adapted",
    "BuildConfig",
    "Built",
    "Caution",
    "Datastore",
    "DecodingConfig",
    "Evidence",
    "Explanation",
    "FilterConfig",
    "Glossary",
    "KNNLogitsProcessor",
    "KnnmtError",
    "KnnmtWarning",
    "Match",
    "OpenStores",
    "ReadingConfig",
    "ReadingReport",
    "Report",
    "Request",
    "RetrievalConfig",
    "RetrievalSettings",
    "RunSettings",
    "SegmentPair",
    "Steps",
    "Token",
    "Translation",
    "Translator",
    "TuningConfig",
    "TuningResult",
    "__version__",
    "adapt",
    "build",
    "evaluate",
    "explain",
    "explanation_page",
    "read_glossary",
    "read_memories",
    "tune",
]


if not TYPE_CHECKING:  # a type checker knows the names, and should complain of others

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'knnmt' has no attribute {name!r}; it has {', '.join(__all__)}")
        with loading("torch", TORCH_SPINS):
            return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
