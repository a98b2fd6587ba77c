"""Adaptive retrieval (section 3.3 of the paper, after He et al., 2021): a small network predicts λ before the search.

Rows whose λ is at most α are not searched. A trained gate is one file in the store's directory, `gate.safetensors`.
It holds the network, the normalisation of its inputs, and the settings that it was trained for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from knnmt.config import RetrievalConfig, check
from knnmt.datastore.store import Datastore
from knnmt.errors import (
    DatastoreDamagedError,
    DatastoreError,
    SettingError,
    quoted,
)
from knnmt.records import as_record
from knnmt.retrieval.network_file import UNREADABLE, NetworkFile, TrainingRecord
from knnmt.retrieval.step import Step

FILE = "gate.safetensors"
VERSION = 1
WIDTH, LAYERS, DROPOUT = 128, 4, 0.2
FEATURES = ("confidence", "entropy")  # inputs beside the decoder state, which is always one


class GateNetwork(nn.Module):
    """Four layers of 128 with ReLU and dropout, and one that gives the logit of λ."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        layers: list[nn.Module] = []
        for width in (inputs, *[WIDTH] * (LAYERS - 1)):
            layers += [nn.Linear(width, WIDTH), nn.ReLU(), nn.Dropout(DROPOUT)]
        self.layers = nn.Sequential(*layers, nn.Linear(WIDTH, 1))

    def normalise_by(self, inputs: Tensor) -> None:
        """Take the mean and the spread of each input from these rows, (rows, inputs)."""
        self.mean.copy_(inputs.mean(0))
        self.scale.copy_(1 / inputs.std(0).clamp(min=1e-4))

    def forward(self, inputs: Tensor) -> Tensor:
        """(rows, inputs) -> (rows,), logits of λ."""
        logits: Tensor = self.layers((inputs - self.mean) * self.scale)
        return logits[:, 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRecord(TrainingRecord):
    """What a gate was trained for, and the result of its training.

    epochs: number of epochs up to the best one
    losses: "alone", "fixed", "fading", "gate"
    """

    features: tuple[str, ...]
    l1: float
    epochs: int

    def __post_init__(self) -> None:
        TrainingRecord.__post_init__(self)
        check_features(self.features)
        check(min(self.epochs, self.l1) >= 0, f"epochs and l1 cannot be negative, got {self.epochs} and {self.l1}")


def check_features(features: Sequence[str]) -> None:
    """Refuse names of inputs that do not exist."""
    check(len(set(features)) == len(features), "an input of a gate is named twice")
    for name in features:
        check(name in FEATURES, f"there is no gate input {name!r}; the inputs are {', '.join(FEATURES)}")


class TrainedGate:
    """A network with the record of its training, ready for the steps of a store."""

    def __init__(self, network: GateNetwork, record: GateRecord) -> None:
        self.network = network.eval()
        self.record = record

    def signature(self) -> str:
        """Identifies it in published scores: a digest of its weights and its record."""
        return f"trained/{_file(Path()).digest(self.record, self.network)[:12]}"

    def logits(self, representations: Tensor, log_probabilities: Tensor) -> Tensor:
        """The logits of λ, (rows,); arguments as in a `Step`."""
        with torch.no_grad():
            inputs = gate_inputs(self.record.features, representations, log_probabilities)
            logits: Tensor = self.network(inputs)
        return logits

    def predicted(self, inputs: Tensor) -> Tensor:
        """λ of rows, (rows,) float64, from the network's inputs, (rows, inputs)."""
        with torch.no_grad():
            logits: Tensor = self.network(inputs)
        return torch.sigmoid(logits.double())

    def applied_to(self, config: RetrievalConfig, given: Collection[str]) -> RetrievalConfig:
        """Settings with the k, T and use of counts that λ was trained for; any of these in `given` must be equal."""
        other = f"`knnmt train-gate STORE --dev DEV --k {config.k} --temperature {config.temperature:g}`"
        return self.record.applied_to(config, given, "gate", f"or train another gate: {other}")

    @staticmethod
    def path(store: Path) -> Path:
        """The file of a store's gate."""
        return store / FILE

    # On disk ----------------------------------------------------------------------------------------------------------

    def write(self, store: Path) -> None:
        """Save it beside the store. It replaces an earlier gate in one step."""
        _file(store).write(self.record, self.network)

    @classmethod
    def read(cls, store: Datastore, device: torch.device | str = "cpu") -> TrainedGate:
        """The gate of a store; a gate that was trained for another store is refused."""
        file = _file(store.path)
        content, tensors = file.read()
        try:
            record, network = as_record(GateRecord, content), _network(tensors)
        except (*UNREADABLE, SettingError) as error:
            raise file.unreadable(error) from error
        file.require_fit(record, store)
        if len(network.mean) != inputs_of(record.features, store.model_dim):
            raise DatastoreDamagedError(
                f"{file.path}: its network has other inputs than its record says. {file.advice}"
            )
        return cls(network.to(device), record)


def _file(store: Path) -> NetworkFile:
    """The place of a store's gate."""
    return NetworkFile(
        store / FILE,
        "gate",
        VERSION,
        f"{store}: has no gate",
        f"Train one with `knnmt train-gate {quoted(store)} --dev DEV`.",
    )


def earlier_like(gate: TrainedGate, store: Datastore) -> TrainedGate | None:
    """The gate that a store has, if it was trained with the same inputs and settings as the given gate."""
    try:
        earlier = TrainedGate.read(store)
    except (SettingError, DatastoreError):  # there is no gate, or it is not usable
        return None
    names = ("features", "k", "temperature", "use_counts", "l1")
    same = all(getattr(earlier.record, name) == getattr(gate.record, name) for name in names)
    return earlier if same else None


def _network(tensors: Mapping[str, Tensor]) -> GateNetwork:
    """The network of these tensors. Raises ValueError or an error of PyTorch if they do not form a network."""
    mean, first = tensors["mean"], tensors["layers.0.weight"]
    if first.shape != (WIDTH, *mean.shape):  # otherwise a small file could ask for a large network
        raise ValueError("its first layer does not fit its inputs")
    network = GateNetwork(len(mean))
    network.load_state_dict(dict(tensors))
    return network


def gate_changed(store: Path) -> int:
    """When the gate of a store was last written, in nanoseconds; 0 if there is none."""
    return _file(store).changed()


def inputs_of(features: Collection[str], dim: int) -> int:
    """The number of a network's inputs, with a state of `dim` dimensions."""
    return dim + len(features)


def gate_inputs(features: Sequence[str], representations: Tensor, log_probabilities: Tensor) -> Tensor:
    """The network's inputs, (rows, inputs): the state, and the named features in the order of `FEATURES`."""
    columns = [representations.float()]
    if "confidence" in features:
        columns.append(log_probabilities.amax(1, keepdim=True))
    if "entropy" in features:
        columns.append(-(log_probabilities.exp() * log_probabilities).sum(1, keepdim=True))
    return torch.cat(columns, dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class ThresholdGate:
    """Searches the rows whose predicted λ is above α, and uses that λ."""

    trained: TrainedGate
    alpha: float

    def signature(self) -> str:
        """The network's signature; α is in the settings."""
        return self.trained.signature()

    def __call__(self, step: Step) -> tuple[Tensor, Tensor | None]:
        logits = self.trained.logits(step.states, step.log_probabilities)
        least = math.log(self.alpha / (1 - self.alpha)) if self.alpha else -math.inf
        return logits > least, functional.logsigmoid(logits)
