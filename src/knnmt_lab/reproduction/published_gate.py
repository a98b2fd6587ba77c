"""Adaptive retrieval as in the authors' code: inputs, network, training, and the random choice beside it.

The network sees the decoder state and, each through its own small network, the model's confidence and entropy, the
frequency of the last one to four tokens in the memory, and the number of different tokens that follow them. Inputs are
not normalised. `retrieval.gate` has our own gate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from knnmt import GateText, OpenStore, Step

FEATURES = ("confidence", "entropy")  # of `GateText`; the statistics of n-grams follow them
_ORDERS = (1, 2, 3, 4)
_NUMBERS = len(FEATURES) + 2 * len(_ORDERS)
_WIDTH, _LAYERS, _DROPOUT = 128, 4, 0.2
_EPOCHS, _BATCH_ROWS, _LEARNING_RATE = 10, 64, 1e-4
_FACTOR = 0x5851F42D4C957F2D  # odd, so that a token changes every bit of the hash of what comes before it


class NgramStatistics:
    """Statistics of a memory's targets: how often each n-gram occurs, and how many different tokens follow it.

    An n-gram is identified by a hash of 64 bits. A target starts after four end tokens.
    """

    def __init__(self, opened: OpenStore, end: int) -> None:
        self._end = end
        parts = [
            (_hashes(_contexts(tokens[None], end)[0]), tokens)
            for segment in opened.datastore.segments
            for sentence in range(segment.record.sentences)
            if len(tokens := torch.from_numpy(np.asarray(segment.target_tokens(sentence), dtype=np.int64)))
        ]
        hashes = torch.cat([each for each, _ in parts], dim=1) if parts else torch.zeros((4, 0), dtype=torch.long)
        followers = torch.cat([tokens for _, tokens in parts]) if parts else torch.zeros(0, dtype=torch.long)
        self._known = [_counted(of_order, followers) for of_order in hashes]

    def of_history(self, history: Tensor) -> Tensor:
        """(rows, generated) -> (rows, 8): log(1 + occurrences) of the last 1 to 4 tokens, then log(1 + followers)."""
        padded = functional.pad(history.cpu(), (len(_ORDERS), 0), value=self._end)
        return self._looked_up(_hashes(padded[:, -len(_ORDERS) :])).to(history.device)

    def of_text(self, text: GateText) -> Tensor:
        """(rows, 8) for every position of a text, in the order of its sentences."""
        bounds = torch.unique_consecutive(text.positions.sentences, return_counts=True)[1].tolist()
        contexts = [_contexts(tokens[None], self._end)[0] for tokens in torch.split(text.targets, bounds)]
        return self._looked_up(_hashes(torch.cat(contexts)))

    def _looked_up(self, hashes: Tensor) -> Tensor:
        columns = []
        for kind in (0, 1):
            for (known, *counts), asked in zip(self._known, hashes, strict=True):
                if not len(known):
                    columns.append(torch.zeros(len(asked)))
                    continue
                place = torch.searchsorted(known, asked).clamp(max=len(known) - 1)
                columns.append(torch.where(known[place] == asked, counts[kind][place], 0).float().log1p())
        return torch.stack(columns, dim=1)


def _contexts(tokens: Tensor, end: int) -> Tensor:
    """(sentences, length) -> (sentences, length, 4): the four tokens before each."""
    padded = functional.pad(tokens, (len(_ORDERS), 0), value=end)
    return padded.unfold(1, len(_ORDERS), 1)[:, :-1]


def _hashes(contexts: Tensor) -> Tensor:
    """(rows, 4) -> (4, rows): hashes of the last token, the last two, and so on."""
    found, mixed = [], torch.zeros(len(contexts), dtype=torch.long)
    for order in _ORDERS:
        mixed = (mixed + contexts[:, -order] + 1) * _FACTOR
        mixed = mixed ^ (mixed >> 29)
        found.append(mixed)
    return torch.stack(found)


def _counted(hashes: Tensor, followers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct hashes in order, how often each occurs, and how many different tokens follow it."""
    known, occurrences = torch.unique(hashes, return_counts=True)
    pairs = torch.unique(torch.stack([hashes, followers]), dim=1)
    return known, occurrences, torch.unique_consecutive(pairs[0], return_counts=True)[1]


