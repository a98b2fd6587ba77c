"""Chooses an index, or the probes of a clustered search, by the measured effect on p_kNN in this store and by speed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from knnmt.calibration.estimates import DEFAULT_K, Calibration, calibrate, estimate_settings
from knnmt.calibration.fidelity import BATCHES, Fidelity, fidelity, milliseconds_per_batch
from knnmt.calibration.held_out import HeldOutQueries, forced_queries, sample
from knnmt.compression.pca import KeyProjection
from knnmt.config import check
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.overlap import overlap
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Engine, State
from knnmt.errors import InputError, MissingDependencyError, quoted
from knnmt.index.base import SearchResult
from knnmt.index.clusters import usual_settings
from knnmt.index.entries import Entries
from knnmt.index.exact import ExactIndex
from knnmt.index.faiss_index import FaissIndex
from knnmt.index.kinds import EXACT, KINDS, SearchSettings, kind_named
from knnmt.index.on_device import DeviceIndex
from knnmt.index.saved import MISSING, build_index, save_index
from knnmt.progress import Bars, ignore, no_bars

CANDIDATES = ("pq4", "rabitq")
_DECIDING = BATCHES[1]
_LIMIT = Path("/sys/fs/cgroup/memory.max")
_PARTS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0)  # times the kind's own settings
_PROBE_PARTS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # times the usual number of probes


@dataclass(frozen=True, slots=True)
class Target:
    """The limits of an index.

    recall, variation: as in `Fidelity`, at least and at most
    memory_bytes: of an index, at most; None for half of the machine's memory
    """

    recall: float = 0.95
    variation: float = 0.02
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        check(0 < self.recall <= 1, f"recall must be above 0 and at most 1, got {self.recall}")
        check(0 <= self.variation <= 1, f"variation must lie between 0 and 1, got {self.variation}")

    def reached_by(self, fidelity: Fidelity) -> bool:
        return fidelity.recall >= self.recall and fidelity.variation <= self.variation


@dataclass(frozen=True, slots=True)
class Candidate:
    """A measured index."""

    kind: str
    settings: SearchSettings
    fidelity: Fidelity
    milliseconds: dict[int, float]
    bytes_per_entry: int

    @property
    def name(self) -> str:
        """The kind with its settings, for people."""
        return self.kind if self.kind == EXACT else f"{self.kind}, {self.settings.in_words}"


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen index, the other measured ones, and the reason."""

    chosen: Candidate
    measured: tuple[Candidate, ...]
    reason: str


def prepare(
    store: Datastore,
    engine: Engine[State],
    target: Target | None = None,
    kinds: Sequence[str] | None = None,
    development: Sequence[SegmentPair] = (),
    first_good: bool = False,
    on_candidate: Callable[[Candidate], None] = ignore,
    bars: Bars = no_bars,
) -> Choice:
    """Estimate a store's settings and choose its index; both are saved with it.

    The queries are the states of development pairs, if some are given, without those whose source the store holds.
    Otherwise they are the store's own held-out entries. A reduced or pruned store keeps the settings of the store it
    was made from. `bars` show the progress of searching, training, adding and measuring.
    """
    if not store.manifest.live_entries:
        raise InputError(f"{store.path}: has no entries left to prepare a search of")
    if development and not (development := overlap(store, development).new):
        raise InputError(
            f"{store.path}: the store holds the source of every development pair; give text that it does not hold"
        )
    entries = Entries(store)
    projection = KeyProjection.of(store)
    held_out = (
        forced_queries(engine, entries, development, projection or (lambda states: states.float()))
        if development
        else sample(entries)
    )
    exact = ExactIndex(entries)
    with bars("searching exactly", "queries") as progress:
        true = held_out.search(exact, DEFAULT_K, progress)
    calibration = Calibration.of(store.path)
    if not store.manifest.transforms:
        calibration = calibrate(held_out, true, engine)
        if calibration is not None:
            calibration.save(store.path)
        estimate_settings(store, engine)
    temperature = calibration.temperature if calibration else max(float(true[0][:, 0].median()), 1e-6)
    chooser = Chooser(store, held_out, exact, true, temperature)
    return chooser.choose(target or Target(), kinds, first_good, on_candidate, bars)


