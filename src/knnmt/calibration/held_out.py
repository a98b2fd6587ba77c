"""Queries from a store's own entries: entries of sampled sentences, which must not find their own sentence.

Such an entry finds what new text of the same kind would find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.arrays import Array
from knnmt.datastore.prepared import TEXTS
from knnmt.datastore.source_hashes import possible_hashes
from knnmt.engine.base import Engine, State
from knnmt.engine.forced import force_text
from knnmt.index.base import Index, SearchResult, nearest_first
from knnmt.index.entries import Entries
from knnmt.progress import Progress, ignore
from knnmt.retrieval.open_store import Snapshot
from knnmt.retrieval.sentence_search import sentence_search

SENTENCES = 500


@dataclass(frozen=True, slots=True)
class HeldOutQueries:
    """Keys of sampled entries, and the text that each must not find.

    queries: (rows, dim) float32; tokens: (rows,), the entries' own values
    texts: (rows,), a number for the source text of each query's sentence
    sentences: (rows,), counted from 0; the entries of a sentence are together, in order
    places: for each sentence, the store's segment that holds it, and its number there; none for other text
    """

    entries: Entries
    queries: Tensor
    tokens: Tensor
    texts: Array
    sentences: Tensor
    _text_of_sentence: dict[tuple[int, int], int]
    places: Sequence[tuple[int, int]] = ()

    def search(self, index: Index, k: int, progress: Progress = ignore) -> SearchResult:
        """The k nearest entries of each query outside of sentences with the same source text.

        `progress` is called with the number of queries done, and the total.
        """
        parts = []
        for rows in torch.split(torch.arange(len(self.queries)), 512):
            progress(int(rows[0]) if len(rows) else 0, len(self.queries))
            parts.append(self._search(index, rows, k))
        progress(len(self.queries), len(self.queries))
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    def search_by_segment(self, store: Snapshot, segments: int, k: int) -> SearchResult:
        """The k nearest of the entries of the segments that cover the source of each query's sentence best."""
        parts = []
        sentences: dict[int, list[tuple[int, int]]] = {}
        for place, text in self._text_of_sentence.items():
            sentences.setdefault(text, []).append(place)
        lengths = torch.bincount(self.sentences, minlength=len(self.places))
        rows_of = torch.split(torch.arange(len(self.queries)), lengths.tolist())
        for rows, (number, sentence) in zip(rows_of, self.places, strict=True):
            if not len(rows):  # pruning left no entry of the sentence
                continue
            source = store.source_index.source_of(number, sentence)
            (ids,) = store.segment_entries([source], segments + 1)  # one of them is its own
            text = int(self.texts[int(rows[0])])
            own = np.concatenate([_entries_of(self.entries, *place) for place in sentences[text]])
            ids = ids[~np.isin(ids, own)]
            parts.append(sentence_search(self.entries, [ids], self.queries.device).search(self.queries[rows], k))
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    def _search(self, index: Index, rows: Tensor, k: int) -> SearchResult:
        fetched = 2 * k + 16
        best, short = self._search_once(index, rows, k, fetched)
        while len(short) and fetched < 4096:
            # Only these rows fetch more: an index that re-ranks is more faithful if more is fetched.
            fetched *= 4
            again, still = self._search_once(index, rows[short], k, fetched)
            best[0][short], best[1][short] = again
            short = short[still]
        return best

    def _search_once(self, index: Index, rows: Tensor, k: int, fetched: int) -> tuple[SearchResult, Tensor]:
        """The k nearest fetched entries that are not a row's own, and which rows have too few because of `fetched`."""
        distances_sq, ids = (each.cpu() for each in index.search(self.queries[rows], fetched))
        own = torch.from_numpy(self._own(ids.numpy(), self.texts[rows.numpy()]))
        found = nearest_first(distances_sq, ids.masked_fill(own, -1), k)
        return found, ((found[1] < 0).any(1) & (ids[:, -1] >= 0)).nonzero()[:, 0]

    def _own(self, ids: Array, texts: Array) -> Array:
        numbers, sentences = self.entries.sentence_of(ids.clip(min=0).ravel())
        texts_of = self._text_of_sentence
        own = [texts_of.get(place, -1) for place in zip(numbers.tolist(), sentences.tolist(), strict=True)]
        same: Array = np.array(own, np.int64).reshape(ids.shape) == texts[:, None]
        return same


