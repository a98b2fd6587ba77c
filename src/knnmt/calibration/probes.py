"""Chooses probes: how widely a clustered search on a GPU must look in a store to keep the fidelity target."""

from __future__ import annotations

from collections.abc import Sequence

from knnmt.calibration.estimates import DEFAULT_K, Calibration
from knnmt.calibration.fidelity import Fidelity, fidelity
from knnmt.calibration.held_out import sample
from knnmt.calibration.index_choice import Target
from knnmt.datastore.store import Datastore
from knnmt.index.clusters import usual_settings
from knnmt.index.entries import Entries
from knnmt.index.on_device import DeviceIndex

_PARTS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # of the usual number of probes


def choose_probes(index: DeviceIndex, store: Datastore) -> None:
    """Choose the probes of a clustered search before its use, with the target of `knnmt index` and the store's T."""
    known = Calibration.of(store.path)
    settle(index, index.entries, None if known is None else known.temperature)


def settle(
    index: DeviceIndex,
    entries: Entries,
    temperature: float | None = None,
    target: Target | None = None,
    sentences: int = 100,
    parts: Sequence[float] = _PARTS,
) -> Fidelity | None:
    """Give a clustered index the fewest probes that reach the target on the store's own held-out entries.

    Returns their fidelity; None if no number reaches the target: then the index searches exactly from now on.
    temperature: T of equation 2; if it is not known, the median distance of nearest neighbours
    sentences: how many are held out
    parts: of the usual number of probes, to be tried in this order
    """
    target = target or Target()
    held_out = sample(entries, sentences)
    true = held_out.search(index.exactly(), DEFAULT_K)
    temperature = temperature or max(float(true[0][:, 0].median()), 1e-6)
    usual = usual_settings(index.last - index.first)
    for part in parts:
        index.clusters.settings = usual.times(part)
        found = held_out.search(index, DEFAULT_K)
        measured = fidelity(held_out.queries, found, true, entries, temperature)
        if target.reached_by(measured):
            index.clusters.settled = True
            return measured
    index.give_clusters_up()
    return None
