"""Networks of published combiners that `knnmt adapt` never chooses, for `knnmt train-combiner`.

They are as published, except that distances have units that fit a store: they are divided by the T tuned for it, and
normalised over the training rows if they are inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from knnmt import CombinerNetwork, Seen

_WIDTH = 32
_NEVER = -1e30  # a logarithm that has the effect of -inf, with finite gradients


class MetaK(CombinerNetwork):
    """Adaptive kNN-MT (Zheng et al. 2021): p_kNN = Σ over k of π(k) p_kNN with that k.

    π and λ come from distances and counts alone.
    """

    name = "meta-k"

    def __init__(self, k: int, dim: int) -> None:
        super().__init__(k, dim)
        self.sizes = sizes_up_to(k)
        self.of_k = nn.Sequential(nn.Linear(2 * k, _WIDTH), nn.Tanh(), nn.Linear(_WIDTH, len(self.sizes)))
        self.of_lambda = nn.Sequential(nn.Linear(2 * k, _WIDTH), nn.Tanh(), nn.Linear(_WIDTH, 1))

    def _nearness(self, seen: Seen) -> Tensor:
        """-d²/T relative to the nearest, plus the logarithms of counts, (rows, k); very negative if missing."""
        near = (seen.distances_sq.amin(1, keepdim=True) - seen.distances_sq) / self.temperature
        near = near if seen.log_counts is None else near + seen.log_counts
        return near.masked_fill(seen.distances_sq.isinf(), _NEVER)

    def forward(self, seen: Seen) -> tuple[Tensor, Tensor]:
        inputs, near = self.inputs(seen), self._nearness(seen)
        shares = torch.log_softmax(self.of_k(inputs), dim=1)
        places = torch.arange(self.k, device=near.device)
        of_sizes = [
            torch.log_softmax(near.masked_fill(places >= size, _NEVER), dim=1).clamp(min=_NEVER) for size in self.sizes
        ]
        weights = torch.logsumexp(torch.stack(of_sizes, dim=1) + shares[:, :, None], dim=1)
        logits: Tensor = self.of_lambda(inputs)[:, 0]
        return weights.masked_fill(seen.distances_sq.isinf(), float("-inf")), logits


class KernelSmoothed(CombinerNetwork):
    """Kernel-Smoothed kNN-MT (Jiang et al. 2021): exp(-d / T), T = exp(linear of [query; mean key]).

    λ comes from [query; weighted key] by one hidden layer.
    """

    name = "kernel-smoothed"
    usual_k = 16
    learning_rate = 2e-4
    sees_keys = True

    def __init__(self, k: int, dim: int) -> None:
        super().__init__(k, dim)
        self.of_temperature = nn.Linear(2 * dim, 1)
        self.of_lambda = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def fit_inputs(self, seen: Seen, temperature: float) -> None:
        """Begin with a T at which the weights fall with distance as -d²/T does near the usual distance."""
        super().fit_inputs(seen, temperature)
        nearest = seen.distances_sq[:, 0][seen.distances_sq[:, 0].isfinite()].sqrt()
        usual = max(float(nearest.median()) if len(nearest) else 1.0, 1e-3)
        with torch.no_grad():
            self.of_temperature.weight.mul_(0.1)  # states are long, and T is an exponential of them
            self.of_temperature.bias.fill_(float(torch.tensor(temperature / (2 * usual)).log()))

    def forward(self, seen: Seen) -> tuple[Tensor, Tensor]:
        missing = seen.distances_sq.isinf()
        there = (~missing).float()
        keys, queries = seen.keys, seen.queries
        mean = (keys * there[:, :, None]).sum(1) / there.sum(1, keepdim=True).clamp(min=1)
        temperature = self.of_temperature(torch.cat([queries, mean], dim=1)).clamp(-10, 10).exp()
        distances = seen.distances_sq.masked_fill(missing, 0).sqrt()
        scores = (distances[:, :1] - distances) / temperature
        scores = scores if seen.log_counts is None else scores + seen.log_counts
        weights = torch.log_softmax(scores.masked_fill(missing, _NEVER), dim=1)
        weighted = (keys * (weights.exp() * there)[:, :, None]).sum(1)
        logits: Tensor = self.of_lambda(torch.cat([queries, weighted], dim=1))[:, 0]
        return weights.masked_fill(missing, float("-inf")), logits


def sizes_up_to(k: int) -> list[int]:
    """1, 2, 4, … and k."""
    return sorted({k, *(1 << power for power in range(k.bit_length()))})