class Chooser:
    """Builds candidates for a store, measures them, and saves the best beside it.

    exact, true: exact search, already loaded, and its results for the queries
    temperature: T of equation 2, for comparing distributions
    max_exact_entries: exact search of this many takes almost no time, so that nothing else is tried
    """

    def __init__(
        self,
        store: Datastore,
        queries: HeldOutQueries,
        exact: ExactIndex,
        true: SearchResult,
        temperature: float,
        max_exact_entries: int = 8_192,
    ) -> None:
        self._max_exact_entries = max_exact_entries
        self._store = store
        self._entries: Entries = queries.entries
        self._queries = queries
        self._exact_index = exact
        self._true = true
        self._temperature = temperature
        self._k = true[1].shape[1]
        self._built: dict[str, FaissIndex] = {}

    def choose(
        self,
        target: Target,
        kinds: Sequence[str] | None = None,
        first_good: bool = False,
        on_candidate: Callable[[Candidate], None] = ignore,
        bars: Bars = no_bars,
    ) -> Choice:
        """Measure exact search and the given kinds, and save the fastest that reaches the target.

        kinds: by default those of `CANDIDATES` that help a store of this size; a single kind is taken even if it misses
            the target, at its most faithful settings
        first_good: stop at the first kind that reaches the target and is faster than exact search
        on_candidate: is called with each measured candidate
        bars: show the progress of training, adding and measuring
        """
        to_try = self._worth_trying(kinds)
        only = kinds[0] if kinds is not None and len(kinds) == 1 else None
        limit_bytes = memory_of_machine() // 2 if target.memory_bytes is None else target.memory_bytes
        exact = self._exact()
        on_candidate(exact)
        measured, notes = [exact], []
        best = exact
        missing: MissingDependencyError | None = None
        for kind in to_try:
            needed = KINDS[kind].bytes_per_entry(self._entries.dim) * self._entries.entries
            if needed > limit_bytes:
                notes.append(f"{kind} would take {needed >> 20:,} MiB")
                continue
            try:
                tried = list(self._measure(kind, target, on_candidate, bars))
            except MissingDependencyError as error:
                if only is not None:
                    raise
                missing = error
                break
            measured += tried
            good = [each for each in tried if target.reached_by(each.fidelity)]
            best = min([best, *good], key=lambda each: each.milliseconds[_DECIDING])
            if kind not in (best.kind, only):
                self._built.pop(kind, None)
            if first_good and best is not exact:
                break
        asked_for = [each for each in measured if each.kind == only]
        chosen = min(
            asked_for, key=lambda each: (not target.reached_by(each.fidelity), each.fidelity.variation), default=best
        )
        self._save(chosen, missing)
        if missing is not None:
            reason = f"every key is compared, because {missing}; then `knnmt index {quoted(self._store.path)}`"
            return Choice(chosen, tuple(measured), reason)
        return Choice(chosen, tuple(measured), _reason(chosen, exact, target, only, notes))

    def _worth_trying(self, kinds: Sequence[str] | None) -> list[str]:
        if kinds is not None:
            return [kind_named(kind).name for kind in kinds if kind != EXACT]
        return list(CANDIDATES) if self._entries.entries > self._max_exact_entries else []

    def _exact(self) -> Candidate:
        milliseconds = milliseconds_per_batch(self._exact_index, self._queries.queries, self._k)
        return Candidate(EXACT, SearchSettings(1, 0), Fidelity(1.0, 0.0), milliseconds, 0)

    def _measure(
        self, kind: str, target: Target, on_candidate: Callable[[Candidate], None], bars: Bars
    ) -> Iterator[Candidate]:
        """The index at its own settings and around them, from the cheapest on until one reaches the target."""
        with bars(f"training {kind}", "steps") as training, bars(f"adding to {kind}", "entries") as adding:
            index = FaissIndex.train_and_add(self._entries, KINDS[kind], progress=adding, training=training)
        self._built[kind] = index
        for settings in _settings_to_try(KINDS[kind].settings):
            index.settings = settings
            with bars(f"measuring {kind}", "queries") as progress:
                found = self._queries.search(index, self._k, progress)
            measured = fidelity(self._queries.queries, found, self._true, self._entries, self._temperature)
            milliseconds = milliseconds_per_batch(index, self._queries.queries, self._k)
            size = KINDS[kind].bytes_per_entry(self._entries.dim)
            candidate = Candidate(kind, settings, measured, milliseconds, size)
            on_candidate(candidate)
            yield candidate
            if target.reached_by(measured):
                return

    def _save(self, chosen: Candidate, missing: MissingDependencyError | None) -> None:
        known = {**asdict(chosen.fidelity), "k": self._k}
        if chosen.kind == EXACT:
            # If a package is missing, exact search was nobody's choice. A user who installs the package can be told.
            fidelity_known = {} if missing is None else {**known, MISSING: missing.package}
            build_index(self._store, EXACT, chosen.settings, fidelity=fidelity_known)
        else:
            index = self._built[chosen.kind]
            index.settings = chosen.settings
            save_index(self._store, index, chosen.kind, {**known, "milliseconds": chosen.milliseconds})


