"""A trained combiner:

a network with the settings of its training, kept in the store's directory as METHOD.safetensors.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from knnmt.config import MAX_SEGMENTS, RetrievalConfig, check
from knnmt.datastore.store import Datastore
from knnmt.errors import SettingError, quoted
from knnmt.records import as_record
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.network_file import UNREADABLE, NetworkFile, TrainingRecord
from knnmt.retrieval.step import Step
from knnmt.retrieval.trained.networks import CombinerNetwork, network_named
from knnmt.retrieval.trained.seen import SeenInStep

MAX_K = 64
_VERSION = 1
_MAX_DIM = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinerRecord(TrainingRecord):
    """What a combiner was trained for, and the result of its training.

    segments: of the search whose neighbours it weighs; None for the whole store
    updates: number of updates up to the best one
    losses: "alone", "fading", "trained"
    """

    method: str
    segments: int | None
    updates: int

    def __post_init__(self) -> None:
        check(1 <= self.k <= MAX_K, f"k must lie between 1 and {MAX_K}, got {self.k}")
        TrainingRecord.__post_init__(self)
        check(1 <= self.dim <= _MAX_DIM, f"dim must lie between 1 and {_MAX_DIM}, got {self.dim}")
        sound = self.segments is None or 1 <= self.segments <= MAX_SEGMENTS
        check(sound, f"segments must lie between 1 and {MAX_SEGMENTS:,}, got {self.segments}")


class TrainedCombiner:
    """A network with the record of its training, ready for the neighbours of a store."""

    def __init__(self, network: CombinerNetwork, record: CombinerRecord) -> None:
        self.network = network.eval()
        self.record = record

    def signature(self) -> str:
        """Identifies it in published scores: a digest of its weights and its record."""
        file = _file(Path(), self.network.name, "")
        return f"{self.record.method}/{file.digest(self.record, self.network)[:12]}"

    def __call__(self, step: Step, neighbours: Neighbours) -> tuple[Tensor, Tensor]:
        """Log-weights (rows, k) and log λ (rows,); -inf for rows without neighbours."""
        found = neighbours.ids.shape[1]
        with torch.no_grad():
            weights, logits = self.network(SeenInStep(step, neighbours, self.record.k))
        nothing = neighbours.distances_sq[:, 0].isinf()
        return weights[:, :found], functional.logsigmoid(logits).masked_fill(nothing, float("-inf"))

    def applied_to(self, config: RetrievalConfig, given: Collection[str]) -> RetrievalConfig:
        """Settings with the k, T and search that it was trained for.

        given: the settings that a call names: k, T and search must be equal, and λ must not be there
        """
        record = self.record
        again = f"or train another: `knnmt train-combiner STORE --dev DEV --method {record.method}`"
        check(
            config.fast is None, f"the combiner {record.method} is not for Fast kNN-MT; translate without it, {again}"
        )
        check(config.gate is None, f"the combiner {record.method} and the gate both predict λ: give only one of them")
        names_weight = "profile" not in given and bool({"interpolation_weight", "fading"} & set(given))
        check(not names_weight, f"the combiner {record.method} predicts λ by itself: leave out λ and fading")
        applied = record.applied_to(config, given, f"combiner {record.method}", again)
        same = record.segments == config.segments or not {"segments", "search"} & set(given)
        check(
            same,
            f"the store's combiner {record.method} was trained for search {_way(record.segments)}, but the call "
            f"asks for search {_way(config.segments)}: leave this setting out, {again}",
        )
        return replace(applied, segments=record.segments, cache=config.cache if record.segments is None else None)

    @staticmethod
    def path(store: Path, method: str) -> Path:
        """The file of a method's combiner in a store's directory."""
        return combiner_file(store, method).path

    def write(self, store: Path) -> None:
        """Save it beside the store. It replaces an earlier combiner of its method in one step."""
        _file(store, self.network.name, self.network.name).write(self.record, self.network)

    @classmethod
    def read(
        cls, store: Datastore, method: str, device: torch.device | str = "cpu", place: Path | None = None
    ) -> TrainedCombiner:
        """The combiner of a store; a combiner that was trained for another store is refused.

        place: the directory of the file, by default the store's
        """
        kind, file = network_named(method), combiner_file(place or store.path, method)
        content, tensors = file.read()
        try:
            record = as_record(CombinerRecord, content)
            if record.method != kind.name:
                raise ValueError(f"it is one of the method {record.method}")
            file.require_fit(record, store)  # before making a network of the size that the record says
            network = kind(record.k, record.dim)
            network.load_state_dict(dict(tensors))
            network.require_sound(record.temperature)
        except (*UNREADABLE, SettingError) as error:
            raise file.unreadable(error) from error
        return cls(network.to(device), record)


def combiner_file(store: Path, method: str) -> NetworkFile:
    """The file of a method's combiner in a store's directory."""
    return _file(store, network_named(method).name, method)


def _file(store: Path, name: str, method: str) -> NetworkFile:
    return NetworkFile(
        store / f"{name}.safetensors",
        "combiner",
        _VERSION,
        f"{store}: has no combiner {name}",
        f"Train one with `knnmt train-combiner {quoted(store)} --dev DEV --method {method}`.",
    )


def _way(segments: int | None) -> str:
    return "of the whole store" if segments is None else f"in {segments} segments"
