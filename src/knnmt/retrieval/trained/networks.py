"""The networks of trained combiners: log-weights of neighbours, and the logit of λ, from `Seen`.

robust    Jiang et al. 2022, Robust kNN-MT: weights corrected by what the model itself says of a neighbour's token,
          there and here; λ weighs how sure the memory is against how sure the model is
robust-fading   ours: robust, whose λ also fades by the sentence as an untrained λ does, to spare text of other kinds

Distances have units that fit a store: they are divided by the T tuned for it, and normalised over the training rows if
they are inputs.
"""

from __future__ import annotations

import math
import re
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from knnmt import extensions
from knnmt.config import Fading, check
from knnmt.errors import SettingError
from knnmt.extensions import named, names_code, registered
from knnmt.retrieval.combiner import log_sentence_fading
from knnmt.retrieval.trained.seen import BEST, Seen

WIDTH = 32
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_MOST = -1e-6  # log λ at most, so that its logit is finite
_NEVER = -1e30  # a logarithm that has the effect of -inf, with finite gradients


class CombinerNetwork(nn.Module):
    """The common part of all networks. A subclass has a name, makes its layers in `__init__`, and overrides `forward`.

    name: of the method and of its file, with small letters, digits and -
    usual_k: the number of neighbours if none is asked for
    sees_keys: whether it looks at `Seen.keys` and `Seen.queries`; these are large enough for training on a GPU to pay
    noise_updates: updates after which a pseudo-neighbour, the noise of Robust kNN-MT, is 1/e as probable; None for
        training without noise
    k: neighbours per row; dim: of keys
    temperature: the tuned T of equation 2
    mean, scale: of the inputs, distances and counts of distinct tokens, (2k,); far: replaces a missing distance
    """

    name: ClassVar[str] = ""
    usual_k: ClassVar[int] = 8
    learning_rate: ClassVar[float] = 3e-4
    judged_every: ClassVar[int] = 100  # updates between two measurements of the validation loss
    noise_updates: ClassVar[int | None] = None
    sees_keys: ClassVar[bool] = False
    mean: Tensor
    scale: Tensor
    far: Tensor
    temperature: Tensor

    def __init__(self, k: int, dim: int) -> None:
        super().__init__()
        self.k, self.dim = k, dim
        self.register_buffer("mean", torch.zeros(2 * k))
        self.register_buffer("scale", torch.ones(2 * k))
        self.register_buffer("far", torch.ones(1))
        self.register_buffer("temperature", torch.ones(1))

    def require_sound(self, temperature: float) -> None:
        """Raise an error if T is another one, or if numbers that are not trained are impossible."""
        check(math.isclose(float(self.temperature), temperature, rel_tol=1e-5), "its T is not that of its record")

    def fit_inputs(self, seen: Seen, temperature: float) -> None:
        """Take the units of inputs from the training rows."""
        self.temperature.fill_(temperature)
        there = seen.distances_sq[seen.distances_sq.isfinite()]
        self.far.fill_(float(there.max()) if len(there) else 1.0)
        inputs = self._raw(seen)
        self.mean.copy_(inputs.mean(0))
        self.scale.copy_(1 / inputs.std(0, correction=0).clamp(min=1e-4))

    def _raw(self, seen: Seen) -> Tensor:
        distances_sq = torch.where(seen.distances_sq.isinf(), self.far, seen.distances_sq)
        return torch.cat([distances_sq, seen.distinct], dim=1)

    def inputs(self, seen: Seen) -> Tensor:
        """(rows, 2k): distances, and the number of different tokens up to each neighbour."""
        return (self._raw(seen) - self.mean) * self.scale

    def take_fading(self, fading: Fading | None) -> None:
        """Take over how a tuned λ fades. Published networks do not look at it."""

    def forward(self, seen: Seen) -> tuple[Tensor, Tensor]:
        """Log-weights (rows, k), -inf if there is no neighbour, and the logit of λ (rows,)."""
        raise NotImplementedError


