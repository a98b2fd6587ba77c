"""The open stores of a translator, what is known about them, and how calls retrieve from them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Unpack
from weakref import WeakSet

from knnmt.calibration.certainty import Certainty
from knnmt.calibration.estimates import Calibration, Estimates
from knnmt.calibration.index_choice import memory_of_machine
from knnmt.config import OpenStores, RetrievalConfig, check
from knnmt.corpus.glossary import Glossary
from knnmt.datastore.manifest import MANIFEST, Manifest, read_manifest
from knnmt.datastore.settings import settings_changed
from knnmt.datastore.store import Datastore
from knnmt.engine.base import Engine, State
from knnmt.engine.checkpoint import NamedByStore, find_checkpoint, fingerprint
from knnmt.engine.shipped import DEFAULT_MODEL, shipped_models
from knnmt.errors import DatastoreDamagedError, ModelNotFoundError, SlowSearchWarning
from knnmt.protection.marked import Marked
from knnmt.retrieval.gate import ThresholdGate, TrainedGate, gate_changed
from knnmt.retrieval.open_store import OpenStore
from knnmt.retrieval.plugins import plugin_combiner, plugin_gate
from knnmt.retrieval.profiles import Profiles
from knnmt.retrieval.retriever import Retrieval
from knnmt.retrieval.settings import RetrievalKeywords, RetrievalSettings
from knnmt.retrieval.step import Combiner, Gate
from knnmt.retrieval.trained.combiner import TrainedCombiner, combiner_file
from knnmt.retrieval.trained.networks import network_of
from knnmt.segments.matches import SourceMatcher
from knnmt.settings import NOT_GIVEN, NotGiven, settings_of
from knnmt.translator.open_store import open_store
from knnmt.translator.resolution import StoresOwn, named_by, resolve

Store = str | Path | Datastore
RequestedLanguages = tuple[
    str | None, str | None
]  # source and target as the user names them, None for the translator's
warned: set[object] = set()  # what `warn_if_slow` has warned about in this process


def languages_of(store: Store) -> tuple[str, str]:
    """The languages that a store was built for."""
    manifest = _manifest_of(store)
    return manifest.source_language, manifest.target_language


def model_of(store: Store | None) -> str:
    """The model that a store was built with, by name if it is here; it may be a copy of a shipped one."""
    if store is None:
        return DEFAULT_MODEL
    manifest = _manifest_of(store)
    name = NamedByStore(manifest.model_name)
    try:
        find_checkpoint(name)
    except ModelNotFoundError:
        for shipped in shipped_models():
            if fingerprint(find_checkpoint(shipped)) == manifest.fingerprint:
                return shipped
        raise
    return name


def _manifest_of(store: Store) -> Manifest:
    return store.manifest if isinstance(store, Datastore) else read_manifest(Path(store))


def _size(manifest: Manifest) -> int:
    return sum(stored.bytes for stored in manifest.files())


@dataclass(frozen=True, slots=True, init=False)
class Request:
    """A text to translate with its own memory, terms, settings or languages.

    text: may be `Marked`, with inline codes that are kept
    datastore: None for the model alone; by default that of the call or the translator
    settings: settings of retrieval, as a whole or as keywords; by default those of the call or the translator
    glossary: by default the call's
    source_lang, target_lang: for multilingual models, as for a `Translator`; by default the translator's. A store must
        have these languages
    context: where the text is used, as in `SegmentPair.context`; for exact matches
    text_kinds: what decides which placeholders count: the document format that the text comes from (json, po,
        subtitles), or its flags in a PO catalog
    """

    text: str | Marked
    datastore: Store | NotGiven | None
    settings: RetrievalSettings
    glossary: Glossary | None
    source_lang: str | None
    target_lang: str | None
    context: str
    text_kinds: tuple[str, ...]

    def __init__(
        self,
        text: str | Marked,
        datastore: Store | NotGiven | None = NOT_GIVEN,
        settings: RetrievalSettings | None = None,
        glossary: Glossary | None = None,
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
        context: str = "",
        text_kinds: Iterable[str] = ("text",),
        **keywords: Unpack[RetrievalKeywords],
    ) -> None:
        for side in (source_lang, target_lang):
            check(side is None or isinstance(side, str), f"expected a language tag such as de, got {side!r}")
        check(isinstance(context, str), f"a context must be a text, got {context!r}")
        object.__setattr__(self, "glossary", glossary)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "datastore", datastore)
        object.__setattr__(self, "settings", settings_of(RetrievalSettings, settings, **keywords))
        object.__setattr__(self, "source_lang", source_lang)
        object.__setattr__(self, "target_lang", target_lang)
        object.__setattr__(self, "context", context)
        object.__setattr__(self, "text_kinds", tuple(text_kinds))

    @property
    def languages(self) -> RequestedLanguages:
        """Source and target language, None if not given."""
        return self.source_lang, self.target_lang


@dataclass(slots=True, eq=False)
class Memory:
    """An open store with what is known about it.

    known_certainty: `certainty`, or the error in it
    settings_changed: when the settings were written, 0 if there are none
    gate: read when a call first needs it
    gate_changed: when it was written
    judged: whether a warning about slow search was given
    combiners: the trained ones that calls used, by method, with the times when they were written
    used: when it was used last, as a number of `Bounds`
    """

    opened: OpenStore
    estimates: Estimates
    profiles: Profiles
    known_certainty: Certainty | DatastoreDamagedError | None
    matcher: SourceMatcher
    settings_changed: int
    gate: TrainedGate | None = None
    gate_changed: int = 0
    judged: bool = False
    combiners: dict[str, tuple[int, TrainedCombiner]] = field(default_factory=dict)
    used: int = 0

    @property
    def calibration(self) -> Calibration:
        """The estimates for search of the whole store."""
        return self.estimates.whole

    @property
    def certainty(self) -> Certainty | None:
        """How certain translations are at the settings of the measurement; None if it was not measured."""
        if isinstance(self.known_certainty, DatastoreDamagedError):
            raise self.known_certainty
        return self.known_certainty

    @property
    def size(self) -> int:
        """Bytes of the store's files and index, which is about the memory that it takes when all of it is used."""
        index = self.opened.index.snapshot
        stored = None if index.approximate is None or index.saved is None else index.saved.stored
        return _size(self.opened.datastore.manifest) + (0 if stored is None else stored.bytes)

    def resolve(self, settings: RetrievalSettings | None = None) -> RetrievalConfig:
        """The complete settings of a call with these settings, or with none."""
        own = StoresOwn(self.opened.datastore, self.estimates, self.profiles)
        settings = settings or RetrievalSettings()
        if not self.opened.only_by_segment:
            return resolve(settings, own)
        config, place = resolve(settings.over(RetrievalSettings(search="segments")), own), self.opened.datastore.path
        check(
            config.segments is not None, f"{place}: a set of shards is searched by segment; whole and fast do not work"
        )
        return config


