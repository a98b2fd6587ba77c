"""Trained combiners in compiled code (`native/network.cpp`): `robust` and `robust-fading`."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from knnmt.retrieval.step import Combiner
from knnmt.retrieval.trained.combiner import MAX_K, TrainedCombiner
from knnmt.retrieval.trained.networks import FadingRobust, Robust


class _Network(ctypes.Structure):
    """As in network.h."""

    _fields_ = (("k", ctypes.c_int32), ("fades", ctypes.c_int32), ("numbers", ctypes.c_void_p))


class CompiledNetwork:
    """The network of a combiner as compiled code sees it.

    address: where its settings are, for as long as this object lives
    """

    def __init__(self, combiner: TrainedCombiner, network: Robust) -> None:
        self._combiner = combiner
        fades = isinstance(network, FadingRobust)
        self._numbers = _numbers(network)  # keeps their memory alive
        self._network = _Network(network.k, fades, self._numbers.data_ptr())
        self.address = ctypes.addressof(self._network)

    @classmethod
    def of(cls, combiner: Combiner | None, k: int) -> CompiledNetwork | None:
        """That of a combiner, or None if there is none, or if compiled code lacks its method or room for k."""
        if not isinstance(combiner, TrainedCombiner) or type(combiner.network) not in (Robust, FadingRobust):
            return None
        assert isinstance(combiner.network, Robust)  # noqa: S101 - as above
        return cls(combiner, combiner.network) if k <= combiner.network.k <= MAX_K else None

    @staticmethod
    def same(one: CompiledNetwork | None, other: CompiledNetwork | None) -> bool:
        """Whether two are of the same combiner, or both are none."""
        return (one and one._combiner) is (other and other._combiner)


def _numbers(network: Robust) -> Tensor:
    """All numbers of a network, in the order of network.h."""
    scale, _, sentence_scale, sentence_width = network.fading if isinstance(network, FadingRobust) else torch.ones(4)
    neighbour, memory, model = network.of_neighbour, network.of_memory, network.of_model
    parts = [network.temperature, network.far, scale, sentence_scale, sentence_width, network.mean, network.scale]
    parts += [neighbour[0].weight, neighbour[0].bias, neighbour[2].weight, neighbour[2].bias]
    parts += [memory[0].weight.T, memory[0].bias, memory[2].weight, memory[2].bias, model.weight, model.bias]
    with torch.no_grad():
        return torch.cat([each.detach().float().cpu().flatten() for each in parts])
