"""`FaissIndex`: approximate search with FAISS; the best candidates are measured again with the store's own keys.

Ids are entry ids: all entries are added in order from the first on. Removed entries are skipped in the results.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from knnmt import timing
from knnmt.datastore.arrays import Array
from knnmt.datastore.publication import publish_file
from knnmt.errors import DatastoreDamagedError, MissingDependencyError, SettingError
from knnmt.index.base import SearchResult, nearest_first, nothing
from knnmt.index.centres import nearest_centres, train_centres
from knnmt.index.entries import Entries
from knnmt.index.exact import rerank
from knnmt.index.faiss_checks import has_known_parts, require_sound
from knnmt.index.four_bit import FourBitSearch
from knnmt.index.kinds import Kind, SearchSettings
from knnmt.progress import Progress, ignore
from knnmt.threads import FAISS_SPINS, loading

_MIN_TRAINING_KEYS = 1 << 16
_PER_NEIGHBOUR = 2  # at least so many candidates per neighbour are measured again
_MIN_BLAS_QUERIES = 20  # FAISS 1.15 never uses BLAS for fewer than 128,000, which is four times slower


def load_faiss() -> Any:
    """The optional module, set to use as many threads as PyTorch."""
    faiss = _import_faiss()
    if faiss.omp_get_max_threads() != torch.get_num_threads():
        faiss.omp_set_num_threads(torch.get_num_threads())
    faiss.cvar.distance_compute_blas_threshold = _MIN_BLAS_QUERIES
    return faiss


def _import_faiss() -> Any:
    try:
        with loading("faiss", FAISS_SPINS):
            import faiss
    except ImportError as error:
        raise MissingDependencyError("faiss-cpu", "an index other than exact search", "faiss") from error
    return faiss


class FaissIndex:
    """A FAISS index of a store's entries, from the first one on.

    entries_together: entries that are read and added at once
    """

    entries_together = 1 << 16

    def __init__(self, index: Any, entries: Entries, settings: SearchSettings) -> None:
        faiss = load_faiss()
        self._index = index
        # Parameters given to a pre-transform do not reach the lists behind it, so the index is taken apart here.
        self._inner = faiss.downcast_index(index)
        refines = isinstance(self._inner, faiss.IndexRefine)  # this class refines with the store's own keys
        if refines:
            self._inner = faiss.downcast_index(self._inner.base_index)
        self._transforms = []
        if isinstance(self._inner, faiss.IndexPreTransform):
            chain = self._inner.chain
            self._transforms = [faiss.downcast_VectorTransform(chain.at(place)) for place in range(chain.size())]
            self._inner = faiss.downcast_index(self._inner.index)
        self._lists: Any = self._inner if isinstance(self._inner, faiss.IndexIVF) else None
        self._ours = self._lists is not None and not refines  # trained and filled here, faster than by FAISS
        self.entries = entries
        self.settings = settings
        self._device = torch.device("cpu")
        self._compiled: tuple[Entries, FourBitSearch | None] | None = None
        if index.is_trained:
            self._take_arrays()

    @classmethod
    def train_and_add(
        cls,
        entries: Entries,
        kind: Kind,
        seed: int = 0,
        progress: Progress = ignore,
        training: Progress = ignore,
        device: torch.device | str = "cpu",
    ) -> FaissIndex:
        """Make an index of all entries. `training` first receives the number of training steps done and their total;
        `progress` then receives the number of entries added.

        The same seed and number of threads give the same index.
        device: where the centres are trained and found, which is most of the work with thousands of lists; on a GPU
            the order of summation varies from run to run
        """
        faiss = load_faiss()
        index = faiss.index_factory(entries.dim, kind.factory(entries.entries, entries.dim))
        made = cls(index, entries, kind.settings)
        made._device = torch.device(device)
        if not index.is_trained:
            made._train(entries, kind, seed, training)
        progress(0, entries.entries)
        made.add(entries, progress)
        return made

    def _train(self, entries: Entries, kind: Kind, seed: int, progress: Progress) -> None:
        """Train the transforms, the centres and the codes on random keys."""
        faiss, lists = load_faiss(), self._lists
        steps = kind.training_rounds + 2
        progress(0, steps)
        keys = _sample(entries, max(_MIN_TRAINING_KEYS, kind.training_per_list * (lists.nlist if lists else 0)), seed)
        if not self._ours or not isinstance(faiss.downcast_index(lists.quantizer), faiss.IndexFlat):
            self._index.train(keys)
            self._take_arrays()
            progress(steps, steps)
            return
        for transform in self._transforms:
            transform.train(keys)
            keys = transform.apply(keys)
        progress(1, steps)
        on_device = torch.from_numpy(keys).to(self._device)
        centres = train_centres(
            on_device, lists.nlist, seed, kind.training_rounds, lambda done: progress(1 + done, steps)
        )
        lists.quantizer.add(centres.cpu().numpy())
        if hasattr(lists, "pq"):
            lists.pq.cp.seed = seed
            lists.pq.cp.min_points_per_centroid = 1  # no warning: a small store is coded finely
        lists.train(keys)
        progress(steps, steps)
        self._index.is_trained = True
        self._take_arrays()

    def _take_arrays(self) -> None:
        """Prepare the parts that are faster in PyTorch: the transforms of queries, and the search for near lists."""
        self._steps = [_in_torch(each) for each in self._transforms]
        if self._lists is None:
            return
        count, dim = self._lists.nlist, self._lists.d
        self._centres = torch.from_numpy(self._lists.quantizer.reconstruct_n(0, count)).view(count, dim)
        self._centres_sq = self._centres.square().sum(1)

    def add(self, entries: Entries, progress: Progress = ignore) -> None:
        """Add the new entries of a snapshot that begins with the entries already in the index."""
        load_faiss()
        # This comes first, so that an interrupted call leaves a consistent state. Growing lists move in memory.
        self.entries, self._compiled = entries, None
        for first, keys in entries.blocks(self.entries_together, self.covered):
            self._add(_numbers(keys, entries))
            progress(first + len(keys), entries.entries)

    def fill(self, entries: Entries, progress: Progress = ignore) -> None:
        """Replace the entries by these, whose keys are of the same kind. The training is kept."""
        self._index.reset()
        self.add(entries, progress)

    def _add(self, keys: Array) -> None:
        faiss = load_faiss()
        if not self._ours or not isinstance(self._lists, faiss.IndexIVFPQ):
            self._index.add(keys)
            return
        # With thousands of lists, FAISS's own assignment to lists takes as long as the rest of the build.
        reduced = self._reduced(torch.from_numpy(keys)).contiguous()
        centres, centres_sq = self._centres.to(self._device), self._centres_sq.to(self._device)
        split = torch.split(reduced.to(self._device), 8192)
        parts = [nearest_centres(some, centres, centres_sq, 1)[1] for some in split]
        numbers = np.ascontiguousarray(torch.cat(parts)[:, 0].cpu().numpy())
        self._lists.add_core(len(keys), faiss.swig_ptr(reduced.numpy()), None, faiss.swig_ptr(numbers))
        self._index.ntotal = self._lists.ntotal

    def decoded(self) -> tuple[Tensor, Tensor, Tensor]:
        """The centres of its lists, (lists, dim); each entry's list, (entries,), and its key decoded from its code.

        An index without lists is one list.
        """
        faiss = load_faiss()
        keys = torch.from_numpy(self._index.reconstruct_n(0, self.covered))
        own = torch.zeros(self.covered, dtype=torch.long)
        if self._lists is None:
            return torch.zeros((1, keys.shape[1])), own, keys
        for number in range(self._lists.nlist):
            size = self._lists.invlists.list_size(number)
            if size:
                ids = faiss.rev_swig_ptr(self._lists.invlists.get_ids(number), size)
                own[torch.from_numpy(ids.copy())] = number
        return self._centres, own, keys

    @property
    def covered(self) -> int:
        """The number of entries in the index."""
        return int(self._index.ntotal)

    def at(self, entries: Entries, settings: SearchSettings) -> FaissIndex:
        """The same index over a later snapshot that begins with the same entries, or with other search settings.

        Both may be searched at the same time: FAISS's own object does not change.
        """
        later = copy(self)
        later.entries, later.settings = entries, settings
        return later

    @property
    def _probes(self) -> int:
        return int(min(self.settings.probes, self._lists.nlist))

    def search(self, queries: Tensor, k: int) -> SearchResult:
        """As in `base.Index`, on the CPU.

        If a row has too few results, because near lists are small or entries were removed, a wider search follows.
        """
        load_faiss()
        with timing.stage("search"), torch.no_grad():
            queries = queries.to("cpu", torch.float32)
            if not self.covered:
                return nearest_first(*nothing(queries), k)
            wanted = max(_PER_NEIGHBOUR * k, self.settings.candidates) if self.settings.candidates else k
            if self.settings.candidates and (compiled := self._compiled_search()) is not None:
                return self._search_compiled(compiled, queries, k, wanted)
            ask = math.ceil(wanted / self.entries.live_share)
            distances_sq, ids, more = self._search(queries, k, ask, self.settings.reach)
            if bool((ids[:, -1] >= 0).all()):
                return distances_sq, ids
            if self.settings.reach and len(short := (ids[:, -1] < 0).nonzero()[:, 0]):
                distances_sq[short], ids[short], more[short] = self._search(queries[short], k, ask, reach=0)
            while len(short := (more & (ids[:, -1] < 0)).nonzero()[:, 0]):
                ask = 2 * ask
                distances_sq[short], ids[short], more[short] = self._search(queries[short], k, ask, reach=0)
            return distances_sq, ids

    def _compiled_search(self) -> FourBitSearch | None:
        """The compiled search of the current entries, if there is one."""
        entries, earlier = self._compiled or (None, None)
        if entries is self.entries:
            return earlier
        entries = self.entries
        found = FourBitSearch.of(load_faiss(), self._lists, entries, earlier)
        self._compiled = entries, found
        return found

    def _search_compiled(self, compiled: FourBitSearch, queries: Tensor, k: int, candidates: int) -> SearchResult:
        reduced = self._reduced(queries)
        products = torch.addmm(self._centres_sq, reduced, self._centres.T, alpha=-2)
        probes, reach = self._probes, self.settings.reach
        distances_sq, ids = compiled.search(queries, reduced, products, k, candidates, probes, reach)
        if reach and bool((ids[:, -1] < 0).any()):
            short = (ids[:, -1] < 0).nonzero()[:, 0]
            again = compiled.search(queries[short], reduced[short], products[short], k, candidates, probes, reach=0)
            distances_sq[short], ids[short] = again
        return distances_sq, ids

    def _search(self, queries: Tensor, k: int, ask: int, reach: float) -> tuple[Tensor, Tensor, Tensor]:
        """The k nearest live entries among the `ask` nearest, and which rows may find more in a wider search."""
        rough_sq, ids = self._propose(queries, min(ask, self.covered), reach)
        more = (ids[:, -1] >= 0) & (ask < self.covered)
        if self.entries.live is not None:
            ids = torch.where(self.entries.live[ids.clamp(min=0)], ids, -1)
        if self.settings.candidates:
            return *rerank(queries, ids, self.entries, k), more
        return *nearest_first(rough_sq, ids, k), more

    def _propose(self, queries: Tensor, count: int, reach: float) -> SearchResult:
        faiss, queries = load_faiss(), self._reduced(queries).contiguous()
        if self._lists is None:
            found = self._inner.search(queries.numpy(), count)
            return torch.from_numpy(found[0]).clamp_(min=0), torch.from_numpy(found[1])
        coarse_sq, lists = nearest_centres(queries, self._centres, self._centres_sq, self._probes)
        if reach:
            lists = lists.masked_fill_(coarse_sq > reach * coarse_sq[:, :1], -1)
        found_sq = torch.empty((len(queries), count))
        ids = torch.empty(found_sq.shape, dtype=torch.long)
        # FAISS's wrapper would take the number of probes from the object that other searches share.
        arrays = [each.contiguous().numpy() for each in (queries, lists, coarse_sq, found_sq, ids)]
        vectors, *others = map(faiss.swig_ptr, arrays)
        asked = faiss.SearchParametersIVF(nprobe=self._probes)
        self._lists.search_preassigned_c(len(queries), vectors, count, *others, False, asked)
        # Squared distances from products can be slightly below 0 because of rounding.
        return found_sq.clamp_(min=0), ids

    def _reduced(self, queries: Tensor) -> Tensor:
        """Queries or keys after the transforms."""
        for step in self._steps:
            queries = step(queries)
        return queries

    def write(self, path: Path) -> str:
        """Write the index as a file, whole or not at all, and return its SHA-256."""
        faiss = load_faiss()
        digest = hashlib.sha256()

        def write(file: IO[bytes]) -> None:
            def take(part: bytes) -> None:
                digest.update(part)
                file.write(part)

            faiss.write_index(self._index, faiss.PyCallbackIOWriter(take, 1 << 20))

        publish_file(path, write)
        return digest.hexdigest()

    @classmethod
    def read(
        cls,
        path: Path,
        entries: Entries,
        kind: Kind | None,
        settings: SearchSettings,
        covered: int,
        bytes_besides: int = 1 << 24,
    ) -> FaissIndex:
        """Read an index of the first `covered` entries; `knnmt.index.saved` checks that it is the right file.

        kind: None if this process does not know it
        bytes_besides: what FAISS may compute from the file that is larger than the file
        """
        faiss = load_faiss()
        advice = "`knnmt index` builds it again."
        try:
            # No part of the file can be larger than the file.
            faiss.set_deserialization_vector_byte_limit(path.stat().st_size + bytes_besides)
            index = faiss.read_index(str(path), faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)
            recipe = None if kind is None else kind.factory(covered, entries.dim)
            require_sound(faiss, index, entries.dim, covered, recipe)
            _make_table(faiss, index)
        except (RuntimeError, MemoryError, OSError) as error:
            reason = str(error).rpartition("Error: ")[2]
            raise DatastoreDamagedError(
                f"{path}: FAISS {faiss.__version__} cannot read it ({reason}). {advice}"
            ) from error
        except ValueError as error:
            raise DatastoreDamagedError(f"{path}: not an index of this store: {error}. {advice}") from error
        return cls(index, entries, settings)


def _make_table(faiss: Any, index: Any) -> None:
    """Compute the products of centres and codes, if needed: they are not in the file, and may be larger than it."""
    found = faiss.try_extract_index_ivf(index)
    lists: Any = None if found is None else faiss.downcast_index(found)
    if type(lists) is faiss.IndexIVFPQ:
        lists.use_precomputed_table = 0  # 0: FAISS decides whether the table is worth its memory
        lists.precompute_table()


def require_readable(kind: Kind, entries: Entries) -> None:
    """Refuse a custom kind whose index could not be read by a process that does not know the kind."""
    faiss = load_faiss()
    recipe = kind.factory(entries.entries, entries.dim)
    try:
        made = faiss.index_factory(entries.dim, recipe)
    except RuntimeError as error:
        reason = str(error).rpartition("Error: ")[2] or str(error)
        raise SettingError(f"index kind {kind.name!r}: FAISS cannot build {recipe!r} ({reason})") from error
    if not has_known_parts(faiss, made):
        raise SettingError(
            f"index kind {kind.name!r}: not every part of {recipe!r} can be checked when it is read from a file. "
            f"Use Flat, or lists (IVF) of Flat, SQ, PQ or RaBitQ, behind linear transforms."
        )


def _in_torch(transform: Any) -> Callable[[Tensor], Tensor]:
    """A trained transform of vectors, (rows, dim) float32."""
    faiss = load_faiss()
    if not isinstance(transform, faiss.LinearTransform):
        return lambda vectors: torch.from_numpy(transform.apply(_float32(vectors.numpy())))
    matrix = torch.from_numpy(faiss.vector_to_array(transform.A)).view(transform.d_out, transform.d_in).T
    bias = torch.from_numpy(faiss.vector_to_array(transform.b)) if transform.have_bias else torch.zeros(1)
    return lambda vectors: torch.addmm(bias, vectors, matrix)


def _sample(entries: Entries, count: int, seed: int) -> Array:
    """A random sample of keys to train on, spread evenly."""
    chosen = np.arange(entries.entries)
    if count < entries.entries:
        chosen = np.sort(np.random.default_rng(seed).choice(entries.entries, count, replace=False))
    return _numbers(entries.keys_of(chosen), entries)


def _numbers(keys: Array, entries: Entries) -> Array:
    """Keys in float32. They must be finite, because FAISS cannot use other numbers."""
    if not np.isfinite(keys).all():
        raise DatastoreDamagedError(f"{entries.path}: a key is not a finite number. Run `knnmt verify`")
    return _float32(keys)


def _float32(keys: Array) -> Array:
    return np.ascontiguousarray(keys, np.float32)
