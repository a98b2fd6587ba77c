"""Statistics of the searches of a run: how many rows searched, and how many the cache saved."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_counting = Lock()  # threads that translate with one translator count together


@dataclass(slots=True)
class Statistics:
    """The number of rows in all steps, and how many were searched or reused an earlier retrieval.

    The `first_` counts are those of each batch's first step with retrieval, which the paper's own counters leave out.
    hit_distances: on request, how many hits had a Euclidean distance below 1, from 1 to 2, and so on
    borrowed_distances: the same for the distance between a hit and the state whose search it uses, which is larger if
        the nearest kept state was a hit itself
    fast_bytes: with Fast kNN-MT, the largest size of the small stores of one batch; fast_states_bytes: the encoder
        states in memory maps
    left_out: how often a shard did not answer for a sentence
    """

    rows: int = 0
    searches: int = 0
    hits: int = 0
    first_rows: int = 0
    first_searches: int = 0
    hit_distances: Counter[int] | None = None
    borrowed_distances: Counter[int] | None = None
    fast_bytes: int = 0
    fast_states_bytes: int = 0
    left_out: int = 0

    def saved(self, with_first_step: bool = True) -> float:
        """The part of all rows that was not searched."""
        rows, searches = self.rows, self.searches
        if not with_first_step:
            rows, searches = rows - self.first_rows, searches - self.first_searches
        return 1 - searches / rows if rows else 0.0

    def summary(self) -> str:
        """Lines for people: searches and, if requested, the distances of hits."""
        saved = f"{self.saved():.1%} saved, {self.saved(with_first_step=False):.1%} without first steps"
        lines = [f"searches     {self.searches:,} for {self.rows:,} rows ({saved}); {self.hits:,} from the cache"]
        for distance, count in sorted((self.hit_distances or {}).items()):
            lines.append(f"hits         {count:,} from {distance} to {distance + 1}")
        if self.fast_bytes:
            states, batch = self.fast_states_bytes / 1e6, self.fast_bytes / 1e6
            lines.append(
                f"fast         {batch:,.1f} MB at most for the stores of a batch; {states:,.1f} MB of states, mapped"
            )
        if self.left_out:
            lines.append(f"shards       {self.left_out:,} times a shard did not answer for a sentence")
        return "\n".join(lines)

    def count_left_out(self, times: int) -> None:
        """Count how often shards did not answer for sentences of a batch."""
        with _counting:
            self.left_out += times

    def count(self, rows: int, searches: int, hits: int, first: bool) -> None:
        """Count a step. first: whether it is the first of its batch."""
        with _counting:
            self.rows += rows
            self.searches += searches
            self.hits += hits
            if first:
                self.first_rows += rows
                self.first_searches += searches

    def count_hits(self, distances: Tensor, hits: Tensor) -> None:
        """Count the distances of a step's hits, if requested; both (rows,), hits bool."""
        if self.hit_distances is not None:
            with _counting:
                self.hit_distances.update(distances[hits].long().tolist())

    def count_borrowed(self, distances: Tensor) -> None:
        """Count the distances (hits,) between a step's hits and the states whose searches they use."""
        if self.borrowed_distances is not None:
            with _counting:
                self.borrowed_distances.update(distances.long().tolist())

    def count_fast(self, store_bytes: int, state_bytes: int) -> None:
        """Count the small stores of a batch."""
        with _counting:
            self.fast_bytes = max(self.fast_bytes, store_bytes)
            self.fast_states_bytes = max(self.fast_states_bytes, state_bytes)
