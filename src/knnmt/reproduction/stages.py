"""The stages of one domain, in an order in which each finds what it needs.

OUTPUT/<domain>/text.json                    what tunes and what is reported
OUTPUT/<domain>/store.json                   what the full store is
OUTPUT/<domain>/<block>/tuned-<steps>.json   settings of a store; gate.json: how a gate was trained
OUTPUT/<domain>/<row>.json                   hypotheses of a row, what they took, its settings and signature
OUTPUT/<domain>/speed-<batch>.json           speed of the rows of the figures, in turns
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from knnmt.config import RetrievalConfig
from knnmt.corpus.splitting import spread
from knnmt.datastore.overlap import overlap
from knnmt.datastore.store import Datastore
from knnmt.errors import SettingError
from knnmt.evaluation.adapting import Bars
from knnmt.evaluation.running import machine
from knnmt.reproduction.config import ReproductionConfig
from knnmt.reproduction.plan import Row, speed_rows
from knnmt.reproduction.records import config_of, read_record, settings_of, write_record
from knnmt.reproduction.speed import measure_speed
from knnmt.reproduction.stores import DomainStores
from knnmt.reproduction.texts import DomainText, digest, read_text, read_training
from knnmt.reproduction.translating import System
from knnmt.reproduction.tuning import trained_gate, tuned_settings
from knnmt.retrieval.gate import FILE as GATE_FILE
from knnmt.retrieval.open_store import OpenStore
from knnmt.translator.translator import Translator
from knnmt.version import __version__

_PAPERS_BATCH = 8
_BATCH = {"cpu": 32, "cuda": 200}  # of block B, whose rows do not depend on it


@dataclass(frozen=True, slots=True)
class Stage:
    """One step. done: whether it need not be done (again)"""

    name: str
    done: Callable[[], bool]
    run: Callable[[], None]


class DomainStages:
    """What is to be done for one domain.

    exact: blocks that search every key
    """

    def __init__(
        self,
        name: str,
        config: ReproductionConfig,
        translator: Translator,
        rows: Sequence[Row],
        exact: frozenset[str],
        bars: Bars,
    ) -> None:
        self._name, self._config, self._translator, self._rows, self._bars = name, config, translator, rows, bars
        self._output = config.output / name
        self._engine: Any = translator.engine
        self._languages = (
            config.source_language or self._engine.languages.source or "de",
            config.target_language or self._engine.languages.target or "en",
        )
        self._stores = DomainStores(config.store_directory / name, exact)
        self._searching = max(
            config.blocks
        )  # the block whose search serves pruning and Fast kNN-MT: ours, if it is there
        self._opened: tuple[Path, OpenStore] | None = None
        self._refuse_other_text()

    def _refuse_other_text(self) -> None:
        record = read_record(self._output / "text.json")
        if record is not None and record["digest"] != digest(self._config.data / self._name):
            raise SettingError(
                f"{self._output}: holds results of other text than {self._config.data / self._name} has now. Give back "
                "the text to go on, or another --output"
            )

    def _refuse_without_sources(self) -> None:
        place = self._stores.path(())
        if self._stores.exists(()) and not Datastore.open(place).manifest.for_fast:
            raise SettingError(
                f"{place}: built without what Fast kNN-MT needs, for no row asked for it then. Leave such rows out "
                f"(--without 'fast-*'), or remove {place.parent} to have it built again"
            )

    # The order --------------------------------------------------------------------------------------------------------

    def stages(self) -> Iterator[Stage]:
        """All of them; what a row was made from is asked for again only if the row is."""
        yield self._file("text.json", self._read_text)
        seen: set[str] = set()
        for stage in [*self._quality(), *self._speed()]:
            if stage.name not in seen:
                seen.add(stage.name)
                yield stage

    def _quality(self) -> Iterator[Stage]:
        for row in self._rows if self._config.quality else ():
            yield from self._with_needs(self._file(f"{row.name}.json", self._translate, row), [row])

    def _speed(self) -> Iterator[Stage]:
        for size in self._config.batch_sizes if self._config.speed else ():
            rows = speed_rows(self._rows)
            yield from self._with_needs(self._file(f"speed-{size}.json", self._measure, size), rows)

    def _with_needs(self, stage: Stage, rows: Sequence[Row]) -> Iterator[Stage]:
        if not stage.done():
            for row in rows:
                yield from self._needs(row)
        yield stage

    def _needs(self, row: Row) -> Iterator[Stage]:
        """What a row needs: its store with the block's index, settings, and a gate."""
        if row.has_store:
            block = row.block or self._searching
            yield from self._store(row.steps, block)
            if row.fast:
                self._refuse_without_sources()
            yield self._file(_tuned(row), self._tune, row)
            if row.alpha is not None:
                place, known = self._stores.path((), block) / GATE_FILE, self._output / block / "gate.json"
                run = self._file(f"{block}/gate.json", self._train_gate, row).run
                yield Stage(f"{self._name}/{block}/gate.json", lambda: place.exists() and known.exists(), run)

    def _store(self, steps: tuple[str, ...], block: str) -> Iterator[Stage]:
        """A store with the stores that it is made from, and the block's twin of it."""
        stores = self._stores
        if not steps:
            yield self._file("store.json", self._build, also=lambda: stores.exists(()))
        else:
            *_, last = steps
            before = steps[:-1]
            if last.startswith("pca"):
                yield from self._store(before, block)
                yield self._made("store", steps, "", lambda: stores.reduce(steps))
            else:
                yield from self._store(before, self._searching)
                yield from self._store(before, block)
                yield self._made("store", steps, "", lambda: self._prune(before))
        yield self._made("index", steps, block, lambda: self._index(steps, block))

    def _made(self, what: str, steps: tuple[str, ...], block: str, run: Callable[[], None]) -> Stage:
        name = f"{self._name}/{what} {self._stores.path(steps, block).name}"
        return Stage(name, lambda: self._stores.exists(steps, block), run)

    def _file(
        self, name: str, make: Callable[..., dict[str, Any]], *about: Any, also: Callable[[], bool] = lambda: True
    ) -> Stage:
        """A stage whose result is a record."""
        path = self._output / name
        return Stage(
            f"{self._name}/{name.removesuffix('.json')}",
            lambda: path.exists() and also(),
            lambda: write_record(path, make(*about)),
        )

    # The steps --------------------------------------------------------------------------------------------------------

    def _read_text(self) -> dict[str, Any]:
        place = self._config.data / self._name
        return {"digest": digest(place), **read_text(place, self._languages, self._config.sentences).as_record()}

    @property
    def _text(self) -> DomainText:
        record = read_record(self._output / "text.json")
        assert record is not None, "the first stage writes it"  # noqa: S101
        return DomainText.of_record(record)

    def _build(self) -> dict[str, Any]:
        pairs = read_training(self._config.data / self._name, self._languages, self._config.train_pairs)
        if not self._stores.exists(()):
            with self._bars(f"{self._name}: building", "pairs") as progress:
                for_fast = any(row.fast for row in self._rows)
                self._stores.build(pairs, self._engine, self._languages, for_fast, progress)
        store = Datastore.open(self._stores.path(()))
        return {
            "pairs": len(pairs),
            "entries": store.manifest.live_entries,
            "dim": store.manifest.dim,
            "reported sources that it holds": len(overlap(store, self._text.reported).known),
        }

    def _prune(self, before: tuple[str, ...]) -> None:
        """Every pruned store that a row needs, from one search."""
        ks = {
            int(row.steps[-1].removeprefix("prune"))
            for row in self._rows
            if row.steps[:-1] == before and row.steps and row.steps[-1].startswith("prune")
        }
        self._stores.prune(before, sorted(ks), self._open(before, self._searching).index.search)

    def _index(self, steps: tuple[str, ...], block: str) -> None:
        with self._bars(f"{self._name}: indexing", "entries") as progress:
            self._stores.index(steps, block, progress)

    def _open(self, steps: tuple[str, ...], block: str) -> OpenStore:
        """A block's store; the last one stays open, for rows that share one come one after the other."""
        path = self._stores.path(steps, block)
        if self._opened is None or self._opened[0] != path:
            self._opened = None  # its memory is needed
            self._opened = path, self._load(path, block)
        return self._opened[1]

    def _load(self, path: Path, block: str) -> OpenStore:
        return OpenStore(Datastore.open(path, self._engine), self._engine.device, self._stores.is_exact(block))

    def _tune(self, row: Row) -> dict[str, Any]:
        opened = self._open(row.steps, row.block or self._searching)
        return tuned_settings(self._engine, opened, self._text.tuning, row.block, row.fast)

    def _settings(self, row: Row) -> RetrievalConfig | None:
        record = read_record(self._output / _tuned(row)) if row.has_store else None
        return None if record is None else config_of(record["settings"])

    def _train_gate(self, row: Row) -> dict[str, Any]:
        config = self._settings(row)
        assert config is not None, "settings come before"  # noqa: S101
        return trained_gate(self._engine, self._open((), row.block), self._text.tuning, config)

    def _system(self, row: Row, opened: OpenStore | None) -> System:
        rate = None
        if row.chance:
            record = read_record(self._output / f"{row.partner}.json")
            assert record is not None, "the gate's row comes before"  # noqa: S101
            rate = record["searches"]["searches"] / record["searches"]["rows"]
        return System.of(row, opened, self._settings(row), rate)

    def _translate(self, row: Row) -> dict[str, Any]:
        opened = self._open(row.steps, row.block or self._searching) if row.has_store else None
        system = self._system(row, opened)
        size = _PAPERS_BATCH if row.block == "A" else _BATCH.get(self._engine.device.type, 32)
        with self._bars(f"{self._name}: {row.name}", "sentences") as progress:
            found, figures = system.translate(self._translator, self._text.sources, size, progress)
        return {
            "row": row.name,
            "steps": row.steps,
            "entries": opened and opened.store.manifest.live_entries,
            "dim": opened and opened.store.manifest.dim,
            "settings": system.config and settings_of(system.config),
            "chance": system.rate,
            **figures,
            **self._made_on(),
            "hypotheses": [each.text for each in found],
        }

    def _measure(self, batch_size: int) -> dict[str, Any]:
        """Stores that several rows have are opened once."""
        self._opened = None
        opened: dict[Path, OpenStore] = {}
        systems = []
        for row in speed_rows(self._rows):
            block = row.block or self._searching
            path = self._stores.path(row.steps, block)
            if row.has_store and path not in opened:
                opened[path] = self._load(path, block)
            systems.append(self._system(row, opened.get(path) if row.has_store else None))
        sources = spread(self._text.reported, self._config.speed_sentences)
        with self._bars(f"{self._name}: speed, batches of {batch_size}", "turns") as progress:
            found = measure_speed(
                self._translator, systems, [pair.source for pair in sources], batch_size, self._config.rounds, progress
            )
        return {**found, **self._made_on()}

    def _made_on(self) -> dict[str, Any]:
        return {
            "machine": machine(self._translator),
            "versions": {"knnmt": __version__, "torch": torch.__version__, "python": platform.python_version()},
        }


def _tuned(row: Row) -> str:
    """The file of a row's settings, shared by rows of the same store."""
    if row.fast:
        return f"tuned-{row.name}.json"
    return f"{row.block}/tuned-{'-'.join(row.steps) or 'full'}.json"
