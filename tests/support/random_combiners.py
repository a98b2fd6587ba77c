"""Trained combiners with random weights."""

from __future__ import annotations

import torch

from knnmt.config import Fading
from knnmt.datastore.store import Datastore
from knnmt.retrieval.trained.combiner import CombinerRecord, TrainedCombiner
from knnmt.retrieval.trained.networks import Robust, network_named

META_K, KERNEL = "knnmt_lab.combiners:MetaK", "knnmt_lab.combiners:KernelSmoothed"
METHODS = (META_K, "robust", KERNEL, "robust-fading")


def random_combiner(store: Datastore, method: str, k: int, seed: int, segments: int | None = None) -> TrainedCombiner:
    """One with random weights, at which λ is neither 0 nor 1."""
    torch.manual_seed(seed)
    manifest = store.manifest
    network = network_named(method)(k, manifest.dim)
    with torch.no_grad():
        if isinstance(network, Robust):
            network.of_model.weight.mul_(0.1)  # of log-probabilities as small as -30
    network.mean.uniform_(0, 9)
    network.scale.uniform_(0.05, 0.3)
    network.far.fill_(60.0)
    network.temperature.fill_(6.0)
    network.take_fading(Fading(5.0, 0.8, 6.0, 0.7))
    record = CombinerRecord(
        method=network.name,
        k=k,
        temperature=6.0,
        use_counts=True,
        segments=segments,
        model=manifest.model,
        tokenizer=manifest.tokenizer,
        dim=manifest.dim,
        transforms=manifest.transforms,
        seed=0,
        pairs=9,
        updates=1,
        losses={},
    )
    return TrainedCombiner(network, record)
