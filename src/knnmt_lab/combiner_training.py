"""Training a combiner on the rows of held-out text, by -log((1 - λ) p_NMT + λ p_kNN).

The settings are as published (`combiners.py` and `retrieval/trained/networks.py` of knnmt name the papers): Adam,
clipped gradients, batches of 32 sentences, at most 5,000 updates, half the rate if the validation loss does not
improve. Label smoothing of 0.001 is left out, because it needs every token of the vocabulary. Robust kNN-MT is trained
with noise (`disturbed`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from knnmt import (
    CombinerNetwork,
    CombinerRecord,
    OpenStore,
    RetrievalConfig,
    TrainedCombiner,
    network_named,
    tune_positions,
)
from knnmt.errors import InputError
from knnmt_lab.checks import check
from knnmt_lab.combiner_rows import CombinerRows

_BETAS = (0.9, 0.98)
_NEVER = -1e30
_JUDGED_ROWS = 4096  # rows whose loss is computed together
KEY_NOISE = 0.01  # of Robust kNN-MT, in every dimension of a key


@dataclass(frozen=True, slots=True)
class CombinerConfig:
    """The training of a combiner.

    updates: at most; after each `judged_every` updates (by default the method's) the validation loss is measured; the
        rate is halved if it has not improved for `patience` measurements, and training ends after three times as many
    """

    method: str = "robust"
    updates: int = 5000
    judged_every: int | None = None
    patience: int = 5
    sentences: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        network_named(self.method)  # this checks it
        check(self.updates >= 1, f"updates must be at least 1, got {self.updates}")

    @property
    def usual_k(self) -> int:
        """The number of neighbours in the method's paper."""
        return network_named(self.method).usual_k


@dataclass(frozen=True, slots=True)
class Judged:
    """The validation loss after a number of updates."""

    updates: int
    validation: float


@dataclass(frozen=True, slots=True)
class CombinerTraining:
    """A combiner, and its reference: the settings whose λ fades best on the training rows."""

    combiner: TrainedCombiner
    fading: RetrievalConfig

    def losses(self, rows: CombinerRows) -> dict[str, float]:
        """The losses of the model alone, of a fading λ, and of the combiner, in nats per token."""
        positions = rows.positions()
        near = rows.first(self.combiner.record.k)
        return {
            "alone": positions.loss(None),
            "fading": positions.loss(self.fading),
            "trained": trained_loss(self.combiner.network, near),
        }


def best_fading(training: CombinerRows, segments: int | None) -> RetrievalConfig:
    """The settings whose λ fades best, with all neighbours of the rows. All methods and seeds are compared with it."""
    return tune_positions(training.positions(), scope=segments).fading.fading


def train_combiner(
    opened: OpenStore,
    training: CombinerRows,
    validation: CombinerRows,
    retrieval: RetrievalConfig,
    fading: RetrievalConfig,
    config: CombinerConfig | None = None,
    on_judged: Callable[[Judged], None] = lambda _: None,
) -> CombinerTraining:
    """Train on some rows until the loss on the others stops improving, and keep the best.

    `on_judged` gets each measurement.

    retrieval: the settings that both were searched with; the combiner has their k and T; rows may have more neighbours
    fading: the settings to compare it with (`best_fading`)
    """
    config = config or CombinerConfig()
    k = min(retrieval.k, training.distances_sq.shape[1])
    record = CombinerRecord.new(
        opened.datastore.manifest,
        replace(retrieval, k=k, use_counts=training.use_counts),
        method=network_named(config.method).name,
        segments=retrieval.segments,
        seed=config.seed,
        pairs=training.pairs,
        updates=0,
    )
    if not bool(training.distances_sq.isfinite().any()):
        raise InputError(f"{opened.datastore.path}: no position of the text found an entry to learn from")
    near, judging = training.first(k), validation.first(k)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)  # for initial weights, noise and the order of sentences
        network = network_named(config.method)(k, record.dim)
        network.fit_inputs(near, retrieval.temperature)
        network.take_fading(fading.fading)
        if network.sees_keys:  # these are large enough for a GPU to pay
            near, judging = (each.with_keys_on(opened.device) for each in (near, judging))
            network.to(opened.device)
        else:
            near, judging = near.without_keys(), judging.without_keys()
        with nullcontext() if network.sees_keys else _one_thread():
            best = _fit(network, near, judging, config, on_judged)
        network.cpu()
    found = CombinerTraining(TrainedCombiner(network, record), fading)
    found.combiner.record = replace(record, updates=best.updates, losses=found.losses(validation))
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread: the operations of an update are so small that several wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _fit(
    network: CombinerNetwork,
    training: CombinerRows,
    validation: CombinerRows,
    config: CombinerConfig,
    on_judged: Callable[[Judged], None],
) -> Judged:
    """Train a network, and restore its weights at the best validation loss."""
    adam = torch.optim.Adam(network.parameters(), network.learning_rate, _BETAS)
    lengths = torch.bincount(training.sentences.cpu())
    starts = lengths.cumsum(0) - lengths
    best, best_state, waited, order = Judged(0, math.inf), network.state_dict(), 0, torch.empty(0, dtype=torch.long)
    for update in range(1, config.updates + 1):
        if len(order) < min(config.sentences, training.pairs):
            order = torch.cat([order, torch.randperm(training.pairs)])
        batch, order = order[: config.sentences], order[config.sentences :]
        rows = torch.cat(
            [torch.arange(start, start + n) for start, n in zip(starts[batch], lengths[batch], strict=True)]
        )
        seen = training[rows]
        if network.noise_updates is not None:
            seen = disturbed(seen, network.dim, math.exp(-update / network.noise_updates))
        loss = combiner_losses(network, seen).mean()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        adam.step()
        if update % (config.judged_every or network.judged_every) and update != config.updates:
            continue
        judged = Judged(update, trained_loss(network, validation))
        on_judged(judged)
        waited += 1
        if judged.validation < best.validation:
            best, best_state, waited = judged, copy.deepcopy(network.state_dict()), 0
        elif waited % config.patience == 0:
            for group in adam.param_groups:
                group["lr"] /= 2
        if waited >= 3 * config.patience:
            break
    network.load_state_dict(best_state)
    network.eval()
    return best


