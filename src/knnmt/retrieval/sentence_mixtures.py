"""The mixture of each sentence with the entries of its own segments, or of a small store, for steps in compiled code.

Sentences of a batch may have different stores and settings, and some may have none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from knnmt import timing
from knnmt.errors import DatastoreDamagedError
from knnmt.native import library
from knnmt.retrieval.compiled import damage, mixing_of
from knnmt.retrieval.needs import Group
from knnmt.retrieval.open_store import Chosen
from knnmt.retrieval.sentence_search import CompiledSentenceSearch
from knnmt.retrieval.statistics import Statistics
from knnmt.retrieval.trained.compiled import CompiledNetwork


class SentenceMixtures:
    """Where compiled code finds the settings and the entries of each sentence.

    addresses: of structures `SentenceMixing` and `SentenceEntries`, two arrays (sentences,), 0 for the model alone
    """

    def __init__(
        self, groups: Sequence[Group], chosen: Chosen, sentences: int, vocabulary: int, statistics: Statistics
    ) -> None:
        self._groups, self._vocabulary, self._statistics = groups, vocabulary, statistics
        self._memory: list[object] = []  # memory that the addresses are of
        settings, entries = (np.zeros(sentences, np.uintp) for _ in range(2))
        for group, mine in zip(groups, chosen, strict=True):
            if not group.store.size:
                continue
            with timing.stage("codes"):
                network = CompiledNetwork.of(group.combiner, group.config.k)
                mixing = mixing_of(group.store, group.config, network)
                mixing["vocabulary"] = vocabulary
                use_counts, scored = group.config.use_counts, network is not None
                if mine is None or mine.entries[0] is group.store.live_ids:
                    own = group.store.all_entries(use_counts, scored)
                else:
                    own = CompiledSentenceSearch(library(), group.store.index.entries, mine.entries, use_counts, scored)
            settings[group.sentences], entries[group.sentences] = mixing.ctypes.data, own.addresses
            self._memory += [network, mixing, own]
        self.addresses: tuple[npt.NDArray[np.uintp], npt.NDArray[np.uintp]] = settings, entries

    def count(self, searches: npt.NDArray[np.int64]) -> None:
        """Count the searches of sentences that are done. The first of each is of a single row."""
        first = int(np.count_nonzero(searches))
        if first:
            self._statistics.count(first, first, 0, first=True)
        others = int(searches.sum()) - first
        self._statistics.count(others, others, 0, first=False)

    def damage(self, sentence: int) -> DatastoreDamagedError:
        """The error if compiled code met impossible values in the entries of a sentence."""
        store = next(group.store for group in self._groups if sentence in group.sentences)
        return damage(store, self._vocabulary)