def forced_queries(
    engine: Engine[State], entries: Entries, pairs: Sequence[SegmentPair], project: Callable[[Tensor], Tensor]
) -> HeldOutQueries:
    """The states before each token of development pairs, which are in no store: nothing is masked for them."""
    forced = force_text(engine, pairs)
    queries = project(forced.representations).cpu()
    return HeldOutQueries(entries, queries, forced.targets, np.full(len(queries), -2), forced.sentences, {})


def sample(
    entries: Entries,
    sentences: int = SENTENCES,
    seed: int = 0,
    min_positions: int = 6_000,
    min_sentences: int = 100,
) -> HeldOutQueries:
    """The entries of sampled sentences that were not removed.

    min_positions: so many are enough, each of which is searched exactly, if they come from `min_sentences` or more
    """
    rng = np.random.default_rng(seed)
    live = [segment.live_sentences() for segment in entries.segments]
    ends = np.cumsum([len(each) for each in live])
    drawn = rng.permutation(int(ends[-1]) if len(ends) else 0)[:sentences]

    def place(number: int) -> tuple[int, int]:
        segment = int(np.searchsorted(ends, number, side="right"))
        return segment, int(live[segment][number - ends[segment] + len(live[segment])])

    positions = np.cumsum([len(_entries_of(entries, *place(number))) for number in drawn])
    enough = max(min_sentences, 1 + int(np.searchsorted(positions, min_positions)))
    chosen = [place(number) for number in sorted(drawn[:enough])]
    wanted: dict[bytes, int] = {}
    own = {each: wanted.setdefault(_unit_source(entries, *each), len(wanted)) for each in chosen}
    text_of_sentence = own | {
        (number, sentence): text
        for number, sentence in _with_sources(entries, live, list(wanted))
        if (text := wanted.get(_unit_source(entries, number, sentence))) is not None
    }
    ids = [_entries_of(entries, number, sentence) for number, sentence in chosen]
    flat = np.concatenate([np.empty(0, np.int64), *ids])
    numbers, owners = entries.sentence_of(flat)
    texts = np.array([text_of_sentence[place] for place in zip(numbers.tolist(), owners.tolist(), strict=True)])
    return HeldOutQueries(
        entries,
        torch.from_numpy(np.array(entries.keys_of(flat), np.float32)),
        entries.values_of(torch.from_numpy(flat)).long(),
        texts.astype(np.int64),
        torch.from_numpy(np.repeat(np.arange(len(ids)), [len(each) for each in ids])),
        text_of_sentence,
        chosen,
    )


def _with_sources(entries: Entries, live: Sequence[Array], sources: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """The live sentences, as segment and number, whose units have one of these sources, and perhaps some others."""
    hashes = possible_hashes(source.decode("utf-8", "replace") for source in sources)
    for number, (segment, sentences) in enumerate(zip(entries.segments, live, strict=True)):
        unit_hashes = segment.arrays["source_hashes"][segment.units_of(sentences)]  # also of lines
        for sentence in sentences[np.isin(unit_hashes, hashes)].tolist():
            yield number, sentence


def _unit_source(entries: Entries, number: int, sentence: int) -> bytes:
    """The stored source of the unit that a sentence belongs to."""
    segment = entries.segments[number]
    (unit,) = segment.units_of(np.array([sentence])).tolist()
    source: bytes = segment.divided("text_offsets", TEXTS * unit).tobytes()
    return source


def _entries_of(entries: Entries, number: int, sentence: int) -> Array:
    """The ids of a sentence's entries, which are consecutive."""
    segment = entries.segments[number]
    owners = segment.arrays["sentences"]
    begin, end = np.searchsorted(owners, [sentence, sentence + 1])
    if (owners[begin:end] != sentence).any():
        raise segment.damaged("the entries do not stand in the order of their sentences")
    return np.arange(begin, end) + entries.first_entry(number)