class Bounds:
    """How many stores may be open in several `Memories` together. Threads may share it."""

    def __init__(self, limits: OpenStores | None = None) -> None:
        limits = limits or OpenStores()
        self._most = limits.count
        self._most_bytes = memory_of_machine() // 2 if limits.size is None else limits.size
        self._changing = Lock()
        self._all = WeakSet[Memories]()
        self._uses = count(1)

    def add(self, memories: Memories) -> None:
        """Count the stores of these memories, too, as long as they exist."""
        with self._changing:
            self._all.add(memories)

    def use(self) -> int:
        """The number of the next use of a store; later uses have greater numbers."""
        return next(self._uses)

    def close_some(self, needed: set[Path]) -> None:
        """Close the stores that were unused for longest until the limits hold, or all open ones are in use.

        The caller holds no lock of any `Memories`: each of those that have such a store is locked for itself.

        Args:
            needed: the stores that are in use or will be opened
        """
        with self._changing:
            each_of_all = list(self._all)
        stores = sorted(
            ((memory.used, path, memory.size, each) for each in each_of_all for path, memory in each.open_stores()),
            key=itemgetter(0),
        )
        opened = {path for _, path, *_ in stores}
        coming = [_size(_manifest_of(path)) for path in needed - opened if (path / MANIFEST).exists()]
        number = len(stores) + len(coming)
        total = sum(size for _, _, size, _ in stores) + sum(coming)
        for _, path, size, memories in stores:
            if number <= self._most and total <= self._most_bytes:
                return
            if path not in needed:
                memories.close(path)
                number, total = number - 1, total - size


