"""The source side of a store made for Fast kNN-MT: where each source token occurs, in which context, and which target
entries are aligned with it (Meng et al. 2021, section 3.2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from knnmt.config import FastConfig
from knnmt.datastore.arrays import Array
from knnmt.datastore.segment import Segment
from knnmt.index.base import merge_top_k, nothing
from knnmt.index.entries import Entries, RowsInPlace
from knnmt.index.exact import smallest

_RESIDENT_PART = 4  # the states go into the GPU's memory if they take at most one part in this many of what is free


class SourceOccurrences:
    """Every source token of a store, numbered across its segments; tokens of removed sentences are not found.

    The states stay in the segments' memory maps; the numbers here take 24 bytes per source token.

    state_bytes: size of the states
    piece_bytes: of states and similarities that are processed together
    """

    def __init__(self, entries: Entries, device: torch.device | str = "cpu", piece_bytes: int = 1 << 26) -> None:
        self._piece_bytes = piece_bytes
        segments = entries.segments
        self._entries = entries
        states = [segment.arrays["source_states"] for segment in segments]
        self._device = torch.device(device)
        self._dim = states[0].shape[1] if states else 0
        self._rows = RowsInPlace(states)
        self.state_bytes = sum(array.nbytes for array in states)
        self._resident = self._on_device(states)
        first = np.cumsum([0, *map(len, states)])
        tokens = np.concatenate([np.empty(0, np.int32), *(segment.source_tokens() for segment in segments)])
        live = np.concatenate([np.empty(0, bool), *map(_live_occurrences, segments)])
        self._by_token = np.argsort(tokens, kind="stable")
        self._by_token = self._by_token[live[self._by_token]]
        ordered = tokens[self._by_token]
        self._first_of_token = np.searchsorted(ordered, np.arange(int(tokens.max(initial=-1)) + 2))
        parts = [begin + aligned_source_tokens(segment) for begin, segment in zip(first, segments, strict=False)]
        aligned_with = np.concatenate([np.empty(0, np.int64), *parts])
        self._aligned = np.argsort(aligned_with, kind="stable")
        self._first_aligned = np.searchsorted(aligned_with[self._aligned], np.arange(len(tokens) + 1))

    def entries_for(
        self, sources: Sequence[Sequence[int]], states: Sequence[Tensor], config: FastConfig
    ) -> list[Array]:
        """The entries aligned with the nearest occurrences of each sentence's tokens: sorted ids, each once.

        A sentence gets none if only its end token occurs: its store could only say where to end.
        states: the encoder's states for each source, (tokens, dim)
        """
        found: list[list[Array]] = [[] for _ in sources]
        if config.any_token:
            near = self._nearest(torch.cat(list(states)), self._by_token, config.candidates)
            ends = np.cumsum([len(source) for source in sources])[:-1]
            return [self._entries_of(mine) for mine in np.split(near, ends)]
        rows_of_token: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for sentence, source in enumerate(sources):
            if not any(len(self._of(token)) for token in source[:-1]):
                continue
            for place, token in enumerate(source):
                rows_of_token[token].append((sentence, place))
        for token, rows in rows_of_token.items():
            occurrences = self._of(token)
            if len(occurrences) <= config.candidates:  # take all, whatever their states
                for sentence in {sentence for sentence, _ in rows}:
                    found[sentence].append(occurrences)
                continue
            queries = torch.stack([states[sentence][place] for sentence, place in rows])
            near = self._nearest(queries, occurrences, config.candidates)
            for (sentence, _), each in zip(rows, near, strict=True):
                found[sentence].append(each)
        return [self._entries_of(mine) for mine in found]

    def _of(self, token: int) -> Array:
        """The live occurrences of a token."""
        if token + 1 >= len(self._first_of_token):
            return self._by_token[:0]
        return self._by_token[self._first_of_token[token] : self._first_of_token[token + 1]]

    def _nearest(self, queries: Tensor, among: Array, count: int) -> Array:
        """(rows, at most count): the given occurrences with the most similar states, by cosine."""
        queries = functional.normalize(queries.to(self._device, torch.float32), dim=-1)
        size = max(1, self._piece_bytes // (4 * (self._dim + len(queries))))
        best = nothing(queries)
        for begin in range(0, len(among), size):
            numbers = torch.from_numpy(among[begin : begin + size])
            distances = -(queries @ functional.normalize(self._states_of(numbers), dim=-1).T)
            near, columns = smallest(distances, count)
            best = merge_top_k([best, (near, numbers.to(self._device)[columns])], min(count, len(among)))
        found: Array = best[1].cpu().numpy()
        return found

    def _states_of(self, numbers: Tensor) -> Tensor:
        if self._resident is not None:
            return self._resident[numbers.to(self._device)].float()
        states = torch.empty((len(numbers), self._dim), dtype=self._rows.dtype)
        self._rows.gather(numbers, states)
        return states.to(self._device).float()

    def _on_device(self, states: Sequence[Array]) -> Tensor | None:
        """All states in the GPU's memory, if there is a GPU with room for them."""
        if self._device.type != "cuda" or self.state_bytes > torch.cuda.mem_get_info(self._device)[0] // _RESIDENT_PART:
            return None
        return torch.cat([torch.from_numpy(array.copy()) for array in states]).to(self._device) if states else None

    def _entries_of(self, found: Sequence[Array] | Array) -> Array:
        """The entries aligned with some occurrences, which may be repeated."""
        occurrences = np.unique(np.concatenate([np.empty(0, np.int64), *found]))
        begin = self._first_aligned[occurrences]
        counts = self._first_aligned[occurrences + 1] - begin
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self._entries.once(np.sort(self._aligned[np.repeat(begin, counts) + within]))


def _live_occurrences(segment: Segment) -> Array:
    """(source tokens,) bool: True where the token's sentence was not removed."""
    lengths = np.diff(segment.offsets("source_offsets"))
    return np.repeat(~np.isin(np.arange(segment.record.sentences), segment.removed), lengths)


def aligned_source_tokens(segment: Segment) -> Array:
    """(entries,): the number, within the segment, of the source token that each entry is aligned with."""
    owners, offsets, alignment = segment.owners(), segment.offsets("source_offsets"), segment.arrays["alignment"]
    if ((alignment < 0) | (alignment >= np.diff(offsets)[owners])).any():
        raise segment.damaged("an entry is aligned outside its source")
    found: Array = offsets[owners] + alignment
    return found
