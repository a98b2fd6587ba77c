"""`OpenStore`: a datastore ready to be searched with a model's decoder states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from knnmt import timing
from knnmt.compression.pca import KeyProjection
from knnmt.config import FastConfig
from knnmt.datastore.arrays import Array
from knnmt.datastore.lengths import TranslationLengths
from knnmt.datastore.sources import HeldSources
from knnmt.datastore.store import Datastore
from knnmt.errors import SettingError
from knnmt.index.base import Index, SearchResult
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from knnmt.index.kinds import SearchSettings
from knnmt.index.on_device import DeviceIndex
from knnmt.index.store_index import IndexSnapshot, StoreIndex
from knnmt.native import library
from knnmt.retrieval.neighbours import LogCounts, Neighbours
from knnmt.retrieval.occurrences import SourceOccurrences
from knnmt.retrieval.sentence_search import CompiledSentenceSearch, sentence_search
from knnmt.retrieval.sentence_stores import SentenceStores
from knnmt.segments.covering import Coverage, SourceIndex

UNIT_SAME_DISTANCE = 0.06  # between keys of length 1
KEYS_SAMPLED = 256  # keys whose lengths are measured
SMALL = 1 << 17  # entries of a store that compiled steps search as a whole
_numbers = count()


@dataclass(frozen=True, slots=True)
class ChosenEntries:
    """The entries in which each sentence is searched, as ascending distinct ids, and the part of it that they cover."""

    entries: list[Array]
    coverage: list[Coverage]


Chosen = Sequence[ChosenEntries | None]
"""The entries for each way in which sentences of a batch retrieve; None if it does not search by segment."""

ChooseProbes = Callable[[DeviceIndex, Datastore], object]
"""Gives a clustered search over a store, before its first use, the number of probes that it needs to be faithful."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A store as it was at one time, in memory and ready to be searched. Nothing in it changes; threads may share it.

    A batch keeps the snapshot that it began with, so that entry ids, tokens and keys always belong together.

    number: unique for each snapshot
    datastore: the generation of the store on disk; index: the search over it
    projection: reduces queries, if the keys were reduced
    same_distance: keys up to about this Euclidean distance are of the very same state. If a state of the shipped model
        is computed in another batch or in eight bits, it moves by 0.0003 to 0.05 of its length
    earlier_sources: the source side of an earlier snapshot, much of which may be reused
    chooser: chooses segments
    left_out: what is missing of a store that is in several places, in words
    """

    number: int
    datastore: Datastore
    index: IndexSnapshot
    device: torch.device
    projection: KeyProjection | None
    same_distance: float
    earlier_sources: SourceIndex | None = None
    chooser: type[SourceIndex] = SourceIndex
    left_out: tuple[str, ...] = ()

    def signature(self) -> str:
        """Identifies the store in published scores."""
        manifest = self.datastore.manifest
        transforms = f"|made:{'+'.join(manifest.transforms)}" if manifest.transforms else ""
        entries = f"n:{manifest.live_entries}|d:{manifest.dim}{transforms}|content:{manifest.content[:8]}"
        return f"store:{self.datastore.path.name}|{entries}|index:{self.index.signature}"

    def project(self, representations: Tensor) -> Tensor:
        """Decoder states, (rows, dim), in the space of this store's keys."""
        return representations.float() if self.projection is None else self.projection(representations)

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """The k nearest entries of projected queries, or all entries if there are fewer."""
        k = min(k, self.size)
        return self.neighbours(*self.nearest(queries, k)) if k else Neighbours.none(len(queries), 1, queries.device)

    def nearest(self, queries: Tensor, k: int) -> SearchResult:
        """The same as squared distances and ids; the store must have k entries. Equal rows are searched once.

        On a GPU every row is searched: to know which rows are equal, the host would have to wait for the GPU.
        """
        distinct = distinct_rows(queries) if queries.device.type == "cpu" else None
        if distinct is None:
            return self.index.search(queries, k)
        distances_sq, ids = self.index.search(queries[distinct[0]], k)
        return distances_sq[distinct[1]], ids[distinct[1]]

    def neighbours(self, distances_sq: Tensor, ids: Tensor) -> Neighbours:
        """The results of a search, with the entries' tokens."""
        known = ids.clamp(min=0)
        if not self.size:
            return Neighbours(distances_sq, known, ids)
        tokens = self.values[known] if self.device.type != "cpu" else self.index.entries.values_of(known)
        return Neighbours(distances_sq, tokens.long().masked_fill_(ids < 0, 0), ids)

    @property
    def size(self) -> int:
        """The number of entries, including removed ones."""
        return self.index.entries.entries

    @cached_property
    def _all_entries(self) -> dict[tuple[bool, bool], CompiledSentenceSearch]:
        return {}

    @cached_property
    def values(self) -> Tensor:
        """(entries,) int32, the tokens of all entries in one place."""
        return self.index.entries.values.to(self.device)

    @cached_property
    def own_log_probabilities(self) -> Tensor:
        """(entries,) float32 on the CPU, the model's own log-probabilities of all entries in one place."""
        entries = self.index.entries
        return entries.log_probabilities_of(torch.arange(entries.entries))

    @cached_property
    def merged_counts(self) -> Tensor | None:
        """(entries,), how many entries each stands for: repeats of it, and entries that pruning merged with it."""
        return self._here(self.index.entries.counts)

    @cached_property
    def repeats(self) -> Tensor | None:
        """The same for repeats alone. Both are None if each entry stands for itself."""
        return self._here(self.index.entries.repeats)

    def _here(self, counts: Tensor | None) -> Tensor | None:
        return None if counts is None or not len(counts) else counts.to(self.device)

    @cached_property
    def occurrences(self) -> SourceOccurrences:
        """The store's source side, sorted at the first use; an error if the store was not made for Fast kNN-MT."""
        require_for_fast(self.datastore)
        return SourceOccurrences(self.index.entries, self.device)

    def sentence_stores(
        self, sources: Sequence[Sequence[int]], states: Sequence[Tensor], fast: FastConfig
    ) -> SentenceStores:
        """A small store for each sentence, from its tokens and their encoder states, (tokens, dim)."""
        chosen = self.occurrences.entries_for(sources, states, fast)
        return SentenceStores(self.index.entries, chosen, self.device, cosine=True)

    @cached_property
    def source_index(self) -> SourceIndex:
        """The store's source side, for choosing segments."""
        return self.chooser(self.datastore.segments, self.earlier_sources)

    def choose_segments(self, sources: Sequence[Sequence[int]], segments: int) -> ChosenEntries:
        """The entries of the segments that cover each source (token ids) best, and how much they cover.

        If the store has no more than this many segments, all of them are chosen.
        """
        entries = self.index.entries
        with timing.stage("segments"):
            known = [source[:-1] for source in sources]  # all sources have the same end
            found = self.source_index.choose(known, min(segments, self.datastore.manifest.live_sentences))
            if segments >= self.datastore.manifest.live_sentences:
                chosen = [self.live_ids] * len(sources)
            else:
                own = self.source_index.entries_of(found.sentences, entries.said_again)
                chosen = self.source_index.searched(own, sources)
            return ChosenEntries(chosen, found.coverage())

    def segment_entries(self, sources: Sequence[Sequence[int]], segments: int) -> list[Array]:
        """The entries alone."""
        return self.choose_segments(sources, segments).entries

    @property
    def is_small(self) -> bool:
        """Whether it has so few entries, all searched exactly, that compiled steps can search all of them."""
        return self.size <= SMALL and all(isinstance(part, ExactIndex) for part in self.index.parts)

    def all_entries(self, merged: bool, scored: bool) -> CompiledSentenceSearch:
        """All entries as those of one sentence, for compiled steps. See `CompiledSentenceSearch` for the arguments.

        They are made at the first use; two threads that make them at the same time make the same.
        """
        found = self._all_entries.get((merged, scored))
        if found is None:
            made = CompiledSentenceSearch(library(), self.index.entries, [self.live_ids], merged, scored)
            found = self._all_entries.setdefault((merged, scored), made)
        return found

    @cached_property
    def live_ids(self) -> Array:
        """The ids of all entries that were not removed, ascending."""
        entries = self.index.entries
        return np.arange(entries.entries) if entries.live is None else np.flatnonzero(entries.live.numpy())

    def search_segments(self, source: Sequence[int], segments: int, queries: Tensor, k: int) -> Neighbours:
        """The k nearest entries of each query, (rows, dim), in the segments that cover a source (token ids) best."""
        own = sentence_search(self.index.entries, self.segment_entries([source], segments), self.device)
        return self.neighbours(*own.search(queries, k))

    def all_counts(self, merged: bool) -> Tensor | None:
        """(entries,), how many equal entries each stands for, or None if each stands for itself.

        merged: also count the entries that pruning merged with it
        """
        return self.merged_counts if merged else self.repeats

    def counts(self, ids: Tensor, merged: bool) -> Tensor | None:
        """The same for some entries."""
        known = ids.clamp(min=0)
        if self.device.type == "cpu":
            return self.index.entries.counts_of(known, merged)
        every = self.all_counts(merged)
        return None if every is None else every[known]

    def log_counts(self, ids: Tensor) -> LogCounts:
        """The logarithms of both kinds of counts, on the CPU."""
        counts, repeats = (self.counts(ids, merged) for merged in (True, False))
        return counts if counts is None else counts.log().cpu(), repeats if repeats is None else repeats.log().cpu()