class Memories:
    """The open stores of one model, by path. Threads may share them.

    A store that is closed lives on with the batches that use it; its memory is freed after the last of them.

    Args:
        bounds: of these and other memories together; by default those of `OpenStores()` for these alone
        max_retrievals: how many retrievals are remembered, for each text may come with its own settings
    """

    def __init__(
        self, engine: Engine[State], exact: bool = False, bounds: Bounds | None = None, max_retrievals: int = 1024
    ) -> None:
        self._max_retrievals = max_retrievals
        self._engine: Engine[Any] = engine
        self._exact = exact
        self.bounds = bounds or Bounds()
        self.bounds.add(self)
        self._changing = RLock()
        self._open: dict[Path, Memory] = {}
        self._retrievals: dict[tuple[Path, RetrievalConfig, str | None, str | None], Retrieval] = {}

    def open(self, datastore: Store) -> Memory:
        """Open a store, or find it open; its settings are read again if they changed."""
        path = _place(datastore)
        with self._changing:
            self._close_changed(path)
            memory = self._open.get(path)
            if memory is None:
                store = Datastore.open(path, self._engine, guarded=True)
                with store.reading():
                    opened = open_store(store, self._engine, exact=self._exact)
                    changed = settings_changed(path)
                    estimates = Estimates(opened, self._engine)
                    known = Profiles.of(path), _certainty_of(path)
                    memory = Memory(opened, estimates, *known, SourceMatcher(store), changed)
                self._open[path] = memory
            memory.used = self.bounds.use()
            self._read_settings(memory)  # a call may name a profile that was made since
            return memory

    def _close_changed(self, path: Path) -> None:
        """Close a store if another program changed its files, so that it is opened anew."""
        if path in self._open and self._open[path].opened.datastore.changed:
            self.close(path)

    @contextmanager
    def using(self, datastore: Store) -> Iterator[Memory]:
        """The newest state of a store, for questions to it. The block must end before their answers are used.

        At its end, `DatastoreChangedError` is raised if another program changed the store's files.
        """
        self.refresh([datastore])
        memory = self.open(datastore)
        with memory.opened.datastore.reading():
            yield memory

    def holds(self, datastore: Store) -> bool:
        """Whether a store is open."""
        return _place(datastore) in self._open

    def open_stores(self) -> list[tuple[Path, Memory]]:
        """The open stores."""
        return list(self._open.items())

    def close(self, datastore: Store) -> None:
        """Close a store; its memory is freed."""
        path = _place(datastore)
        with self._changing:
            self._open.pop(path, None)
            self._retrievals = {key: value for key, value in self._retrievals.items() if key[0] != path}

    def close_all(self) -> None:
        """Close every store."""
        with self._changing:
            self._open, self._retrievals = {}, {}

    def refresh(self, datastores: Iterable[Store], also: Iterable[Store] = ()) -> None:
        """Move those of these stores that are open to their newest generation, index and settings.

        Then some of the others are closed, if too many would be open with those that are not open yet.

        Args:
            also: stores that other memories need at the same time, which are not closed either
        """
        places = {_place(each) for each in datastores}
        with self._changing:
            for path in self._open.keys() & places:
                self._close_changed(path)
                if path in self._open:
                    self._refresh(self._open[path])
        self.bounds.close_some(places.union(map(_place, also)))

    def _refresh(self, memory: Memory) -> None:
        grown = memory.opened.refresh()
        memory.judged &= not grown
        self._read_settings(memory)
        if grown:
            memory.estimates = memory.estimates.following(memory.opened)

    def _read_settings(self, memory: Memory) -> None:
        """Read the settings of a store again if they were written since."""
        path = memory.opened.datastore.path
        changed = settings_changed(path)
        if changed != memory.settings_changed:
            memory.estimates, memory.profiles = Estimates(memory.opened, self._engine), Profiles.of(path)
            memory.known_certainty = _certainty_of(path)
            memory.settings_changed = changed

    def retrieval(self, datastore: Store, settings: RetrievalSettings | None = None) -> Retrieval:
        """The retrieval of a call with these settings. Calls with equal settings get the same one."""
        with self._changing:
            memory = self.open(datastore)
            settings = settings or RetrievalSettings()
            config = memory.resolve(settings)
            if config.scope is None and not memory.judged:
                memory.judged = True
                warn_if_slow(memory.opened)
            opened, alpha = memory.opened, config.gate
            gate: Gate | None = None
            if alpha is not None:
                trained = self._gate(memory)
                config = trained.applied_to(config, named_by(settings))
                gate = ThresholdGate(trained, alpha)
            network = None
            if settings.combiner is not None and network_of(settings.combiner) is not None:
                network = self._combiner(memory, settings.combiner)
                config = network.applied_to(config, named_by(settings))
            names = (settings.gate if isinstance(settings.gate, str) else None, settings.combiner)
            key = (opened.datastore.path, config, *names)
            if key not in self._retrievals:
                while len(self._retrievals) >= self._max_retrievals:
                    del self._retrievals[next(iter(self._retrievals))]
                arguments = (opened, config, self._engine)
                gate = gate if names[0] is None else plugin_gate(names[0], *arguments)
                combiner: Combiner | None = network
                if network is None and names[1] is not None:
                    combiner = plugin_combiner(names[1], *arguments)
                self._retrievals[key] = Retrieval(opened, config, gate, combiner)
            return self._retrievals[key]

    def _gate(self, memory: Memory) -> TrainedGate:
        """The gate of a store, read again if it was trained since."""
        path = memory.opened.datastore.path
        changed = gate_changed(path)
        if memory.gate is None or changed != memory.gate_changed:
            self._take_gate(memory, TrainedGate.read(memory.opened.datastore, self._engine.device))
            memory.gate_changed = changed
        assert memory.gate is not None  # noqa: S101 - taken just now
        return memory.gate

    def _combiner(self, memory: Memory, method: str) -> TrainedCombiner:
        """The store's combiner of a method, read again if it was trained since."""
        store = memory.opened.datastore
        changed = combiner_file(store.path, method).changed()
        known, combiner = memory.combiners.get(method, (-1, None))
        if combiner is None or changed != known:
            combiner = TrainedCombiner.read(store, method, self._engine.device)
            memory.combiners[method] = changed, combiner
            self._retrievals = {key: each for key, each in self._retrievals.items() if key[3] != method}
        return combiner

    def _take_gate(self, memory: Memory, gate: TrainedGate) -> None:
        """Use this gate from the next batch on; running batches keep the earlier one."""
        memory.gate, path = gate, memory.opened.datastore.path
        self._retrievals = {key: each for key, each in self._retrievals.items() if key[0] != path or not each.gate}


def warn_if_slow(opened: OpenStore) -> None:
    """Warn about a search that could be much faster, and how: once per process for a store or a missing package."""
    place, index = opened.datastore.path, opened.index.snapshot
    about = "faiss" if index.lacks_faiss else place
    if about not in warned and (hint := index.hint):
        warned.add(about)
        warnings.warn(f"{place}: {hint}", SlowSearchWarning, stacklevel=3)


def _certainty_of(path: Path) -> Certainty | DatastoreDamagedError | None:
    """The certainty of a store. If it is damaged, the error is raised when it is used: tuning makes it again."""
    try:
        return Certainty.read(path)
    except DatastoreDamagedError as error:
        return error


def _place(datastore: Store) -> Path:
    return (datastore.path if isinstance(datastore, Datastore) else Path(datastore)).resolve()
