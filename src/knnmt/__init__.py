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
    from knnmt.config import CacheConfig, DecodingConfig, Fading, FastConfig, OpenStores, RetrievalConfig
    from knnmt.corpus.filters import FilterConfig
    from knnmt.corpus.glossary import Glossary
    from knnmt.corpus.glossary_files import read_glossary
    from knnmt.corpus.options import ReadingConfig
    from knnmt.corpus.pairs import SegmentPair
    from knnmt.corpus.report import ReadingReport
    from knnmt.corpus.splitting import divide
    from knnmt.datastore.building import BuildConfig
    from knnmt.datastore.copying import copy_store
    from knnmt.datastore.overlap import unseen
    from knnmt.datastore.store import matching
    from knnmt.distributed.cluster import Cluster
    from knnmt.documents.content import Content
    from knnmt.documents.document import Replacing, Unit
    from knnmt.documents.memories import read_memories
    from knnmt.documents.opening import open_document
    from knnmt.errors import KnnmtError, KnnmtWarning
    from knnmt.evaluation.adapting import Adapted, adapt
    from knnmt.evaluation.evaluating import evaluate
    from knnmt.evaluation.reports import Report
    from knnmt.evaluation.running import RunSettings
    from knnmt.evaluation.tuning import tune
    from knnmt.evaluation.tuning_steps import TuningResult
    from knnmt.fitting.combined_stores import merge, shard_set, split
    from knnmt.fitting.ready_store import Built, Datastore, build
    from knnmt.fitting.tuning_config import TuningConfig
    from knnmt.huggingface.processor import KNNLogitsProcessor
    from knnmt.index.covering import Coverage
    from knnmt.index.kinds import Kind, SearchSettings, lists_for
    from knnmt.protection.marked import Code, Marked, Role
    from knnmt.retrieval.distribution import log_weights
    from knnmt.retrieval.matches import Match
    from knnmt.retrieval.neighbours import Neighbours
    from knnmt.retrieval.retriever import Retrieval
    from knnmt.retrieval.settings import RetrievalSettings
    from knnmt.retrieval.statistics import Statistics
    from knnmt.retrieval.step import Combiner, Gate, Signed, Step
    from knnmt.service.client import Client
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
    "CacheConfig": "knnmt.config",
    "Caution": "knnmt.translator.translation",
    "Client": "knnmt.service.client",
    "Cluster": "knnmt.distributed.cluster",
    "Code": "knnmt.protection.marked",
    "Combiner": "knnmt.retrieval.step",
    "Content": "knnmt.documents.content",
    "Coverage": "knnmt.index.covering",
    "Datastore": "knnmt.fitting.ready_store",
    "DecodingConfig": "knnmt.config",
    "Evidence": "knnmt.translator.evidence",
    "Explanation": "knnmt.translator.explanation",
    "Fading": "knnmt.config",
    "FastConfig": "knnmt.config",
    "FilterConfig": "knnmt.corpus.filters",
    "Gate": "knnmt.retrieval.step",
    "Glossary": "knnmt.corpus.glossary",
    "KNNLogitsProcessor": "knnmt.huggingface.processor",
    "Kind": "knnmt.index.kinds",
    "KnnmtError": "knnmt.errors",
    "KnnmtWarning": "knnmt.errors",
    "Marked": "knnmt.protection.marked",
    "Match": "knnmt.retrieval.matches",
    "Neighbours": "knnmt.retrieval.neighbours",
    "OpenStores": "knnmt.config",
    "ReadingConfig": "knnmt.corpus.options",
    "ReadingReport": "knnmt.corpus.report",
    "Replacing": "knnmt.documents.document",
    "Report": "knnmt.evaluation.reports",
    "Request": "knnmt.translator.memories",
    "Retrieval": "knnmt.retrieval.retriever",
    "RetrievalConfig": "knnmt.config",
    "RetrievalSettings": "knnmt.retrieval.settings",
    "Role": "knnmt.protection.marked",
    "RunSettings": "knnmt.evaluation.running",
    "SearchSettings": "knnmt.index.kinds",
    "SegmentPair": "knnmt.corpus.pairs",
    "Signed": "knnmt.retrieval.step",
    "Statistics": "knnmt.retrieval.statistics",
    "Step": "knnmt.retrieval.step",
    "Steps": "knnmt.translator.steps",
    "Token": "knnmt.translator.translation",
    "Translation": "knnmt.translator.translation",
    "Translator": "knnmt.translator.translator",
    "TuningConfig": "knnmt.fitting.tuning_config",
    "TuningResult": "knnmt.evaluation.tuning_steps",
    "Unit": "knnmt.documents.document",
    "adapt": "knnmt.evaluation.adapting",
    "build": "knnmt.fitting.ready_store",
    "copy_store": "knnmt.datastore.copying",
    "divide": "knnmt.corpus.splitting",
    "evaluate": "knnmt.evaluation.evaluating",
    "explain": "knnmt.translator.explanation",
    "explanation_page": "knnmt.translator.page",
    "lists_for": "knnmt.index.kinds",
    "log_weights": "knnmt.retrieval.distribution",
    "matching": "knnmt.datastore.store",
    "merge": "knnmt.fitting.combined_stores",
    "open_document": "knnmt.documents.opening",
    "read_glossary": "knnmt.corpus.glossary_files",
    "read_memories": "knnmt.documents.memories",
    "shard_set": "knnmt.fitting.combined_stores",
    "split": "knnmt.fitting.combined_stores",
    "tune": "knnmt.evaluation.tuning",
    "unseen": "knnmt.datastore.overlap",
}

__all__ = [
    "Adapted",
    "BuildConfig",
    "Built",
    "CacheConfig",
    "Caution",
    "Client",
    "Cluster",
    "Code",
    "Combiner",
    "Content",
    "Coverage",
    "Datastore",
    "DecodingConfig",
    "Evidence",
    "Explanation",
    "Fading",
    "FastConfig",
    "FilterConfig",
    "Gate",
    "Glossary",
    "KNNLogitsProcessor",
    "Kind",
    "KnnmtError",
    "KnnmtWarning",
    "Marked",
    "Match",
    "Neighbours",
    "OpenStores",
    "ReadingConfig",
    "ReadingReport",
    "Replacing",
    "Report",
    "Request",
    "Retrieval",
    "RetrievalConfig",
    "RetrievalSettings",
    "Role",
    "RunSettings",
    "SearchSettings",
    "SegmentPair",
    "Signed",
    "Statistics",
    "Step",
    "Steps",
    "Token",
    "Translation",
    "Translator",
    "TuningConfig",
    "TuningResult",
    "Unit",
    "__version__",
    "adapt",
    "build",
    "copy_store",
    "divide",
    "evaluate",
    "explain",
    "explanation_page",
    "lists_for",
    "log_weights",
    "matching",
    "merge",
    "open_document",
    "read_glossary",
    "read_memories",
    "shard_set",
    "split",
    "tune",
    "unseen",
]


if not TYPE_CHECKING:  # a type checker knows the names, and should report others

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'knnmt' has no attribute {name!r}; it has {', '.join(__all__)}")
        with loading("torch", TORCH_SPINS):
            return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
