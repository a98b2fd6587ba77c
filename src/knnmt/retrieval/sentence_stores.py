"""Small stores: each sentence of a batch is searched exactly among its own entries.

Fast kNN-MT (Meng et al. 2021) chooses the entries aligned with the nearest occurrences of source tokens, and searches
by cosine distance. Retrieval by segment chooses the entries of whole segments (`knnmt.segments.covering`), and searches
by Euclidean distance. The keys of a batch are held in memory up to a limit. Keys beyond it are read from the memory
maps again at every step, piece by piece, so that any batch fits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from knnmt import timing
from knnmt.config import FastConfig, RetrievalConfig
from knnmt.datastore.arrays import Array
from knnmt.index.base import SearchResult, nothing, padded_to
from knnmt.index.entries import Entries
from knnmt.index.exact import smallest

UNTUNED_FAST = RetrievalConfig(k=16, interpolation_weight=0.5, temperature=0.05, fast=FastConfig())
# Keys compared together: small pieces waste less on stores of different sizes, large pieces need fewer GPU calls.
_PIECE_BYTES = {"cpu": 1 << 24, "cuda": 1 << 29}
_MAX_HELD_BYTES = 1 << 30
_EXTRA_CANDIDATES = 8  # candidates beyond k whose true distances are computed
_MEASURED = 1 << 24  # numbers in the keys whose true distances are computed at a time
_PRODUCT_ERROR = 1e-5  # the largest error of a distance from products, for squared lengths of 1


class _Piece:
    """Some sentences of a batch, padded to the largest of their stores.

    ids: (sentences, entries), -1 for padding; keys: (sentences, entries, dim), None if they are not held
    asked: (sentences,), the present place of each sentence in the batch, 0 if it has left
    rows, places: the places, here and in the batch, of the sentences that have not left
    """

    def __init__(self, places: Sequence[int], ids: Tensor, keys: Tensor | None) -> None:
        self.ids, self.keys = ids, keys
        self._put(list(places))

    def _put(self, places: list[int]) -> None:
        self._places = places
        now = torch.tensor(places, dtype=torch.long, device=self.ids.device)
        self.asked = now.clamp(min=0)
        self.rows = (now >= 0).nonzero()[:, 0]
        self.places = now[self.rows]

    def keep(self, new_place: dict[int, int]) -> bool:
        """Sentences move or leave; False if none remains. Memory shrinks only by halves, because that needs a copy."""
        places = [new_place.get(place, -1) for place in self._places]
        left = [row for row, place in enumerate(places) if place >= 0]
        if 2 * len(left) <= len(places):
            places = [places[row] for row in left]
            self.ids = self.ids[left]
            self.keys = None if self.keys is None else self.keys[left]
        self._put(places)
        return bool(left)


class SentenceStores:
    """The stores of the sentences of a batch, each searched by the rows of its own sentence.

    cosine: compare unit vectors, as Fast kNN-MT does; their squared distance is 2 (1 - cosine)
    bytes: the most memory that their keys take at a time
    """

    def __init__(
        self,
        entries: Entries,
        chosen: Sequence[Array],
        device: torch.device | str = "cpu",
        cosine: bool = False,
        held_bytes: int | None = None,
        piece_bytes: int | None = None,
    ) -> None:
        """chosen: the entry ids of each sentence; held_bytes, piece_bytes: memory limits, by default the device's"""
        self._entries = entries
        self._device = torch.device(device)
        self._cosine = cosine
        self._row_bytes = 4 * entries.dim
        self._piece_bytes = piece_bytes or _PIECE_BYTES[self._device.type]
        left = _free_bytes(self._device) if held_bytes is None else held_bytes
        self._pieces = []
        held = passing = 0
        for first, last in _cuts([len(ids) for ids in chosen], self._piece_bytes // self._row_bytes):
            ids = _padded(chosen[first:last])
            size = ids.numel() * self._row_bytes
            keys = None
            if size <= left - held:
                held += size
                keys = self._keys_of(ids)
            else:
                passing = max(passing, min(size, self._piece_bytes))
            self._pieces.append(_Piece(range(first, last), ids.to(self._device), keys))
        self.bytes = held + passing
        self._sentences = len(chosen)

    def search(self, queries: Tensor, k: int) -> SearchResult:
        """The k nearest entries of each row in its own sentence's store, as in `knnmt.index.base.Index`.

        queries (sentences * width, dim)
        """
        asked = functional.normalize(queries.float(), dim=-1) if self._cosine else queries.float()
        asked = asked.view(self._sentences, -1, queries.shape[1])
        shape = (*asked.shape[:2], k)
        distances_sq = torch.full(shape, float("inf"), device=queries.device)
        ids = torch.full(shape, -1, dtype=torch.long, device=queries.device)
        with timing.stage("search"):
            for piece in self._pieces:
                best, found = self._search(piece, asked[piece.asked], k)
                distances_sq[piece.places], ids[piece.places] = best[piece.rows], found[piece.rows]
        return distances_sq.view(-1, k), ids.view(-1, k)

    def _search(self, piece: _Piece, queries: Tensor, k: int) -> SearchResult:
        """(sentences, width, k) each, for queries (sentences, width, dim)."""
        sentences, width, _ = queries.shape
        columns = piece.ids.shape[1]
        step = columns if piece.keys is not None else max(1, self._piece_bytes // (self._row_bytes * sentences))
        best = nothing(queries.flatten(0, 1))
        for begin in range(0, columns, max(1, step)):
            ids = piece.ids[:, begin : begin + step]
            keys = self._keys_of(ids.cpu()) if piece.keys is None else piece.keys
            found = _nearest(queries, keys, ids < 0, k)
            near_ids = ids.repeat_interleave(width, 0).gather(1, found[1])
            # Earlier results come first, so that among equal distances the entry that comes first wins.
            together = torch.cat([best[0], found[0]], 1).sort(dim=1, stable=True)
            all_ids = torch.cat([best[1], near_ids], 1).gather(1, together.indices)
            best = together.values[:, :k], all_ids[:, :k]
        distances_sq, ids = padded_to(best[0], best[1].masked_fill(best[0].isinf(), -1), k)
        return distances_sq.view(sentences, width, k), ids.view(sentences, width, k)

    def _keys_of(self, ids: Tensor) -> Tensor:
        """Keys (sentences, entries, dim) of ids on the host; keys of padding have no meaning."""
        stored = torch.empty((ids.numel(), self._entries.dim), dtype=self._entries.key_dtype)
        self._entries.gather(ids.clamp(min=0).flatten(), stored)
        keys = stored.to(self._device).float()
        self._entries.require_sound(keys.sum(1))
        if self._cosine:
            functional.normalize(keys, dim=-1, out=keys)
        return keys.view(*ids.shape, self._entries.dim)

    def keep(self, sentences: Sequence[int]) -> None:
        """Sentence i takes over the store of sentence sentences[i]; sentences not named have left the batch."""
        new_place = {old: new for new, old in enumerate(sentences)}
        self._pieces = [piece for piece in self._pieces if piece.keep(new_place)]
        self._sentences = len(sentences)


def _nearest(queries: Tensor, keys: Tensor, padding: Tensor, k: int) -> SearchResult:
    """The k nearest keys of each row, nearest first; among equal distances the key that comes first.

    Products find candidates, and true differences decide, so that equal keys are equally far. queries (sentences,
    width, dim), keys (sentences, entries, dim), padding (sentences, entries); returns squared distances, infinite if
    there is no key, and columns, (sentences * width, at most k)
    """
    lengths_sq = queries.square().sum(2)[:, :, None] + keys.square().sum(2)[:, None]
    rough = torch.baddbmm(lengths_sq, queries, keys.mT, alpha=-2).masked_fill_(padding[:, None], float("inf"))
    errors = _PRODUCT_ERROR * lengths_sq.masked_fill_(padding[:, None], 0.0).amax(2).flatten()
    rough, asked = rough.flatten(0, 1), queries.flatten(0, 1)
    of_row = torch.arange(len(queries), device=keys.device).repeat_interleave(queries.shape[1])
    count = min(k + _EXTRA_CANDIDATES, rough.shape[1])
    while True:
        columns = smallest(rough, count)[1].sort(1).values
        together = max(1, _MEASURED // (count * keys.shape[2]))
        parts = zip(*(torch.split(each, together) for each in (asked, of_row, columns)), strict=True)
        distances_sq = torch.cat([_distances_sq(row, keys, of[:, None], some) for row, of, some in parts])
        missing = padding[of_row[:, None], columns] | ~(distances_sq < float("inf"))
        in_order = distances_sq.masked_fill_(missing, float("inf")).sort(dim=1, stable=True)
        nearest_sq = in_order.values[:, :k]
        possible = rough <= (nearest_sq[:, -1].nan_to_num(posinf=0.0) + errors)[:, None]
        most = int(possible.sum(1).max()) if count < rough.shape[1] else 0
        if most <= count:  # otherwise there are many at the same distance
            return nearest_sq, columns.gather(1, in_order.indices[:, :k])
        count = most


def _distances_sq(queries: Tensor, keys: Tensor, sentences: Tensor, columns: Tensor) -> Tensor:
    return (keys[sentences, columns] - queries[:, None]).square_().sum(2)


def _free_bytes(device: torch.device) -> int:
    """Bytes that a batch's keys may take."""
    return _MAX_HELD_BYTES if device.type == "cpu" else int(torch.cuda.mem_get_info(device)[0]) // 2


def _cuts(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Ranges (first, last) of sentences whose stores, padded to the largest, hold at most this many entries."""
    cuts: list[tuple[int, int]] = []
    first = 0
    for last in range(1, len(sizes) + 1):
        if last == len(sizes) or max(sizes[first : last + 1]) * (last + 1 - first) > most:
            cuts.append((first, last))
            first = last
    return cuts


def _padded(chosen: Sequence[Array]) -> Tensor:
    """(sentences, entries of the largest store), -1 for padding."""
    rows = [torch.from_numpy(ids) for ids in chosen]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
