"""A set of shards on disk: a store whose `shards.json` names other stores, which have its entries.

It has one model and one set of settings for all. It works wherever a store is searched by segment. What is added to it,
such as corrections, is in its own directory and counts as a last shard.
"""

from __future__ import annotations

import json
import math
import os
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from knnmt.config import check
from knnmt.datastore.building import clear_leftovers, new_store, publish_new_store
from knnmt.datastore.manifest import SEGMENTS
from knnmt.datastore.publication import publish_file
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.datastore.store import Datastore
from knnmt.distributed.cluster import AUTO, LOCAL, Cluster, connect
from knnmt.distributed.sharded_store import SECONDS, ShardedStore
from knnmt.distributed.shards import LocalShard, OpenShard, Shard
from knnmt.errors import DatastoreDamagedError, SettingError
from knnmt.records import as_record, parse_json
from knnmt.regular_files import read_regular

SHARDS = "shards.json"
_VERSION = 1
_OPENING_SECONDS = 600.0  # the longest time to open a shard for the first time


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """The place of a shard. node: the address of the machine that has its disk; None for any that sees the path"""

    path: str
    node: str | None = None

    @classmethod
    def of(cls, text: str) -> ShardPlace:
        """Parse a path or NODE:PATH."""
        node, colon, path = text.partition(":")
        if colon and path.startswith("/") and "/" not in node:
            return cls(path, node)
        return cls(str(Path(text).absolute()))


@dataclass(frozen=True, slots=True)
class ShardSet:
    """The shards of a set.

    cluster: where Ray opens them, an address as in `Cluster`; None for this process
    seconds: the time that a shard has for an answer
    """

    shards: tuple[ShardPlace, ...]
    cluster: str | None = None
    seconds: float = SECONDS
    version: int = _VERSION

    def __post_init__(self) -> None:
        check(bool(self.shards), "name the shards of the set")
        check(0 < self.seconds < math.inf, f"seconds must be a number above 0, got {self.seconds}")
        check(self.version == _VERSION, f"expected version {_VERSION} of a set of shards, found {self.version}")
        on_nodes = [each.path for each in self.shards if each.node is not None]
        check(
            not on_nodes or self.cluster is not None,
            f"{', '.join(on_nodes)}: Ray opens shards on other machines: name the cluster (--ray)",
        )

    @classmethod
    def read(cls, store: Path) -> ShardSet | None:
        """The shards of a set; None for another store."""
        path = store / SHARDS
        try:
            return as_record(cls, parse_json(read_regular(path)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise DatastoreDamagedError(
                f"{path}: cannot read the places of the shards ({error}). Restore the file, or make the set again."
            ) from error

    def opened(self, own: Path | None = None) -> list[Shard]:
        """Open the shards. A connection to a cluster lasts as long as the process.

        own: the set's own place, which may have entries, too. It does not decide what to connect to, because whatever
            answers at an address runs code here.
        """
        if own is not None and self.cluster not in (None, LOCAL, AUTO, os.environ.get("RAY_ADDRESS")):
            raise SettingError(
                f"{own}: the shards are on the cluster at {self.cluster}, but a store may not decide what this "
                f"machine connects to. If this is your cluster, set RAY_ADDRESS={self.cluster}"
            )
        last: list[Shard] = [] if own is None else [LocalShard(own)]
        if self.cluster is None:
            return [*(LocalShard(Path(each.path)) for each in self.shards), *last]
        ray = connect(Cluster(self.cluster))
        return [*(RayShard(ray, each) for each in self.shards), *last]


class RayShard:
    """A shard that Ray opens in its own process, and again after that process has died."""

    def __init__(self, ray: Any, place: ShardPlace) -> None:
        self.name = place.path if place.node is None else f"{place.node}:{place.path}"
        there = {} if place.node is None else {"resources": {f"node:{place.node}": 0.001}}
        self.actor = ray.remote(num_cpus=0, max_restarts=-1, **there)(OpenShard).remote(Path(place.path))

    def ask(self, what: str, *given: Any) -> Future[Any]:
        """As in `Shard`."""
        future: Future[Any] = getattr(self.actor, what).remote(*given).future()
        return future


def make_shard_set(found: ShardSet, path: Path) -> Path | None:
    """Make a set of shards with the settings of its largest shard.

    Return the place of that shard if it is on this machine.
    """
    opened = found.opened()
    states = [shard.ask("state").result(timeout=_OPENING_SECONDS) for shard in opened]
    largest = Path(found.shards[max(range(len(states)), key=lambda number: states[number].live_entries)].path)
    with new_store(path, "making") as making:
        manifest = replace(states[0].manifest, generation=1, next_segment=0, for_fast=False)
        clear_leftovers(making, manifest)
        if states[0].projection is not None:
            projection = Datastore.open(found.shards[0].path).projection
            assert projection is not None  # noqa: S101 - its state says so
            content = projection.content
            publish_file(making / SEGMENTS / projection.stored.file, lambda file: file.write(content))
            manifest = replace(manifest, projection=projection.stored)
        if largest.is_dir():
            write_settings(making, **read_settings(largest))  # the largest shard's settings fit the set about as well
        text = json.dumps(asdict(found), indent=1).encode()
        publish_file(making / SHARDS, lambda file: file.write(text))
        ShardedStore(Datastore(path, manifest, []), opened, seconds=found.seconds)  # fails if a shard does not fit
        publish_new_store(making, path, manifest)
    return largest if largest.is_dir() else None