def combiner_losses(network: CombinerNetwork, rows: CombinerRows) -> Tensor:
    """-log of the mixture's probability of each row's own token, (rows,)."""
    weights, logits = network(rows)
    knn = torch.logsumexp(weights.masked_fill(~rows.matches, _NEVER), dim=1)
    nothing = rows.distances_sq[:, 0].isinf()
    mixed = torch.logaddexp(functional.logsigmoid(-logits) + rows.base, functional.logsigmoid(logits) + knn)
    return -torch.where(nothing, rows.base, mixed)


def trained_loss(network: CombinerNetwork, rows: CombinerRows) -> float:
    """The mean of `combiner_losses` over a text, in nats per token."""
    with torch.no_grad():
        parts = torch.split(torch.arange(len(rows)), _JUDGED_ROWS)
        return float(torch.cat([combiner_losses(network, rows[some]).double() for some in parts]).mean())


def disturbed(rows: CombinerRows, dim: int, probability: float) -> CombinerRows:
    """Rows with noise, for the training of Robust kNN-MT. dim: of keys

    Keys get noise: their distances change by its length and by its component away from the query. If no neighbour has
    the text's token, then with this probability the query itself, with noise, becomes a neighbour with that token.
    """
    size, distances_sq = rows.distances_sq.shape, rows.distances_sq
    away = 2 * KEY_NOISE * distances_sq.sqrt() * torch.randn(size)
    noisy = (distances_sq + away + KEY_NOISE**2 * dim).clamp(min=0)
    distances_sq = torch.where(distances_sq.isinf(), distances_sq, noisy)
    misses = ~rows.matches.any(1) & (torch.rand(size[0]) < probability)
    if not bool(misses.any()):
        return replace(rows, distances_sq=distances_sq)

    def headed_by(first: Tensor, others: Tensor) -> Tensor:
        return torch.where(misses[:, None], torch.cat([first[:, None].to(others), others[:, :-1]], dim=1), others)

    nothing = torch.zeros(size[0])
    counts, repeats = (None if each is None else headed_by(nothing, each) for each in rows.both_counts)
    return replace(
        rows,
        distances_sq=headed_by(torch.full((size[0],), KEY_NOISE**2 * dim), distances_sq),
        tokens=headed_by(rows.targets, rows.tokens),
        distinct=headed_by(nothing, rows.distinct) + misses[:, None],  # none of the others has that token
        both_counts=(counts, repeats),
        said_there=headed_by(rows.base, rows.said_there),
        said_here=headed_by(rows.base, rows.said_here),
    )