def _settings_to_try(usual: SearchSettings) -> list[SearchSettings]:
    """Settings from cheap to expensive: more and more probes, then the same with more candidates."""
    counts = [usual.candidates, 2 * usual.candidates] if usual.candidates else [0]
    return [replace(usual.times(part), candidates=count) for count, part in product(counts, _PARTS)]


def _reason(chosen: Candidate, exact: Candidate, target: Target, only: str | None, notes: Sequence[str]) -> str:
    limits = f"recall {target.recall:g} and variation {target.variation:g}"
    times = exact.milliseconds[_DECIDING] / chosen.milliseconds[_DECIDING]
    speed = f"{times:.1f} times as fast as exact search for {_DECIDING} queries"
    if chosen.kind == only == EXACT:
        reason = "asked for"
    elif chosen.kind == only:
        reason = f"requested; it {'keeps' if target.reached_by(chosen.fidelity) else 'does not keep'} {limits}; {speed}"
    elif chosen.kind == EXACT:
        reason = f"nothing faster keeps {limits}"
    else:
        reason = f"the fastest that keeps {limits}; {speed}"
    return "; ".join([reason, *notes])


def choose_probes(index: DeviceIndex, store: Datastore) -> None:
    """Choose the probes of a clustered search before its use, with the target of `knnmt index` and the store's T."""
    known = Calibration.of(store.path)
    settle(index, index.entries, None if known is None else known.temperature)


def settle(
    index: DeviceIndex,
    entries: Entries,
    temperature: float | None = None,
    target: Target | None = None,
    sentences: int = 100,
    parts: Sequence[float] = _PROBE_PARTS,
) -> Fidelity | None:
    """Give a clustered index the fewest probes that reach the target on the store's own held-out entries.

    Returns their fidelity; None if no number reaches the target: then the index searches exactly from now on.
    temperature: T of equation 2; if it is not known, the median distance of nearest neighbours
    sentences: how many are held out
    parts: of the usual number of probes, to be tried in this order
    """
    target = target or Target()
    held_out = sample(entries, sentences)
    true = held_out.search(index.exactly(), DEFAULT_K)
    temperature = temperature or max(float(true[0][:, 0].median()), 1e-6)
    usual = usual_settings(index.last - index.first)
    for part in parts:
        index.clusters.settings = usual.times(part)
        found = held_out.search(index, DEFAULT_K)
        measured = fidelity(held_out.queries, found, true, entries, temperature)
        if target.reached_by(measured):
            index.clusters.settled = True
            return measured
    index.give_clusters_up()
    return None


def memory_of_machine(limit: Path = _LIMIT) -> int:
    """The memory of the machine or container in bytes; a usual value if the system does not tell.

    limit: the file with the limit of the container
    """
    try:
        pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        pages = 1 << 34
    try:
        return min(pages, int(limit.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or one without a limit
        return pages
