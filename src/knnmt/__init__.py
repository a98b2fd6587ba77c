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
    from knnmt.cli.progress import progress_bars
    from knnmt.compression.pca import reduce
    from knnmt.compression.pruning import prune, prune_by
    from knnmt.config import CacheConfig, DecodingConfig, Fading, FastConfig, OpenStores, RetrievalConfig
    from knnmt.corpus.filters import FilterConfig
    from knnmt.corpus.glossary import Glossary
    from knnmt.corpus.glossary_files import read_glossary
    from knnmt.corpus.lines import read_lines
    from knnmt.corpus.options import ReadingConfig
    from knnmt.corpus.pairs import SegmentPair
    from knnmt.corpus.report import ReadingReport
    from knnmt.corpus.splitting import divide, halves, spread
    from knnmt.datastore.building import BuildConfig
    from knnmt.datastore.copying import copy_store
    from knnmt.datastore.overlap import overlap, unseen
    from knnmt.datastore.store import matching
    from knnmt.distributed.cluster import Cluster
    from knnmt.distributed.tasks import run_tasks
    from knnmt.documents.content import Content
    from knnmt.documents.document import Replacing, Unit
    from knnmt.documents.memories import read_memories
    from knnmt.documents.opening import open_document
    from knnmt.engine.base import Engine
    from knnmt.engine.forced import force_text
    from knnmt.engine.shipped import DEFAULT_MODEL
    from knnmt.errors import KnnmtError, KnnmtWarning
    from knnmt.evaluation.adapting import Adapted, adapt
    from knnmt.evaluation.evaluating import evaluate
    from knnmt.evaluation.reports import Report
    from knnmt.evaluation.running import RunSettings, machine
    from knnmt.evaluation.scoring import Difference, Score, Scores, resampled_scores, score
    from knnmt.evaluation.systems import System, gather_systems
    from knnmt.evaluation.tuning import tune
    from knnmt.evaluation.tuning_steps import TuningResult
    from knnmt.fitting.combined_stores import merge, shard_set, split
    from knnmt.fitting.combiner_rows import collect_rows
    from knnmt.fitting.combiner_training import CombinerConfig, train_combiner
    from knnmt.fitting.development import search_text
    from knnmt.fitting.fidelity import fidelity
    from knnmt.fitting.gate_training import GateConfig, GateText, gate_text, train_gate
    from knnmt.fitting.likelihood import Positions
    from knnmt.fitting.ready_store import Built, Datastore, build
    from knnmt.fitting.search_choice import choose_search
    from knnmt.fitting.tuning import squared_temperatures, tune_positions
    from knnmt.fitting.tuning_config import TuningConfig
    from knnmt.huggingface.processor import KNNLogitsProcessor
    from knnmt.index.base import Index
    from knnmt.index.covering import Coverage, Covering, SourceIndex
    from knnmt.index.kinds import Kind, SearchSettings, lists_for
    from knnmt.index.progress import Bars
    from knnmt.index.saved import build_index
    from knnmt.output_files import write_output
    from knnmt.protection.marked import Code, Marked, Role
    from knnmt.retrieval.distribution import log_weights
    from knnmt.retrieval.gate import ThresholdGate, TrainedGate
    from knnmt.retrieval.matches import Match
    from knnmt.retrieval.neighbours import Neighbours
    from knnmt.retrieval.occurrences import aligned_source_tokens
    from knnmt.retrieval.open_store import OpenStore
    from knnmt.retrieval.retriever import Retrieval
    from knnmt.retrieval.settings import RetrievalSettings
    from knnmt.retrieval.statistics import Statistics
    from knnmt.retrieval.step import Combiner, Gate, Signed, Step
    from knnmt.retrieval.trained.combiner import TrainedCombiner
    from knnmt.retrieval.trained.networks import CombinerNetwork
    from knnmt.retrieval.trained.seen import Seen
    from knnmt.service.client import Client
    from knnmt.timing import stage_times
    from knnmt.translator.evidence import Evidence
    from knnmt.translator.explanation import Explanation, explain
    from knnmt.translator.memories import Request
    from knnmt.translator.page import explanation_page
    from knnmt.translator.steps import Steps
    from knnmt.translator.translation import Caution, Token, Translation
    from knnmt.translator.translator import Translator

