"""Searches with a backend of one's choice."""

from __future__ import annotations

from functools import partial

from knnmt.decoding.compiled import CompiledBackend
from knnmt.decoding.graphs import GraphBackend
from knnmt.decoding.reference import ReferenceBackend
from knnmt.decoding.search import search

reference_search = partial(search, make=ReferenceBackend)
compiled_search = partial(search, make=CompiledBackend)
graph_search = partial(search, make=GraphBackend)