def _usual_length(entries: Entries) -> float:
    """The median length of a sample of a store's keys; 1 if it has none."""
    if not entries.entries:
        return 1.0
    ids = np.unique(np.linspace(0, entries.entries - 1, KEYS_SAMPLED, dtype=np.int64))
    return float(np.median(np.linalg.norm(entries.keys_of(ids).astype(np.float32), axis=1)))


class OpenStore:
    """A store ready to be searched with a model's decoder states. It shows one snapshot until `refresh`.

    choose_probes: for clustered search on a GPU (`calibration.index_choice`); without it, every key is compared
    chooser: chooses segments for a source
    snapshot: the present state. It is replaced as a whole, in one step: a thread that refreshes disturbs no other, and
        a batch keeps the snapshot that it began with.
    only_by_segment: whether nothing but search by segment works
    """

    only_by_segment = False

    def __init__(
        self,
        store: Datastore,
        device: torch.device | str = "cpu",
        exact: bool = False,
        choose_probes: ChooseProbes = lambda index, _: index.give_clusters_up(),
        chooser: type[SourceIndex] = SourceIndex,
    ) -> None:
        self.datastore = store
        self._chooser = chooser
        self._choose_probes = choose_probes
        self.sources = HeldSources(store)
        self.lengths = TranslationLengths(store)
        self.device = torch.device(device)
        self.index = StoreIndex(store, device, exact)
        self._refreshing = Lock()
        self.snapshot = self._taken(None)

    def _taken(self, earlier: Snapshot | None) -> Snapshot:
        index = self.index.snapshot
        entries = index.entries
        if (part := index.clustered) is not None and not part.clusters.settled:
            self._choose_probes(part, index.store)
        projection = KeyProjection.of(index.store)
        return Snapshot(
            number=next(_numbers),
            datastore=index.store,
            index=index,
            device=self.device,
            projection=None if projection is None else projection.to(self.device),
            same_distance=UNIT_SAME_DISTANCE * _usual_length(entries),
            earlier_sources=None if earlier is None else vars(earlier).get("source_index", earlier.earlier_sources),
            chooser=self._chooser,
        )

    def refresh(self) -> bool:
        """Move to the newest generation of the store and its index; True if anything changed."""
        with self._refreshing:
            changed = self.index.refresh()
            if changed:
                self.snapshot = self._taken(self.snapshot)
            return changed

    def for_batch(self, sources: Sequence[Sequence[int]], segments: int | None) -> OpenStore:  # noqa: ARG002
        """The store to search for a batch of sources (token ids): this one, if all its entries are here."""
        return self

    def searched_by(self, search: Index, name: str) -> OpenStore:
        """This store with a search of your own over all its entries, until the store changes. This object stays.

        Args:
            search: finds the nearest of the keys in `snapshot.index.entries`.
            name: identifies the search in signatures.
        """
        return self._with(replace(self.snapshot.index, own=(search, name)))

    def with_settings(self, settings: SearchSettings) -> OpenStore:
        """This store, whose saved index is searched with other settings until the store changes. This object stays.

        A store without an index is searched exactly, whatever the settings.
        """
        index = self.snapshot.index
        if index.approximate is None:
            return self
        return self._with(replace(index, approximate=index.approximate.at(index.entries, settings)))

    def _with(self, index: IndexSnapshot) -> OpenStore:
        """The snapshot has a number of its own, because steps on a GPU are recorded for one snapshot."""
        found = copy(self)
        found.snapshot = replace(self.snapshot, number=next(_numbers), index=index)
        return found

    # The present snapshot ---------------------------------------------------------------------------------------------

    @property
    def values(self) -> Tensor:
        return self.snapshot.values

    def signature(self) -> str:
        """Identifies the store in published scores."""
        return self.snapshot.signature()

    def project(self, representations: Tensor) -> Tensor:
        """As in `Snapshot`, like the methods below."""
        return self.snapshot.project(representations)

    def search(self, queries: Tensor, k: int) -> Neighbours:
        return self.snapshot.search(queries, k)

    def neighbours(self, distances_sq: Tensor, ids: Tensor) -> Neighbours:
        return self.snapshot.neighbours(distances_sq, ids)

    @property
    def occurrences(self) -> SourceOccurrences:
        return self.snapshot.occurrences

    def sentence_stores(
        self, sources: Sequence[Sequence[int]], states: Sequence[Tensor], fast: FastConfig
    ) -> SentenceStores:
        return self.snapshot.sentence_stores(sources, states, fast)

    def counts(self, ids: Tensor, merged: bool) -> Tensor | None:
        return self.snapshot.counts(ids, merged)

    def log_counts(self, ids: Tensor) -> LogCounts:
        return self.snapshot.log_counts(ids)

    @property
    def same_distance(self) -> float:
        return self.snapshot.same_distance


