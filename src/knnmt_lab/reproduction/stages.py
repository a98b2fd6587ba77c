"""The stages of one domain, in an order in which each finds what it needs. A stage is done when its file exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from knnmt import Datastore, TrainedCombiner, TrainedGate
from knnmt.errors import SettingError
from knnmt_lab.reproduction import choosing, validating
from knnmt_lab.reproduction.config import ReproductionConfig
from knnmt_lab.reproduction.harm import TEXT, harm_directory
from knnmt_lab.reproduction.later import combiner_directory
from knnmt_lab.reproduction.plan import COMBINERS, HARM, Row, speed_rows
from knnmt_lab.reproduction.records import read_record, write_record
from knnmt_lab.reproduction.steps import DomainSteps, probes_file, tuned_file


@dataclass(frozen=True, slots=True)
class Stage:
    """One step. done: whether it need not be done (again)"""

    name: str
    done: Callable[[], bool]
    run: Callable[[], None]


class DomainStages:
    """The stages of one domain."""

    def __init__(self, config: ReproductionConfig, steps: DomainSteps) -> None:
        self._config, self._steps = config, steps
        self._refuse_other_text()
        self._refuse_other_stores()

    def _refuse_other_text(self) -> None:
        output, data = self._steps.output, self._config.data / self._steps.name
        record = read_record(output / "text.json")
        if record is not None and record["digest"] != self._steps.digest:
            raise SettingError(
                f"{output}: has results of another text than {data} has now. Restore that text to resume, or give "
                f"another --output"
            )

    def _refuse_other_stores(self) -> None:
        path = self._steps.stores.record
        record, asked = read_record(path), self._steps.store_record
        if record is not None and record != asked:
            different = ", ".join(name for name in asked if record.get(name) != asked[name])
            raise SettingError(
                f"{path.parent}: has stores that were made differently (other {different}). Give another --stores, "
                f"or remove it"
            )

    def stages(self) -> Iterator[Stage]:
        """All stages. What a row is made from is only needed again if the row is."""
        yield self._file("text.json", self._steps.read_text)
        seen: set[str] = set()
        for stage in [*self._quality(), *self._speed()]:
            if stage.name not in seen:
                seen.add(stage.name)
                yield stage

    def _quality(self) -> Iterator[Stage]:
        for row in self._steps.rows if self._config.quality else ():
            yield from self._with_needs(self._file(f"{row.name}.json", self._steps.translate, row), [row])
            if row.name.partition("@")[0] in HARM and self._config.other_sentences:
                place = harm_directory(self._config.other_sentences)
                yield self._file(f"{place}/{TEXT}", self._steps.read_others)
                others = self._file(f"{place}/{row.name}.json", self._steps.translate_others, row)
                yield from self._with_needs(others, [row])
        for row in validating.rows_to_validate(self._steps.rows) if self._config.quality else ():
            name = f"{validating.DIRECTORY}/{row.name}.json"
            yield from self._with_needs(self._file(name, self._steps.translate_validating, row), [row])
        rows = choosing.rows_to_choose_from(self._steps.rows) if self._config.quality else []
        if rows:
            path = self._steps.output / choosing.FILE
            wanted = {row.name for row in rows}
            stage = self._file(
                choosing.FILE,
                self._steps.translate_other_half,
                also=lambda: wanted <= set((read_record(path) or {})["other half"]),
            )
            yield from self._with_needs(stage, rows)

    def _speed(self) -> Iterator[Stage]:
        rows = speed_rows(self._steps.rows)
        for size in self._config.batch_sizes if self._config.speed and rows else ():
            yield from self._with_needs(self._speed_stage(size), rows)

    def _speed_stage(self, size: int) -> Stage:
        return self._file(f"speed-{size}.json", self._steps.measure, size, also=lambda: self._steps.is_measured(size))

    def _with_needs(self, stage: Stage, rows: Sequence[Row]) -> Iterator[Stage]:
        if not stage.done():
            for row in rows:
                yield from self._needs(row)
        yield stage

    def _needs(self, row: Row) -> Iterator[Stage]:
        """What a row needs: its store with the block's index, its settings and its gate."""
        if row.has_store:
            block = row.block or self._steps.searching
            yield from self._store(row.steps, block)
            if row.needs_alignment:
                self._refuse_without_sources()
            yield self._file(tuned_file(row), self._steps.tune, row)
            for other in filter(None, (row.k_of, row.fidelity_of)):
                yield from self._needs(next(each for each in self._steps.rows if each.name == other))
            if row.fidelity_of is not None:
                yield self._file(probes_file(row), self._steps.choose_probes, row)
            if row.alpha is not None and not row.published_gate:
                gate = TrainedGate.path(self._steps.stores.path((), block))
                yield self._file(f"{block}/gate.json", self._steps.train_gate, row, also=gate.exists)
            if row.share is not None and not row.published_gate:
                yield self._file(choosing.GATE_FILE, self._steps.choose_gate, row)
            if row.combiner is not None:
                place = combiner_directory(self._steps.stores.path((), block), row.combiner, row.seed)
                combiner = TrainedCombiner.path(place, COMBINERS[row.combiner][0])
                name = f"{block}/trained-{row.combiner}.json"
                yield self._file(name, self._steps.train_combiner, row, also=combiner.exists)

    def _store(self, steps: tuple[str, ...], block: str) -> Iterator[Stage]:
        """A store, the stores that it is made from, and the block's copy of it."""
        stores = self._steps.stores
        if not steps:
            yield self._file("store.json", self._steps.build, also=lambda: stores.exists(()))
        else:
            before, last = steps[:-1], steps[-1]
            if last.startswith("pca"):
                yield from self._store(before, block)
                yield self._made("store", steps, "", lambda: stores.reduce(steps))
            else:
                yield from self._store(before, self._steps.searching)
                yield from self._store(before, block)
                yield self._made("store", steps, "", lambda: self._steps.prune(before))
        yield self._made("index", steps, block, lambda: self._steps.index(steps, block))

    def _made(self, what: str, steps: tuple[str, ...], block: str, run: Callable[[], None]) -> Stage:
        name = f"{self._steps.name}/{what} {self._steps.stores.path(steps, block).name}"
        return Stage(name, lambda: self._steps.stores.exists(steps, block), run)

    def _file(
        self, name: str, make: Callable[..., dict[str, Any]], *about: Any, also: Callable[[], bool] = lambda: True
    ) -> Stage:
        """A stage whose result is a record."""
        path = self._steps.output / name
        return Stage(
            f"{self._steps.name}/{name.removesuffix('.json')}",
            lambda: path.exists() and also(),
            lambda: write_record(path, make(*about)),
        )

    def _refuse_without_sources(self) -> None:
        place = self._steps.stores.path(())
        if self._steps.stores.exists(()) and not Datastore.open(place).manifest.for_fast:
            raise SettingError(
                f"{place}: was built without the data that Fast kNN-MT needs, because no row needed it then. Leave "
                f"such rows out (--without 'fast-*,segments-aligned'), or remove {place.parent} to build it again"
            )
