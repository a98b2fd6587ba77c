"""Trained combiners in compiled code (`native/network.cpp`): `robust` and `robust-fading`."""

from __future__ import annotations

import torch
from torch import Tensor

from knnmt.native.structures import made
from knnmt.retrieval.step import Combiner
from knnmt.retrieval.trained.combiner import MAX_K, TrainedCombiner
from knnmt.retrieval.trained.networks import FadingRobust, Robust


class CompiledNetwork:
    """The network of a combiner as compiled code sees it.

    address: where its settings are, for as long as this object lives
    """

    def __init__(self, combiner: TrainedCombiner, network: Robust) -> None:
        self._combiner = combiner
        fades = isinstance(network, FadingRobust)
        self._numbers = _numbers(network)  # keeps their memory alive
        self._network = made("Network", k=network.k, fades=fades, numbers=self._numbers.data_ptr())
        self.address = int(self._network.ctypes.data)

    @classmethod
    def of(cls, combiner: Combiner | None, k: int) -> CompiledNetwork | None:
        """That of a combiner, or None if there is none, or if compiled code lacks its method or room for k."""
        if not isinstance(combiner, TrainedCombiner) or type(combiner.network) not in (Robust, FadingRobust):
            return None
        assert isinstance(combiner.network, Robust)  # noqa: S101 - as above
        return cls(combiner, combiner.network) if k <= combiner.network.k <= MAX_K else None


def _numbers(network: Robust) -> Tensor:
    """All numbers of a network, in the order of network.h."""
    scale, _, sentence_scale, sentence_width = network.fading if isinstance(network, FadingRobust) else torch.ones(4)
    neighbour, memory, model = network.of_neighbour, network.of_memory, network.of_model
    parts = [network.temperature, network.far, scale, sentence_scale, sentence_width, network.mean, network.scale]
    parts += [neighbour[0].weight, neighbour[0].bias, neighbour[2].weight, neighbour[2].bias]
    parts += [memory[0].weight.T, memory[0].bias, memory[2].weight, memory[2].bias, model.weight, model.bias]
    with torch.no_grad():
        return torch.cat([each.detach().float().cpu().flatten() for each in parts])