def require_for_fast(store: Datastore) -> None:
    """Refuse a store that lacks what Fast kNN-MT needs."""
    if not store.manifest.for_fast:
        raise SettingError(
            f"{store.path}: Fast kNN-MT needs the source side of the sentences, which this store lacks. "
            "Build it again with --for-fast, or translate without --fast"
        )


@lru_cache(maxsize=8)
def _direction(dim: int, device: torch.device) -> Tensor:
    return torch.randn(dim, generator=torch.Generator().manual_seed(0)).to(device)


def distinct_rows(queries: Tensor, direction: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
    """The rows to search, and for each row which of them it equals; None if no two rows are equal.

    All beams of a sentence are equal at its first step, and so are equal sentences of a batch.

    queries (rows, dim). Equal rows have equal products with a random direction, which are cheap to compare. Different
    rows that have equal products by chance are each searched.
    direction: (dim,), by default random, always the same
    """
    if len(queries) < 2:
        return None
    if len(set(queries[:, 0].tolist())) == len(queries):
        return None  # mostly the first numbers already differ
    # Not `@`: it adds up the rows of one call in different orders, and equal rows would differ in the last bit.
    if direction is None:
        direction = _direction(queries.shape[1], queries.device)
    products = (queries * direction).sum(1)
    ordered, order = products.sort(stable=True)
    new = torch.ones_like(order, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    if bool(new.all()):
        return None
    new[1:] |= (queries[order[1:]] != queries[order[:-1]]).any(1)
    which = torch.empty_like(order)
    which[order] = new.cumsum(0) - 1
    return order[new], which