class PublishedNetwork(nn.Module):
    """Four layers of 128 with dropout before ReLU, and two outputs, for the model and for the memory."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        width = max(1, dim // _NUMBERS)
        self.numbers = nn.ModuleList(
            nn.Sequential(nn.Linear(1, width), nn.LeakyReLU(), nn.Linear(width, width)) for _ in range(_NUMBERS)
        )
        layers: list[nn.Module] = []
        for inputs in (dim + _NUMBERS * width, *[_WIDTH] * (_LAYERS - 1)):
            layers += [nn.Linear(inputs, _WIDTH), nn.Dropout(_DROPOUT), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(_WIDTH, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        """(rows, dim + 10) -> (rows,): logits of λ."""
        states, numbers = inputs[:, :-_NUMBERS], inputs[:, -_NUMBERS:]
        widened = [each(numbers[:, place, None]) for place, each in enumerate(self.numbers)]
        of_model, of_memory = self.layers(torch.cat([states, *widened], dim=1)).unbind(1)
        logits: Tensor = of_memory - of_model
        return logits


@dataclass(frozen=True, slots=True, eq=False)
class PublishedGate:
    """Searches if the predicted λ is above α, and uses that λ."""

    network: PublishedNetwork
    ngrams: NgramStatistics
    alpha: float
    seed: int

    def signature(self) -> str:
        return f"as-published/{self.seed}/{self.alpha:.4f}"

    def logits(self, step: Step) -> Tensor:
        """Logits of λ, (rows,)."""
        probabilities = step.log_probabilities.float()
        numbers = [probabilities.amax(1, keepdim=True), -(probabilities.exp() * probabilities).sum(1, keepdim=True)]
        with torch.no_grad():
            inputs = torch.cat([step.states.float(), *numbers, self.ngrams.of_history(step.history)], dim=1)
            logits: Tensor = self.network(_as_published(inputs))
        return logits

    def __call__(self, step: Step) -> tuple[Tensor, Tensor | None]:
        logits = self.logits(step)
        return logits > math.log(self.alpha / (1 - self.alpha)), functional.logsigmoid(logits)


class StepChance:
    """Searches all rows of a step or none, by one random draw for the whole batch; λ comes from a gate.

    So results depend on the batches and on their order.
    """

    def __init__(self, rate: float, seed: int, gate: PublishedGate) -> None:
        self._rate, self._gate, self._seed = rate, gate, seed
        self._draws = np.random.default_rng(seed)

    def signature(self) -> str:
        return f"chance-of-steps/{self._rate:.4f}/{self._seed}+{self._gate.signature()}"

    def __call__(self, step: Step) -> tuple[Tensor, Tensor | None]:
        logits = self._gate.logits(step)
        return torch.full_like(
            logits, bool(self._draws.random() < self._rate), dtype=torch.bool
        ), functional.logsigmoid(logits)


def _as_published(inputs: Tensor) -> Tensor:
    """Confidence as a probability, not its logarithm."""
    place = inputs.shape[1] - _NUMBERS
    return torch.cat([inputs[:, :place], inputs[:, place, None].exp(), inputs[:, place + 1 :]], dim=1)


def train_published(text: GateText, ngrams: NgramStatistics, seed: int) -> PublishedNetwork:
    """Ten epochs in batches of 64, without a term on λ; the last epoch's weights.

    text: with the inputs of `FEATURES`
    """
    inputs = _as_published(torch.cat([text.inputs, ngrams.of_text(text)], dim=1))
    base, knn = (each.clamp(min=1e-12).log().float() for each in (text.base, text.knn))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = PublishedNetwork(inputs.shape[1] - _NUMBERS)
        adam = torch.optim.Adam(network.parameters(), _LEARNING_RATE)
        for _ in range(_EPOCHS):
            for rows in torch.split(torch.randperm(len(text)), _BATCH_ROWS):
                logits = network(inputs[rows])
                mixed = torch.logaddexp(
                    functional.logsigmoid(-logits) + base[rows], functional.logsigmoid(logits) + knn[rows]
                )
                loss = -mixed.mean()
                adam.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                adam.step()
    return network.eval()


def threshold_for(share: float, network: PublishedNetwork, ngrams: NgramStatistics, text: GateText) -> float:
    """The α for which the predicted λ is above α at this share of a text's positions; λ must not be 0 or 1 there."""
    inputs = _as_published(torch.cat([text.inputs, ngrams.of_text(text)], dim=1))
    with torch.no_grad():
        predicted = torch.sigmoid(network(inputs).double())
    return float(predicted.quantile(1 - share).clamp(1e-6, 1 - 1e-6))
