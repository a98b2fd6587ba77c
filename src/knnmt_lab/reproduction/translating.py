"""Translating with one row: its retrieval, the number of its searches, and its cost."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from knnmt import (
    Combiner,
    Gate,
    KnnmtWarning,
    OpenStore,
    Retrieval,
    RetrievalConfig,
    Statistics,
    TrainedCombiner,
    Translation,
    Translator,
    stage_times,
)
from knnmt_lab.reproduction.later import combiner_directory
from knnmt_lab.reproduction.plan import COMBINERS, Row
from knnmt_lab.reproduction.sk_mt import NearestDistance

_MAX_TOKENS = 200  # a broken system would go on to the model's last position


@dataclass(frozen=True, slots=True)
class ReadyRow:
    """A row that is ready to translate. retrieval: None for the model alone"""

    row: Row
    retrieval: Retrieval | None

    @classmethod
    def of(cls, row: Row, opened: OpenStore | None, config: RetrievalConfig | None, gate: Gate | None) -> ReadyRow:
        """Make a row from its store, the store's tuned settings, and its gate."""
        if opened is None or config is None:
            return cls(row, None)
        combiner: Combiner | None = NearestDistance(config.temperature) if row.segments == "bm25" else None
        if row.combiner is not None:
            place = combiner_directory(opened.datastore.path, row.combiner, row.seed)
            learnt = TrainedCombiner.read(opened.datastore, COMBINERS[row.combiner][0], opened.device, place)
            config, combiner = learnt.applied_to(config, ()), learnt
        return cls(row, Retrieval(opened, replace(config, cache=row.cache, gate=row.alpha), gate, combiner))

    @property
    def config(self) -> RetrievalConfig | None:
        return None if self.retrieval is None else self.retrieval.config

    def translate(
        self,
        translator: Translator,
        sources: Sequence[str],
        batch_size: int,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
        borrowed: bool = False,
    ) -> tuple[list[Translation], dict[str, Any]]:
        """Translations and figures: seconds, where they went, tokens, and searches as in `Statistics`.

        borrowed: measure the distance to the states whose searches the cache's hits use, which takes time
        """
        longest = min(_MAX_TOKENS, translator.engine.max_positions - 1)
        # Passed as objects: no name leads to random gates.
        how: dict[str, Any] = {"datastore": None} if self.retrieval is None else {"retrieval": self.retrieval}
        how |= {"settings": "raw", "max_tokens": longest}
        statistics = Statistics(borrowed_distances=Counter() if borrowed else None)
        with warnings.catch_warnings(), stage_times() as timings:
            warnings.simplefilter("ignore", KnnmtWarning)  # translations that were cut off are counted
            started = time.perf_counter()
            found = []
            for each in translator.stream(sources, batch_size=batch_size, statistics=statistics, **how):
                found.append(each)
                progress(len(found), len(sources))
            seconds = time.perf_counter() - started
        signature = translator.signature(**how)
        counted = {name: value for name, value in asdict(statistics).items() if isinstance(value, int)}
        return found, {
            "seconds": seconds,
            "stage_seconds": dict(timings.seconds),
            "tokens": sum(len(each.tokens) for each in found),
            "cut": sum(not each.complete for each in found),
            "batch_size": batch_size,
            "searches": counted,
            **({"borrowed": dict(statistics.borrowed_distances or {})} if borrowed else {}),
            "signature": signature,
        }
