"""The work of the stages of one domain: each step uses the results of earlier ones, and returns its record.

OUTPUT/<domain>/text.json                    the text for tuning and the reported text
OUTPUT/<domain>/store.json                   a description of the full store
OUTPUT/<domain>/<block>/tuned-<steps>.json   settings of a store; gate.json: how a gate was trained
OUTPUT/<domain>/<row>.json                   hypotheses of a row, their cost, its settings and signature
OUTPUT/<domain>/speed-<batch>.json           speed of the rows of the figures, in turns
"""

from __future__ import annotations

import platform
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from knnmt import (
    Bars,
    Datastore,
    Gate,
    GateConfig,
    OpenStore,
    RetrievalConfig,
    SourceIndex,
    ThresholdGate,
    TrainedGate,
    Translator,
    __version__,
    machine,
    open_store,
    spread,
)
from knnmt.errors import SettingError
from knnmt_lab.reproduction import choosing
from knnmt_lab.reproduction.choosers import CHOOSERS
from knnmt_lab.reproduction.config import ReproductionConfig
from knnmt_lab.reproduction.decoded_lists import DecodedLists
from knnmt_lab.reproduction.faithful import probes_for, with_probes
from knnmt_lab.reproduction.harm import TEXT, harm_directory, others_of, pairs_in
from knnmt_lab.reproduction.later import taught_and_validated, trained_combiner
from knnmt_lab.reproduction.plan import Row, speed_rows
from knnmt_lab.reproduction.published_gate import PublishedGate, StepChance
from knnmt_lab.reproduction.random_gate import RandomGate
from knnmt_lab.reproduction.records import config_of, read_record, settings_of, write_record
from knnmt_lab.reproduction.speed import measure_speed
from knnmt_lab.reproduction.stores import PRUNED, DomainStores
from knnmt_lab.reproduction.texts import DomainText, digest, read_text, read_training
from knnmt_lab.reproduction.translating import ReadyRow
from knnmt_lab.reproduction.tuning import (
    GatesOfStore,
    trained_gate,
    tuned_by_bleu,
    tuned_by_segment,
    tuned_settings,
)

_PAPERS_BATCH = 8
_BATCH = {"cpu": 32, "cuda": 200}  # of rows that do not depend on it
_MIN_BORROWED_TAU = 8  # the smallest τ at which the distance of borrowed searches in a batch's cache is measured


