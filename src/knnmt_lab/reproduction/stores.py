"""The stores of a domain: the full one, reduced and pruned ones, and for each block a copy of each with its index.

STORES/<domain>/made-from.json     text, pairs and model of all of them
STORES/<domain>/<steps>            made once, without an index
STORES/<domain>/<block>-<steps>    the same segments (hard links), with the index and the gate of a block
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from knnmt import (
    BuildConfig,
    Datastore,
    Engine,
    Kind,
    SearchSettings,
    SegmentPair,
    build_index,
    lists_for,
    prune,
    reduce,
)
from knnmt_lab.prunings import Search, prune_known, prune_surest
from knnmt_lab.reproduction.plan import PLAC_K

_CODES = 20  # so that each covers 16 of 320 dimensions, as 64 do of the paper's 1,024
_LISTS, _MIN_KEYS_PER_LIST = 4096, 39  # as in the paper for stores of any size, if each list can be trained


def _lists(entries: int) -> int:
    return _LISTS if entries >= _MIN_KEYS_PER_LIST * _LISTS else lists_for(entries)


def _codes(dim: int) -> int:
    """The largest number of codes, at most `_CODES`, that divides a key into equal parts."""
    return max(codes for codes in range(1, _CODES + 1) if dim % codes == 0)


_IVFPQ20 = Kind(
    "ivfpq20",
    "the paper's, with 20 codes, trained as FAISS does by default",
    lambda entries, dim: f"IVF{_lists(entries)},PQ{_codes(dim)}x8np",
    SearchSettings(probes=32, candidates=0),
    lambda dim: _codes(dim) + 8,
    training_per_list=256,
    training_rounds=10,
)
KINDS: dict[str, str | Kind] = {"A": "ivfpq", "A20": _IVFPQ20, "B": "pq4"}
PRUNED = ("prune", "plac", "surest")  # prefixes of the steps that leave entries out
_SCRATCH = ".making-twin"
_MANIFEST = "manifest.json"  # the file of a store that is written last
_LINKED = (_MANIFEST, "settings.json", "segments")


class DomainStores:
    """The places of a domain's stores, and how each is made. A store that exists is complete.

    exact: the blocks that search every key and have no index
    device: where the centres of an index are trained
    """

    def __init__(self, directory: Path, exact: frozenset[str], device: torch.device | str = "cpu") -> None:
        self._directory = directory
        self._exact = exact
        self._device = device

    @property
    def record(self) -> Path:
        """The file that says what the stores were made from."""
        return self._directory / "made-from.json"

    def path(self, steps: Sequence[str], block: str = "") -> Path:
        """The path of the store after some steps, or of a block's copy of it."""
        return self._directory / "-".join([*([block] if block else []), *(steps or ["full"])])

    def exists(self, steps: Sequence[str], block: str = "") -> bool:
        return (self.path(steps, block) / _MANIFEST).exists()

    def is_exact(self, block: str) -> bool:
        return block in self._exact

    def build(
        self,
        pairs: Sequence[SegmentPair],
        engine: Engine[Any],
        languages: tuple[str, str],
        for_fast: bool,
        progress: Callable[[int, int], None],
    ) -> None:
        """Build the full store. If interrupted, it resumes from the finished slices."""
        config = BuildConfig(*languages, for_fast=for_fast, accelerators="keep")  # the text as the paper used it
        Datastore.build(self.path(()), pairs, engine, config, lambda done, _entries: progress(done, len(pairs)))

    def reduce(self, steps: Sequence[str]) -> None:
        """Make the store whose last step is a PCA."""
        reduce(Datastore.open(self.path(steps[:-1])), self.path(steps), int(steps[-1].removeprefix("pca")))

    def prune(self, before: Sequence[str], wanted: Sequence[str], search: Search) -> None:
        """Make pruned stores for several steps from one search of all entries:

        k neighbours are the first of more neighbours.
        """
        store = Datastore.open(self.path(before))
        remembered = RememberedSearch(search, max(map(_k_of, wanted)) + 1)
        for step in wanted:
            steps = (*before, step)
            if not self.exists(steps):
                kind, number = _kind_of(step)
                _PRUNING[kind](store, self.path(steps), remembered.again(), number)

    def index(self, steps: Sequence[str], block: str, progress: Callable[[int, int], None]) -> None:
        """Make a block's copy of a store: its segments are links, and its index is its own.

        Pruning only leaves keys out, so a pruned store gets the earlier index with fewer entries: training takes most
        of the time.
        """
        place = self.path(steps, block)
        scratch = self._directory / _SCRATCH
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        for name in _LINKED:
            _link(self.path(steps) / name, scratch / name)
        if not self.is_exact(block):
            self._index(scratch, steps, block, progress)  # its maps are gone when the directory is renamed
        scratch.rename(place)

    def _index(self, scratch: Path, steps: Sequence[str], block: str, progress: Callable[[int, int], None]) -> None:
        pruned = bool(steps) and steps[-1].startswith(PRUNED)
        trained = Datastore.open(self.path(steps[:-1], block)) if pruned else None
        build_index(Datastore.open(scratch), KINDS[block], progress=progress, device=self._device, trained=trained)


_PRUNING: dict[str, Callable[[Datastore, Path, Search, int], object]] = {
    "prune": prune,
    "plac": prune_known,
    "surest": lambda store, output, search, kept: prune_surest(store, output, search, PLAC_K, kept / 100),
}


def _k_of(step: str) -> int:
    """How many neighbours a step of pruning looks at."""
    kind, number = _kind_of(step)
    return PLAC_K if kind == "surest" else number


def _kind_of(step: str) -> tuple[str, int]:
    """What a step of pruning does, and with which k, or for "surest" how many percent of the entries it keeps."""
    kind = step.rstrip("0123456789")
    return kind, int(step.removeprefix(kind))


class RememberedSearch:
    """A search whose results are kept, so that pruning with several rules, which read the same keys, searches once.

    most: the neighbours of a query that are searched; later calls may ask for fewer
    """

    def __init__(self, search: Search, most: int) -> None:
        self._search, self._most, self._place = search, most, 0
        self._found: list[tuple[Tensor, Tensor]] = []

    def again(self) -> RememberedSearch:
        """Begin with the first query again."""
        self._place = 0
        return self

    def __call__(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        if self._place == len(self._found):
            self._found.append(self._search(queries, self._most))
        distances_sq, ids = self._found[self._place]
        self._place += 1
        return distances_sq[:, :k], ids[:, :k]


def _link(one: Path, other: Path) -> None:
    """Link a file or a directory of files to another place; copy it if the file system has no links."""
    if one.is_dir():
        other.mkdir()
        for each in one.iterdir():
            _link(each, other / each.name)
    elif one.exists():
        try:
            os.link(one, other)
        except OSError:
            shutil.copyfile(one, other)
