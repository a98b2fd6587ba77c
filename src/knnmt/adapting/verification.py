"""Checks what is kept beside a store's content: its index, settings, profiles, gate and combiners."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

from knnmt.calibration.certainty import Certainty
from knnmt.calibration.estimates import Calibration
from knnmt.datastore.manifest import INDEXES, StoredFile
from knnmt.datastore.settings import read_settings
from knnmt.datastore.store import Datastore
from knnmt.errors import DatastoreError, SettingError
from knnmt.extensions import NETWORKS, registered
from knnmt.index.saved import check_saved
from knnmt.retrieval.gate import FILE, TrainedGate
from knnmt.retrieval.profiles import Profiles
from knnmt.retrieval.settings import TRAINED_COMBINERS
from knnmt.retrieval.trained.combiner import TrainedCombiner, combiner_file


def problems_beside(store: Datastore, files: list[StoredFile]) -> Iterator[str]:
    """The problems there, one line each; files of an index are added to `files`.

    The store itself checks that the settings are complete.
    """
    checks: list[Callable[[], object]] = []
    if os.path.lexists(store.path / INDEXES):
        checks.append(lambda: files.extend(check_saved(store)))
    if os.path.lexists(store.path / FILE):
        checks.append(lambda: TrainedGate.read(store))
    checks += [
        partial(TrainedCombiner.read, store, method)
        for method in (*TRAINED_COMBINERS, *registered(NETWORKS))
        if os.path.lexists(combiner_file(store.path, method).path)
    ]
    if _whole_settings(store):
        checks += [partial(Calibration.of, store.path, by_segment) for by_segment in (False, True)]
        checks += [partial(Certainty.read, store.path), *_checks_of_profiles(store)]
    for check in checks:
        try:
            check()
        except (DatastoreError, SettingError) as error:
            yield str(error)


def _whole_settings(store: Datastore) -> bool:
    try:
        return bool(read_settings(store.path))
    except DatastoreError:
        return False


def _checks_of_profiles(store: Datastore) -> Iterator[Callable[[], object]]:
    profiles = Profiles.of(store.path)
    if not isinstance(profiles.section, dict):
        yield profiles.names
        return
    yield lambda: profiles.chosen(None)
    for name in profiles.section:
        if name != profiles.default:
            yield partial(profiles.profile, name)