class DomainSteps:
    """The work of one domain.

    rows: all that were requested
    searching: the block whose stores serve pruning and Fast kNN-MT: B, if it was requested
    """

    def __init__(
        self,
        name: str,
        config: ReproductionConfig,
        translator: Translator,
        languages: tuple[str, str],
        rows: list[Row],
        exact: frozenset[str],
        bars: Bars,
    ) -> None:
        self.name, self.rows, self.output = name, rows, config.output / name
        self.stores = DomainStores(config.store_directory / name, exact, translator.engine.device)
        self.searching = max(config.blocks)
        self._config, self._translator, self._languages, self._bars = config, translator, languages, bars
        self._data = config.data / name
        self._engine: Any = translator.engine
        self._opened: tuple[tuple[Path, type[SourceIndex]], OpenStore] | None = None
        self._gates: dict[str, GatesOfStore] = {}

    def read_text(self) -> dict[str, Any]:
        training = read_training(self._data, self._languages, self._config.train_pairs)
        text = read_text(self._data, self._languages, self._config.sentences, training)
        return {"digest": self.digest, **text.as_record()}

    @cached_property
    def digest(self) -> str:
        return digest(self._data)

    @property
    def store_record(self) -> dict[str, Any]:
        """What the stores depend on; --stores may name a place with the stores of others."""
        model, pairs = self._engine.fingerprint.model, self._config.train_pairs
        return {"digest": self.digest, "train_pairs": pairs, "model": model, "languages": list(self._languages)}

    @property
    def _text(self) -> DomainText:
        record = read_record(self.output / "text.json")
        assert record is not None, "the first stage writes it"  # noqa: S101
        return DomainText.of_record(record)

    def build(self) -> dict[str, Any]:
        pairs = read_training(self._data, self._languages, self._config.train_pairs)
        if not self.stores.exists(()):
            write_record(self.stores.record, self.store_record)
            with self._bars(f"{self.name}: building", "pairs") as progress:
                for_fast = any(row.needs_alignment for row in self.rows)
                self.stores.build(pairs, self._engine, self._languages, for_fast, progress)
        manifest = Datastore.open(self.stores.path(())).manifest
        return {"pairs": len(pairs), "entries": manifest.live_entries, "dim": manifest.dim}

    def prune(self, before: tuple[str, ...]) -> None:
        """Every pruned store that a row needs, from one search."""
        last = {row.steps[-1] for row in self.rows if row.steps and row.steps[:-1] == before}
        wanted = sorted(step for step in last if step.startswith(PRUNED))
        self.stores.prune(before, wanted, self._open(before, self.searching).snapshot.index.search)

    def index(self, steps: tuple[str, ...], block: str) -> None:
        with self._bars(f"{self.name}: indexing", "entries") as progress:
            self.stores.index(steps, block, progress)

    def _open(self, steps: tuple[str, ...], block: str, chooser: type[SourceIndex] = SourceIndex) -> OpenStore:
        """A block's store. The last one stays open, because rows that share a store follow each other."""
        wanted = self.stores.path(steps, block), chooser
        if self._opened is None or self._opened[0] != wanted:
            self._opened = None  # its memory is needed
            self._opened = wanted, self._load(wanted[0], block, chooser)
        return self._opened[1]

    def _load(self, path: Path, block: str, chooser: type[SourceIndex]) -> OpenStore:
        device, exact = self._engine.device, self.stores.is_exact(block)
        on_gpu = device.type != "cpu"
        opened = open_store(path, self._engine, exact=exact or on_gpu, chooser=chooser)
        if on_gpu and not exact:
            index = open_store(path, device="cpu").index
            assert index.approximate is not None, "the index comes before"  # noqa: S101
            lists = DecodedLists(index.approximate, device, index.signature.partition("/")[0])
            opened = opened.searched_by(lists, lists.signature)
        return opened

    def _opened_for(self, row: Row) -> OpenStore:
        return self._probed(row, self._open(row.steps, row.block or self.searching, _chooser(row)))

    def _probed(self, row: Row, opened: OpenStore) -> OpenStore:
        """A row's store, with the number of probes that was chosen for the row, if one was."""
        record = None if row.fidelity_of is None else read_record(self.output / probes_file(row))
        return opened if record is None else with_probes(opened, record["probes"])

    def choose_probes(self, row: Row) -> dict[str, Any]:
        config = self._settings(row)
        assert config is not None, "settings come before"  # noqa: S101
        published, ours = (
            self._load(self.stores.path((), block), block, SourceIndex) for block in (row.block, self.searching)
        )
        return probes_for(self._engine, published, ours, self._text.tuning, config)

    def tune(self, row: Row) -> dict[str, Any]:
        opened, pairs = self._opened_for(row), self._text.tuning
        if row.segments is not None:
            return tuned_by_segment(self._engine, opened, pairs, row.segments == "bm25", row.segment_count)
        found = tuned_settings(self._engine, opened, pairs, row.has_fading, row.fast)
        if not row.by_bleu:
            return found

        def translations(config: RetrievalConfig, sources: list[str]) -> list[str]:
            system = ReadyRow.of(row, opened, config, None)
            return [each.text for each in system.translate(self._translator, sources, self._batch_size(row))[0]]

        return tuned_by_bleu(pairs, config_of(found["settings"]), translations, self._languages[1])

    def _batch_size(self, row: Row) -> int:
        return _PAPERS_BATCH if row.depends_on_batch else _BATCH.get(self._engine.device.type, 32)

    def _settings(self, row: Row) -> RetrievalConfig | None:
        """The tuned settings of a row, with its own changes."""
        if not row.has_store:
            return None
        record = read_record(self.output / tuned_file(row))
        assert record is not None, "settings come before, or it would be the model alone"  # noqa: S101
        config = config_of(record["settings"])
        if row.uncounted:
            config = replace(config, use_counts=False)
        if row.k_of is not None:
            other = self._settings(next(each for each in self.rows if each.name == row.k_of))
            config = replace(config, k=config.k if other is None else other.k)
        return config

    def train_gate(self, row: Row) -> dict[str, Any]:
        config = self._settings(row)
        assert config is not None, "settings come before"  # noqa: S101
        return trained_gate(self._engine, self._open((), row.block), self._text.tuning, config)

    def train_combiner(self, row: Row) -> dict[str, Any]:
        config = self._settings(row)
        assert config is not None, "settings come before"  # noqa: S101
        assert row.combiner is not None, "only such rows train one"  # noqa: S101
        return trained_combiner(self._engine, self._open((), row.block), self._text.tuning, config, row.combiner)

    def _gate(self, row: Row, opened: OpenStore | None) -> Gate | None:
        """The gate of a row that has one, or a random choice of as many steps as its partner searched."""
        if not row.has_gate or opened is None:
            return None
        rate = None
        if row.chance:
            record = read_record(self.output / f"{row.partner}.json")
            assert record is not None, "the gate's row comes before"  # noqa: S101
            rate = record["searches"]["searches"] / record["searches"]["rows"]
        if row.share is None and not row.published_gate:
            trained = TrainedGate.read(opened.datastore, opened.device)
            return ThresholdGate(trained, row.alpha or 0) if rate is None else RandomGate(rate, row.seed, trained)
        config = self._settings(row)
        assert config is not None, "settings come before"  # noqa: S101
        if row.block not in self._gates:
            self._gates[row.block] = GatesOfStore(self._engine, opened, self._text.tuning, config, self._own_gate)
        gate = self._gates[row.block].of(row)
        return StepChance(rate, row.seed, gate) if rate is not None and isinstance(gate, PublishedGate) else gate

    def _own_gate(self, seed: int) -> GateConfig:
        record = read_record(self.output / choosing.GATE_FILE)
        assert record is not None, "the choice comes before"  # noqa: S101
        return choosing.chosen_gate(record, seed)

    def choose_gate(self, row: Row) -> dict[str, Any]:
        config = self._settings(row)
        assert config is not None, "settings come before"  # noqa: S101
        return choosing.gate_choice(self._engine, self._opened_for(row), self._text.tuning, config)

    def translate_other_half(self) -> dict[str, Any]:
        """Translations of text that is not reported, by all rows of block B that a choice is made from."""
        sources = [pair.source for pair in choosing.untuned(self._text.tuning)]
        found = {}
        for row in choosing.rows_to_choose_from(self.rows):
            system = ReadyRow.of(row, self._opened_for(row), self._settings(row), None)
            translations, _ = system.translate(self._translator, sources, self._batch_size(row))
            found[row.name] = [each.text for each in translations]
        return {"other half": found, **self._made_on()}

    def translate(self, row: Row) -> dict[str, Any]:
        return self._translated(row, self._text.sources)

    def translate_validating(self, row: Row) -> dict[str, Any]:
        """Hypotheses of the text that says when the training of a combiner stops."""
        made = self._translated(row, [pair.source for pair in taught_and_validated(self._text.tuning)[1]])
        return {"validated": made.pop("hypotheses"), **{name: made[name] for name in ("row", "settings", "signature")}}

    def read_others(self) -> dict[str, Any]:
        return others_of(self._data, self._languages, self._config.other_sentences)

    def translate_others(self, row: Row) -> dict[str, Any]:
        """Hypotheses of other domains' text."""
        record = read_record(self.output / harm_directory(self._config.other_sentences) / TEXT)
        assert record is not None, "its stage comes before"  # noqa: S101
        sources = [pair.source for pair in pairs_in(record)]
        return {**self._translated(row, sources), "others": list(record["others"])}

    def _translated(self, row: Row, sources: list[str]) -> dict[str, Any]:
        opened = self._opened_for(row) if row.has_store else None
        system = ReadyRow.of(row, opened, self._settings(row), self._gate(row, opened))
        size = self._batch_size(row)
        borrowed = row.as_published and row.cache is not None and row.cache.threshold >= _MIN_BORROWED_TAU
        with self._bars(f"{self.name}: {row.name}", "sentences") as progress:
            found, figures = system.translate(self._translator, sources, size, progress, borrowed)
        return {
            "row": row.name,
            "steps": row.steps,
            "entries": opened and opened.datastore.manifest.live_entries,
            "dim": opened and opened.datastore.manifest.dim,
            "settings": system.config and settings_of(system.config),
            **figures,
            **self._made_on(),
            "hypotheses": [each.text for each in found],
        }

    def is_measured(self, batch_size: int) -> bool:
        """Whether all requested speeds were measured; raise an error if missing ones cannot be added.

        If rows were added, all are measured again, because only systems that take turns can be compared.
        """
        path = self.output / f"speed-{batch_size}.json"
        record = read_record(path)
        if record is None:
            return False
        asked = min(self._config.speed_sentences, len(self._text.reported)), self._config.rounds
        there = record["sentences"], min(len(each["rounds"]) for each in record["systems"].values())
        wanted = {row.name for row in speed_rows(self.rows)}
        if asked[0] == there[0] and asked[1] > there[1] and wanted >= set(record["systems"]):
            return False  # it was interrupted, or more rounds are asked for: all are measured again
        if asked != there:
            told = f"{there[0]} sentences in {there[1]} rounds, now {asked[0]} in {asked[1]}"
        elif wanted <= set(record["systems"]):
            return True
        elif others := [name for name in record["systems"] if name not in wanted]:
            told = f"{', '.join(others)}, too, which must take turns with the requested systems"
        else:
            return False
        raise SettingError(f"{path}: has the speed of {told}. Request the same, or remove the file to measure again")

    def measure(self, batch_size: int) -> dict[str, Any]:
        """Measure speeds. A store that several rows share is opened once."""
        self._opened = None
        opened: dict[Path, OpenStore] = {}  # the rows of figures all choose segments in the same way
        systems = []
        for row in speed_rows(self.rows):
            block = row.block or self.searching
            path = self.stores.path(row.steps, block)
            if row.has_store and path not in opened:
                opened[path] = self._load(path, block, _chooser(row))
            store = self._probed(row, opened[path]) if row.has_store else None
            systems.append(ReadyRow.of(row, store, self._settings(row), None))
        sources = spread(self._text.reported, self._config.speed_sentences)
        path = self.output / f"speed-{batch_size}.json"

        def keep(record: dict[str, Any]) -> None:
            write_record(path, {**record, **self._made_on()})

        # Without a progress bar, which would take time from the measurement.
        found = measure_speed(
            self._translator, systems, [pair.source for pair in sources], batch_size, self._config.rounds, keep
        )
        return {**found, **self._made_on()}

    def _made_on(self) -> dict[str, Any]:
        return {
            "machine": machine(self._translator),
            "versions": {"knnmt": __version__, "torch": torch.__version__, "python": platform.python_version()},
        }


def _chooser(row: Row) -> type[SourceIndex]:
    return SourceIndex if row.segments is None else CHOOSERS[row.segments]


def tuned_file(row: Row) -> str:
    """The file of a row's settings, shared by rows of the same store."""
    if row.fast or row.segments:
        return f"tuned-{row.name}.json"
    kind = "" if row.fades is None else "-fading" if row.fades else "-fixed"
    return f"{row.block}/tuned-{'-'.join(row.steps) or 'full'}{kind}{'-bleu' * row.by_bleu}.json"


def probes_file(row: Row) -> str:
    """The file of the number of probes that was chosen for a row."""
    return f"{row.block}/probes.json"