_HOMES = {
    "Adapted": "knnmt.evaluation.adapting",
    "Bars": "knnmt.index.progress",
    "BuildConfig": "knnmt.datastore.building",
    "Built": "knnmt.fitting.ready_store",
    "CacheConfig": "knnmt.config",
    "Caution": "knnmt.translator.translation",
    "Client": "knnmt.service.client",
    "Cluster": "knnmt.distributed.cluster",
    "Code": "knnmt.protection.marked",
    "Combiner": "knnmt.retrieval.step",
    "CombinerConfig": "knnmt.fitting.combiner_training",
    "CombinerNetwork": "knnmt.retrieval.trained.networks",
    "Content": "knnmt.documents.content",
    "Coverage": "knnmt.index.covering",
    "Covering": "knnmt.index.covering",
    "DEFAULT_MODEL": "knnmt.engine.shipped",
    "Datastore": "knnmt.fitting.ready_store",
    "DecodingConfig": "knnmt.config",
    "Difference": "knnmt.evaluation.scoring",
    "Engine": "knnmt.engine.base",
    "Evidence": "knnmt.translator.evidence",
    "Explanation": "knnmt.translator.explanation",
    "Fading": "knnmt.config",
    "FastConfig": "knnmt.config",
    "FilterConfig": "knnmt.corpus.filters",
    "Gate": "knnmt.retrieval.step",
    "GateConfig": "knnmt.fitting.gate_training",
    "GateText": "knnmt.fitting.gate_training",
    "Glossary": "knnmt.corpus.glossary",
    "Index": "knnmt.index.base",
    "KNNLogitsProcessor": "knnmt.huggingface.processor",
    "Kind": "knnmt.index.kinds",
    "KnnmtError": "knnmt.errors",
    "KnnmtWarning": "knnmt.errors",
    "Marked": "knnmt.protection.marked",
    "Match": "knnmt.retrieval.matches",
    "Neighbours": "knnmt.retrieval.neighbours",
    "OpenStore": "knnmt.retrieval.open_store",
    "OpenStores": "knnmt.config",
    "Positions": "knnmt.fitting.likelihood",
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
    "Score": "knnmt.evaluation.scoring",
    "Scores": "knnmt.evaluation.scoring",
    "SearchSettings": "knnmt.index.kinds",
    "Seen": "knnmt.retrieval.trained.seen",
    "SegmentPair": "knnmt.corpus.pairs",
    "Signed": "knnmt.retrieval.step",
    "SourceIndex": "knnmt.index.covering",
    "Statistics": "knnmt.retrieval.statistics",
    "Step": "knnmt.retrieval.step",
    "Steps": "knnmt.translator.steps",
    "System": "knnmt.evaluation.systems",
    "ThresholdGate": "knnmt.retrieval.gate",
    "Token": "knnmt.translator.translation",
    "TrainedCombiner": "knnmt.retrieval.trained.combiner",
    "TrainedGate": "knnmt.retrieval.gate",
    "Translation": "knnmt.translator.translation",
    "Translator": "knnmt.translator.translator",
    "TuningConfig": "knnmt.fitting.tuning_config",
    "TuningResult": "knnmt.evaluation.tuning_steps",
    "Unit": "knnmt.documents.document",
    "adapt": "knnmt.evaluation.adapting",
    "aligned_source_tokens": "knnmt.retrieval.occurrences",
    "build": "knnmt.fitting.ready_store",
    "build_index": "knnmt.index.saved",
    "choose_search": "knnmt.fitting.search_choice",
    "collect_rows": "knnmt.fitting.combiner_rows",
    "copy_store": "knnmt.datastore.copying",
    "divide": "knnmt.corpus.splitting",
    "evaluate": "knnmt.evaluation.evaluating",
    "explain": "knnmt.translator.explanation",
    "explanation_page": "knnmt.translator.page",
    "fidelity": "knnmt.fitting.fidelity",
    "force_text": "knnmt.engine.forced",
    "gate_text": "knnmt.fitting.gate_training",
    "gather_systems": "knnmt.evaluation.systems",
    "halves": "knnmt.corpus.splitting",
    "lists_for": "knnmt.index.kinds",
    "log_weights": "knnmt.retrieval.distribution",
    "machine": "knnmt.evaluation.running",
    "matching": "knnmt.datastore.store",
    "merge": "knnmt.fitting.combined_stores",
    "open_document": "knnmt.documents.opening",
    "overlap": "knnmt.datastore.overlap",
    "progress_bars": "knnmt.cli.progress",
    "prune": "knnmt.compression.pruning",
    "prune_by": "knnmt.compression.pruning",
    "read_glossary": "knnmt.corpus.glossary_files",
    "read_lines": "knnmt.corpus.lines",
    "read_memories": "knnmt.documents.memories",
    "reduce": "knnmt.compression.pca",
    "resampled_scores": "knnmt.evaluation.scoring",
    "run_tasks": "knnmt.distributed.tasks",
    "score": "knnmt.evaluation.scoring",
    "search_text": "knnmt.fitting.development",
    "shard_set": "knnmt.fitting.combined_stores",
    "split": "knnmt.fitting.combined_stores",
    "spread": "knnmt.corpus.splitting",
    "squared_temperatures": "knnmt.fitting.tuning",
    "stage_times": "knnmt.timing",
    "train_combiner": "knnmt.fitting.combiner_training",
    "train_gate": "knnmt.fitting.gate_training",
    "tune": "knnmt.evaluation.tuning",
    "tune_positions": "knnmt.fitting.tuning",
    "unseen": "knnmt.datastore.overlap",
    "write_output": "knnmt.output_files",
}

