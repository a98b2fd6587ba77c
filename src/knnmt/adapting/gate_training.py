"""Training a gate: λ that makes held-out text likely, by -log((1 - λ) p_NMT + λ p_kNN) with an L1 term on λ.

One forced pass over the text gives all inputs, p_NMT and p_kNN; an epoch over these takes a second.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from knnmt.adapting.development import search_text
from knnmt.calibration.likelihood import FadingGrid, Positions, losses
from knnmt.config import RetrievalConfig, check
from knnmt.corpus.pairs import SegmentPair
from knnmt.engine.base import Engine, State
from knnmt.progress import ignore
from knnmt.retrieval.gate import GateNetwork, GateRecord, TrainedGate, check_features, gate_inputs
from knnmt.retrieval.open_store import OpenStore

_MIN_PROBABILITY = 1e-30
_WEIGHTS = torch.arange(0, 1, 0.05, dtype=torch.float64)


@dataclass(frozen=True, slots=True)
class GateConfig:
    """The training of a gate. It is the paper's, except that it ends by itself, and that l1 is not 0.

    features: inputs beside the decoder state, from `gate.FEATURES`
    epochs: at most; it ends if the validation loss did not improve for `patience` epochs
    l1: l1 times λ is added to the loss. If the model is sure of the right token, λ hardly changes the likelihood, and
        without this term nothing would make λ small there. Then a threshold would not leave out the steps that do not
        matter
    """

    features: tuple[str, ...] = ("confidence",)
    epochs: int = 100
    patience: int = 8
    batch_rows: int = 256
    learning_rate: float = 1e-4
    l1: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        check_features(self.features)
        check(self.epochs >= 1, f"epochs must be at least 1, got {self.epochs}")
        check(self.l1 >= 0, f"l1 must be at least 0, got {self.l1}")


@dataclass(frozen=True, slots=True)
class GateText:
    """Every position of some pairs after one forced pass, on the CPU.

    inputs: (rows, inputs), the inputs of a gate
    positions: the results for each
    knn: (rows,) float64, p_kNN of its token
    pairs: number of pairs that fit the model
    targets: (rows,), their tokens
    """

    inputs: Tensor
    positions: Positions
    knn: Tensor
    pairs: int
    targets: Tensor

    @property
    def base(self) -> Tensor:
        """(rows,) float64, the model's own probabilities."""
        return self.positions.base

    def loss(self, weights: Tensor) -> float:
        """The loss with the given λ of each row, (rows,) or (1,), in nats per token."""
        return self.positions.loss_with(self.knn, weights)

    def __len__(self) -> int:
        return len(self.knn)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The mean loss of training and of validation, including the cost of λ, after a number of epochs."""

    number: int
    training: float
    validation: float


@dataclass(frozen=True, slots=True)
class Threshold:
    """The effect of a threshold on a text: the share of its rows that is searched, and losses in nats per token.

    gate: search if λ is above it
    chance: as many random rows, with the same λ
    chance_fading: with fading λ
    """

    threshold: float
    searched: float
    gate: float
    chance: float
    chance_fading: float


@dataclass(frozen=True, slots=True)
class Training:
    """A gate, its references, and the course of its training.

    fixed: the best fixed λ
    fading: the settings whose λ fades best; both on the training text
    """

    gate: TrainedGate
    fixed: float
    fading: RetrievalConfig
    epochs: list[Epoch]

    def predicted(self, text: GateText) -> Tensor:
        """λ of every row, (rows,) float64."""
        return self.gate.predicted(text.inputs)

    def losses(self, text: GateText) -> dict[str, float]:
        """The losses of the model alone, a fixed λ, a fading λ, and the gate with all rows searched."""
        return {
            "alone": text.loss(torch.zeros(1)),
            "fixed": text.loss(torch.full((1,), self.fixed)),
            "fading": text.positions.loss(self.fading),
            "gate": text.loss(self.predicted(text)),
        }

    def judge(self, text: GateText, thresholds: Sequence[float]) -> list[Threshold]:
        """The effect of each threshold. For a random choice, the expected loss is computed without sampling."""
        weights = self.predicted(text)
        known = self.losses(text)
        effects = []
        for threshold in thresholds:
            searched = weights > threshold
            part = float(searched.double().mean())
            gate = text.loss(weights * searched)
            chance, chance_fading = (part * known[name] + (1 - part) * known["alone"] for name in ("gate", "fading"))
            effects.append(Threshold(threshold, part, gate, chance, chance_fading))
        return effects


def gate_text(
    engine: Engine[State],
    opened: OpenStore,
    pairs: Sequence[SegmentPair],
    config: RetrievalConfig,
    features: Sequence[str],
    progress: Callable[[int, int], None] = ignore,
) -> GateText:
    """Force the pairs that fit the model through it and search every position, with these k and T.

    `progress` is called with the numbers of pairs and positions done; each counts twice: forced, searched.
    """
    check(
        config.fast is None,
        "a gate needs search of the whole store, and these settings are for Fast kNN-MT, whose T has another scale: "
        "name another profile ('estimated' always exists)",
    )
    inputs: list[Tensor] = []

    def look(states: Tensor, scores: Tensor) -> None:
        inputs.append(gate_inputs(features, states, scores).cpu())

    text = search_text(engine, opened, pairs, config.k, progress, look=look)
    positions = text.positions()
    knn = positions.knn(config.temperature, config.use_counts)
    return GateText(torch.cat(inputs), positions, knn, text.pairs, text.tokens)


def train_gate(
    opened: OpenStore,
    training: GateText,
    validation: GateText,
    retrieval: RetrievalConfig,
    config: GateConfig | None = None,
    on_epoch: Callable[[Epoch], None] = ignore,
) -> Training:
    """Train on one text until the loss on the other stops improving, and keep the best; `on_epoch` gets each epoch.

    retrieval: the settings that both were searched with
    """
    config = config or GateConfig()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)  # for initial weights, dropout and the order of rows
        network = GateNetwork(training.inputs.shape[1])
        network.normalise_by(training.inputs)
        epochs = _fit(network, training, validation, config, on_epoch)
    losses_each = losses(training.knn, training.base, _WEIGHTS[:, None])
    fixed_loss, fixed = float(losses_each.min()), float(_WEIGHTS[losses_each.argmin()])
    _, most, fading = FadingGrid(training.positions).cautious(training.knn, fixed_loss)
    faded = RetrievalConfig(retrieval.k, most, retrieval.temperature, fading, retrieval.use_counts)
    record = GateRecord.new(
        opened.datastore.manifest,
        retrieval,
        features=config.features,
        seed=config.seed,
        l1=config.l1,
        pairs=training.pairs,
        epochs=min(epochs, key=lambda each: each.validation).number,
    )
    trained = Training(TrainedGate(network, record), fixed, faded, epochs)
    trained.gate.record = replace(record, losses=trained.losses(validation))
    return trained


def _fit(
    network: GateNetwork,
    training: GateText,
    validation: GateText,
    config: GateConfig,
    on_epoch: Callable[[Epoch], None],
) -> list[Epoch]:
    """Train a network, and restore its weights after the best epoch."""
    base, knn = (each.clamp(min=_MIN_PROBABILITY).log().float() for each in (training.base, training.knn))
    adam = torch.optim.Adam(network.parameters(), config.learning_rate)  # loads PyTorch's compiler, which takes seconds
    epochs: list[Epoch] = []
    best, best_state = Epoch(0, float("inf"), float("inf")), network.state_dict()
    while len(epochs) < min(config.epochs, best.number + config.patience):
        network.train()
        total = 0.0
        for rows in torch.split(torch.randperm(len(training)), config.batch_rows):
            loss = gate_loss(network(training.inputs[rows]), base[rows], knn[rows], config.l1)
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
            total += float(loss.detach()) * len(rows)
        network.eval()
        with torch.no_grad():
            weights = torch.sigmoid(network(validation.inputs).double())
        judged = validation.loss(weights) + config.l1 * float(weights.mean())
        epochs.append(Epoch(len(epochs) + 1, total / len(training), judged))
        on_epoch(epochs[-1])
        if judged < best.validation:
            best, best_state = epochs[-1], copy.deepcopy(network.state_dict())
    network.load_state_dict(best_state)
    return epochs


def gate_loss(logits: Tensor, base: Tensor, knn: Tensor, l1: float = 0.0) -> Tensor:
    """The mean of -log((1 - λ) p_NMT + λ p_kNN) + l1 · λ; logits of λ, log p_NMT and log p_kNN (rows,)."""
    mixed = torch.logaddexp(functional.logsigmoid(-logits) + base, functional.logsigmoid(logits) + knn)
    return (l1 * torch.sigmoid(logits) - mixed).mean()
