"""The public names and where they are. Type checkers read this file, and `knnmt/__init__.py` loads names by it."""

from knnmt.cli.progress import progress_bars as progress_bars
from knnmt.cli.setting_options import takes_settings as takes_settings
from knnmt.compression.pca import reduce as reduce
from knnmt.compression.pruning import prune as prune, prune_by as prune_by
from knnmt.config import (
    CacheConfig as CacheConfig,
    DecodingConfig as DecodingConfig,
    Fading as Fading,
    FastConfig as FastConfig,
    OpenStores as OpenStores,
    RetrievalConfig as RetrievalConfig,
)
from knnmt.corpus.filters import FilterConfig as FilterConfig
from knnmt.corpus.glossary import Glossary as Glossary
from knnmt.corpus.glossary_files import read_glossary as read_glossary
from knnmt.corpus.lines import read_lines as read_lines
from knnmt.corpus.options import ReadingConfig as ReadingConfig
from knnmt.corpus.pairs import SegmentPair as SegmentPair
from knnmt.corpus.report import ReadingReport as ReadingReport
from knnmt.corpus.splitting import divide as divide, halves as halves, spread as spread
from knnmt.datastore.building import BuildConfig as BuildConfig
from knnmt.datastore.copying import copy_store as copy_store
from knnmt.datastore.overlap import overlap as overlap, unseen as unseen
from knnmt.datastore.store import Datastore as Datastore, matching as matching
from knnmt.distributed.cluster import Cluster as Cluster
from knnmt.distributed.tasks import run_tasks as run_tasks
from knnmt.documents.content import Content as Content
from knnmt.documents.document import Replacing as Replacing, Unit as Unit
from knnmt.documents.read_memories import read_memories as read_memories
from knnmt.documents.opening import open_document as open_document
from knnmt.engine.base import Engine as Engine
from knnmt.engine.forced import force_text as force_text
from knnmt.engine.shipped import DEFAULT_MODEL as DEFAULT_MODEL
from knnmt.errors import KnnmtError as KnnmtError, KnnmtWarning as KnnmtWarning
from knnmt.adapting.adapt import Adapted as Adapted, adapt as adapt
from knnmt.evaluation.evaluating import evaluate as evaluate
from knnmt.evaluation.reports import Report as Report
from knnmt.evaluation.running import machine as machine
from knnmt.evaluation.scoring import (
    Difference as Difference,
    Score as Score,
    Scores as Scores,
    resampled_scores as resampled_scores,
    score as score,
)
from knnmt.evaluation.systems import System as System, gather_systems as gather_systems
from knnmt.adapting.tune import TuningResult as TuningResult, tune as tune
from knnmt.adapting.merge import merge as merge, shard_set as shard_set, split as split
from knnmt.adapting.development import search_text as search_text
from knnmt.adapting.development_text import DevelopmentText as DevelopmentText, read_development as read_development
from knnmt.calibration.fidelity import fidelity as fidelity
from knnmt.adapting.gate_training import (
    GateConfig as GateConfig,
    GateText as GateText,
    gate_text as gate_text,
    train_gate as train_gate,
)
from knnmt.calibration.likelihood import Positions as Positions
from knnmt.adapting.build import Built as Built, build as build
from knnmt.adapting.tuning_by_likelihood import (
    squared_temperatures as squared_temperatures,
    tune_positions as tune_positions,
)
from knnmt.adapting.tuning_config import TuningConfig as TuningConfig
from knnmt.huggingface.processor import KNNLogitsProcessor as KNNLogitsProcessor
from knnmt.index.base import Index as Index
from knnmt.segments.covering import Coverage as Coverage, Covering as Covering, SourceIndex as SourceIndex
from knnmt.index.kinds import Kind as Kind, SearchSettings as SearchSettings, lists_for as lists_for
from knnmt.progress import Bars as Bars
from knnmt.index.saved import build_index as build_index
from knnmt.output_files import write_output as write_output
from knnmt.protection.marked import Code as Code, Marked as Marked, Role as Role
from knnmt.retrieval.distribution import log_weights as log_weights
from knnmt.retrieval.gate import ThresholdGate as ThresholdGate, TrainedGate as TrainedGate
from knnmt.segments.matches import Match as Match
from knnmt.retrieval.neighbours import Neighbours as Neighbours
from knnmt.retrieval.occurrences import aligned_source_tokens as aligned_source_tokens
from knnmt.retrieval.open_store import OpenStore as OpenStore
from knnmt.retrieval.retriever import Retrieval as Retrieval
from knnmt.retrieval.settings import RetrievalSettings as RetrievalSettings
from knnmt.retrieval.statistics import Statistics as Statistics
from knnmt.retrieval.step import (
    Combiner as Combiner,
    Gate as Gate,
    SentenceSoFar as SentenceSoFar,
    Signed as Signed,
    Step as Step,
)
from knnmt.retrieval.trained.combiner import CombinerRecord as CombinerRecord, TrainedCombiner as TrainedCombiner
from knnmt.retrieval.trained.networks import CombinerNetwork as CombinerNetwork, network_named as network_named
from knnmt.retrieval.trained.seen import Seen as Seen, SeenInStep as SeenInStep
from knnmt.service.client import Client as Client
from knnmt.timing import stage_times as stage_times
from knnmt.translator.evidence import Evidence as Evidence
from knnmt.translator.explanation import Explanation as Explanation, explain as explain
from knnmt.translator.memories import Request as Request
from knnmt.translator.open_store import open_store as open_store
from knnmt.translator.page import explanation_page as explanation_page
from knnmt.translator.settings import TranslationSettings as TranslationSettings
from knnmt.translator.steps import Steps as Steps
from knnmt.translator.translation import Caution as Caution, Token as Token, Translation as Translation
from knnmt.translator.translator import Translator as Translator
from knnmt.version import __version__ as __version__

__all__: list[str]  # all of these
