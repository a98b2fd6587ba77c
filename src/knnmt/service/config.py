"""Settings and limits of the service, from options or a TOML file. All are frozen and check themselves."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from knnmt.config import check
from knnmt.errors import SettingError
from knnmt.settings import described
from knnmt.translator.settings import TranslationSettings

BASE = "base"  # the domain of the model alone
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_LOOPBACK = {"localhost"}
LEAST_BYTES = 1_000  # a second that a client must send of a body or read of an answer, once its time limit is over


def require_name(name: str) -> str:
    """Raise an error unless a domain can have this name. It becomes part of URLs and paths."""
    check(
        _NAME.fullmatch(name) is not None,
        f"the name of a domain has at most 64 characters of a-z, 0-9, _ and -, and starts with a letter or a "
        f"digit; got {name[:80]!r}",
    )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the service accepts from requests.

    body_bytes: of a request
    upload_bytes: of a memory
    document_bytes: of a document
    unpacked_bytes: of a compressed memory
    texts: of a request
    characters: of all texts of a request
    text_characters: of one text
    queue: texts of a client that wait or are decoded at the same time; further requests of the client wait
    wait_seconds: the longest time that a request may take; it then fails
    beam, neighbours: the largest values that a request may ask for
    evidence: neighbours that the evidence of a request may name, about
    cached: results that are remembered
    head_seconds: for the head of a connection's first request
    idle_seconds: between two requests
    body_seconds: the longest pause in a body
    reader_seconds: the longest time in which a client may read nothing of an answer
    unread_bytes: of answers that clients have not read; if there are more, connections with the most are closed
    connections: open ones; to make room for new ones, those that wait for their clients are closed
    address_connections: of one address, whose requests are read at the same time; further connections wait
    errors: of one address, that are answered at once; answers to further errors wait (`http/refusals.py`)
    ending_seconds: for accepted requests after SIGTERM; the process ends at most 2 seconds later
    jobs: jobs that run at the same time
    waiting_jobs: jobs that wait for their turn
    memory_pairs: of a memory that is sent
    """

    body_bytes: int = 4 << 20
    upload_bytes: int = 1 << 30
    document_bytes: int = 64 << 20
    unpacked_bytes: int = 8 << 30
    texts: int = 1_000
    characters: int = 1_000_000
    text_characters: int = 20_000
    queue: int = 1_024
    wait_seconds: float = 300.0
    beam: int = 16
    neighbours: int = 256
    evidence: int = 200_000
    cached: int = 4_096
    head_seconds: float = 10.0
    idle_seconds: float = 30.0
    body_seconds: float = 30.0
    reader_seconds: float = 30.0
    unread_bytes: int = 256 << 20
    connections: int = 1_000
    address_connections: int = 200
    errors: int = 50
    ending_seconds: float = 7.0
    jobs: int = 1
    waiting_jobs: int = 16
    memory_pairs: int = 10_000_000

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            is_time = each.name.endswith("_seconds")
            least = 0.001 if is_time else 0 if each.name == "cached" else 1
            sound = isinstance(value, float | int) and not isinstance(value, bool) and least <= value < 1 << 53
            check(sound, f"the limit {each.name} must be a number of at least {least}, got {value!r}")
            check(is_time or isinstance(value, int), f"the limit {each.name} must be a whole number, got {value!r}")

    def check(self, settings: TranslationSettings) -> None:
        """Raise an error if the settings of a request cost more than this."""
        check((settings.beam or 0) <= self.beam, f"the service searches with a beam of at most {self.beam}")
        most = f"the service looks for at most {self.neighbours} neighbours per step"
        check((settings.k or 0) <= self.neighbours, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """What is served, at which address, and to whom.

    stores: by the names of their domains
    default: the domain of requests that name none; by default the only store if there is one, otherwise `base`
    model: as for a `Translator`; by default the one that built the first store
    store_memory: MiB of the files of open stores, at most; stores that were not used for longest are closed; by
        default half of the machine's memory
    data: a directory for domains that requests make, and for jobs; without it, requests cannot make domains
    keys: the file of API keys; without it, everybody may do everything
    open_to_all: accept requests from other machines although there are no keys
    hosts: names by which clients address the service, besides `host`; behind a proxy, the name of the proxy
    settings: of requests that say nothing else
    """

    stores: Mapping[str, Path] = field(default_factory=dict)
    default: str | None = None
    model: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None
    store_memory: int | None = None
    host: str = "127.0.0.1"
    port: int = 8500
    data: Path | None = None
    keys: Path | None = None
    open_to_all: bool = False
    hosts: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    settings: TranslationSettings = field(default_factory=TranslationSettings)

    def __post_init__(self) -> None:
        for name in self.stores:
            require_name(name)
            check(name != BASE, f"{BASE!r} is the model alone: give the store {self.stores[name]} another name")
        memory = self.store_memory
        check(memory is None or memory >= 1, f"store_memory must be at least 1 MiB, got {memory}")
        check(0 <= self.port <= 65535, f"port must lie between 0 and 65535, got {self.port}")
        known = [BASE, *self.stores]
        check(
            self.default is None or self.default in known or self.data is not None,
            f"the default domain {self.default!r} is not one of {', '.join(known)}",
        )
        if not self.is_loopback and self.keys is None and not self.open_to_all:
            raise SettingError(
                f"host {self.host}: other machines could use the service, and it has no keys. Make a key (knnmt "
                f"serve-key FILE NAME) and give --keys FILE, or give --open-to-all"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host in _LOOPBACK:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def default_domain(self) -> str:
        """The domain of requests that name none."""
        if self.default is not None:
            return self.default
        return next(iter(self.stores)) if len(self.stores) == 1 else BASE


def read_config(path: Path, given: Mapping[str, Any]) -> ServiceConfig:
    """Read the settings from a TOML file. Those in `given` override them. Its paths are relative to its own directory.

    `[stores]` has a path for each domain, `[limits]` the limits, `[settings]` the defaults of requests; everything else
    comes before these tables.
    """
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise SettingError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: not valid TOML: {error}") from error
    kinds = {each.name: str(each.type) for each in fields(ServiceConfig)}
    limits, stores, settings = (content.pop(name, {}) for name in ("limits", "stores", "settings"))
    for name, table in (("limits", limits), ("stores", stores), ("settings", settings)):
        check(isinstance(table, dict), f"{path}: expected a table [{name}], found {table!r}")
    if unknown := sorted([*(content.keys() - kinds.keys()), *(limits.keys() - {each.name for each in fields(Limits)})]):
        raise SettingError(f"{path}: there is no setting {unknown[0]!r}; the settings are {', '.join(kinds)}")
    for name, value in content.items():
        _require_kind(path, name, value, kinds[name])
    for name, value in stores.items():
        check(isinstance(value, str), f"{path}: expected the path of the store {name!r}, found {value!r}")
    paths: dict[str, Any] = {name: path.parent / content[name] for name in ("data", "keys") if name in content}
    lists = {"hosts": tuple(content["hosts"])} if "hosts" in content else {}
    own: dict[str, Any] = {**content, **paths, **lists, "limits": Limits(**limits)}
    own["settings"] = given.get("settings", TranslationSettings()).over(_settings(path, settings))
    own["stores"] = {name: path.parent / value for name, value in stores.items()} | dict(given.get("stores", {}))
    others = {name: value for name, value in given.items() if name not in ("stores", "settings")}
    return ServiceConfig(**{**own, **others})


def _settings(path: Path, table: Mapping[str, Any]) -> TranslationSettings:
    known = [
        name for name, each in described(TranslationSettings).items() if "service" in each.uses and each.interfaces
    ]
    if unknown := [name for name in table if name not in known]:
        raise SettingError(f"{path}: [settings] has no {unknown[0]!r}; it can have {', '.join(known)}")
    try:
        return TranslationSettings(**table)
    except SettingError as error:
        raise SettingError(f"{path}: [settings]: {error}") from error


def _require_kind(path: Path, name: str, value: object, kind: str) -> None:
    if name == "hosts":
        sound, words = isinstance(value, list) and all(isinstance(each, str) for each in value), "a list of texts"
    elif "bool" in kind:
        sound, words = isinstance(value, bool), "true or false"
    elif "int" in kind:
        sound, words = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    else:
        sound, words = isinstance(value, str), "a text"
    check(sound, f"{path}: {name} must be {words}, found {value!r}")