__all__ = [
    "DEFAULT_MODEL",
    "Adapted",
    "Bars",
    "BuildConfig",
    "Built",
    "CacheConfig",
    "Caution",
    "Client",
    "Cluster",
    "Code",
    "Combiner",
    "CombinerConfig",
    "CombinerNetwork",
    "Content",
    "Coverage",
    "Covering",
    "Datastore",
    "DecodingConfig",
    "Difference",
    "Engine",
    "Evidence",
    "Explanation",
    "Fading",
    "FastConfig",
    "FilterConfig",
    "Gate",
    "GateConfig",
    "GateText",
    "Glossary",
    "Index",
    "KNNLogitsProcessor",
    "Kind",
    "KnnmtError",
    "KnnmtWarning",
    "Marked",
    "Match",
    "Neighbours",
    "OpenStore",
    "OpenStores",
    "Positions",
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
    "Score",
    "Scores",
    "SearchSettings",
    "Seen",
    "SegmentPair",
    "Signed",
    "SourceIndex",
    "Statistics",
    "Step",
    "Steps",
    "System",
    "ThresholdGate",
    "Token",
    "TrainedCombiner",
    "TrainedGate",
    "Translation",
    "Translator",
    "TuningConfig",
    "TuningResult",
    "Unit",
    "__version__",
    "adapt",
    "aligned_source_tokens",
    "build",
    "build_index",
    "choose_search",
    "collect_rows",
    "copy_store",
    "divide",
    "evaluate",
    "explain",
    "explanation_page",
    "fidelity",
    "force_text",
    "gate_text",
    "gather_systems",
    "halves",
    "lists_for",
    "log_weights",
    "machine",
    "matching",
    "merge",
    "open_document",
    "overlap",
    "progress_bars",
    "prune",
    "prune_by",
    "read_glossary",
    "read_lines",
    "read_memories",
    "reduce",
    "resampled_scores",
    "run_tasks",
    "score",
    "search_text",
    "shard_set",
    "split",
    "spread",
    "squared_temperatures",
    "stage_times",
    "train_combiner",
    "train_gate",
    "tune",
    "tune_positions",
    "unseen",
    "write_output",
]


if not TYPE_CHECKING:  # a type checker knows the names, and should report others

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'knnmt' has no attribute {name!r}; it has {', '.join(__all__)}")
        with loading("torch", TORCH_SPINS):
            return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