class Robust(CombinerNetwork):
    """softmax(c - 2 sigmoid(t) d²/T), c of each neighbour from log p(v|key) and log p(v|query).

    λ = sigmoid(s_kNN - s_NMT): s_kNN, as t, from distances and counts, s_NMT from these log p and the model's best.
    """

    name = "robust"
    noise_updates = 1000

    def __init__(self, k: int, dim: int) -> None:
        super().__init__(k, dim)
        self.of_neighbour = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        self.of_memory = nn.Sequential(nn.Linear(2 * k, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))
        self.of_model = nn.Linear(2 * k + BEST, 1)

    def forward(self, seen: Seen) -> tuple[Tensor, Tensor]:
        missing = seen.distances_sq.isinf()
        there, here = (each.masked_fill(missing, 0) for each in (seen.said_there, seen.said_here))
        corrections: Tensor = self.of_neighbour(torch.stack([there, here], dim=2))[:, :, 0]
        memory: Tensor = self.of_memory(self.inputs(seen))
        model: Tensor = self.of_model(torch.cat([there, here, seen.best], dim=1))[:, 0]
        sharpness = 2 * torch.sigmoid(memory[:, 1:])  # 1 at first: T as tuned
        near = (seen.distances_sq.amin(1, keepdim=True) - seen.distances_sq) / self.temperature
        scores = (near.masked_fill(missing, 0) * sharpness + corrections).masked_fill(missing, _NEVER)
        scores = scores if seen.log_counts is None else scores + seen.log_counts
        weights = torch.log_softmax(scores, dim=1).masked_fill(missing, float("-inf"))
        return weights, memory[:, 0] - model


class FadingRobust(Robust):
    """`Robust` of 32 neighbours, with λ times the factor by which a tuned λ fades by the sentence.

    The factor is not trained: no training text is far from the memory as a whole sentence, so training cannot learn to
    tell text of another kind. The rest is trained with it, at ten times the published rate, because it ends sooner and
    no worse.
    """

    name = "robust-fading"
    usual_k = 32
    learning_rate = 3e-3
    judged_every = 25
    noise_updates = 100
    factor = staticmethod(log_sentence_fading)
    caution: ClassVar[float] = 0.95  # a trained λ is larger than a tuned one, so it fades at shorter distances
    fading: Tensor

    def __init__(self, k: int, dim: int) -> None:
        super().__init__(k, dim)
        self.register_buffer("fading", torch.ones(4))
        self._numbers: Fading | None = None  # the same on the host, so that no step waits for a GPU

    def require_sound(self, temperature: float) -> None:
        super().require_sound(temperature)
        Fading(*self.fading.tolist())  # this checks them

    def take_fading(self, fading: Fading | None) -> None:
        check(fading is not None, "robust-fading needs settings whose λ fades: tune the store first")
        assert fading is not None  # noqa: S101
        numbers = (fading.scale, fading.width, self.caution * fading.sentence_scale, fading.sentence_width)
        self.fading.copy_(torch.tensor(numbers))
        self._numbers = None

    def forward(self, seen: Seen) -> tuple[Tensor, Tensor]:
        weights, logits = super().forward(seen)
        nearest = torch.where(seen.distances_sq[:, 0].isinf(), self.far, seen.distances_sq[:, 0]).sqrt()
        self._numbers = self._numbers or Fading(*self.fading.tolist())
        factor = self.factor(self._numbers, nearest, seen.sentence)
        log_lambda = (functional.logsigmoid(logits) + factor).clamp(max=_MOST)
        return weights, log_lambda - torch.log(-torch.expm1(log_lambda))


NETWORKS: dict[str, type[CombinerNetwork]] = {each.name: each for each in (Robust, FadingRobust)}


def network_named(method: str) -> type[CombinerNetwork]:
    """The network of a method: one of ours, one that a package registers, or `package.module:Name`."""
    if method in NETWORKS:
        return NETWORKS[method]
    try:
        found = named(method, extensions.NETWORKS, "method")
    except SettingError as error:
        raise SettingError(f"--method must be {' or '.join(NETWORKS)}, or name your own: {error}") from error
    sound = isinstance(found, type) and issubclass(found, CombinerNetwork) and _NAME.fullmatch(found.name) is not None
    check(sound, f"--method {method}: expected a knnmt.CombinerNetwork whose name has small letters, digits and -")
    network: type[CombinerNetwork] = found
    return network


def network_of(combiner: str | None) -> type[CombinerNetwork] | None:
    """The network of a trained combiner that a user named, or None for a combiner of another kind."""
    if combiner is None:
        return None
    if combiner in NETWORKS or combiner in registered(extensions.NETWORKS):
        return network_named(combiner)
    found = named(combiner, extensions.COMBINERS, "combiner") if names_code(combiner) else None
    return network_named(combiner) if isinstance(found, type) and issubclass(found, CombinerNetwork) else None
