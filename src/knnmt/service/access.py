"""API keys: who may do what, in which domains, and how often.

A key consists of 32 random bytes and is shown once, when it is made. The file of keys holds only its SHA-256, so nobody
can use a key after reading the file. Guessing 32 random bytes is hopeless, so the hash need not be slow. The service
reads the file again when it changes; a key that was deleted from it no longer works.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

from knnmt.config import check
from knnmt.datastore.publication import publish_file
from knnmt.errors import InputError, SettingError
from knnmt.records import parse_json
from knnmt.regular_files import read_regular
from knnmt.service.config import require_name
from knnmt.service.problems import Problem

Role = Literal["translate", "write", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # each role includes those before it
_PREFIX = "knnmt_"
_MAX_PRESENTED = 200  # characters of a key in a request


@dataclass(frozen=True, slots=True)
class Key:
    """A key, as in the file.

    sha256: of the key, in hexadecimal
    domains: those that the key may use; None for all
    per_minute: requests; None for any number
    """

    name: str
    sha256: str
    role: Role = "translate"
    domains: tuple[str, ...] | None = None
    per_minute: int | None = None

    def __post_init__(self) -> None:
        require_name(self.name)
        digits = len(self.sha256) == 64 and set(self.sha256) <= set("0123456789abcdef")
        check(digits, f"the sha256 of the key {self.name!r} must be 64 hexadecimal digits")
        check(self.role in ROLES, f"the role of the key {self.name!r} must be one of {', '.join(ROLES)}")
        for domain in self.domains or ():
            require_name(domain)
        sound = self.per_minute is None or (type(self.per_minute) is int and self.per_minute >= 1)
        check(sound, f"per_minute of the key {self.name!r} must be a whole number of at least 1")


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    key: None if the service has no keys
    address: of the client's machine
    """

    key: Key | None
    address: str = ""

    @property
    def client(self) -> Hashable:
        """Whose share of the service a request takes: the key's, or without keys the address's."""
        return ("address", self.address) if self.key is None else ("key", self.key.name)

    @property
    def name(self) -> str:
        return "anybody" if self.key is None else self.key.name

    def require(self, role: Role, domain: str | None = None) -> None:
        """Raise a problem unless the caller has the role, and may use the domain if one is given."""
        if self.key is None:
            return
        if not self.may(role):
            raise Problem(403, "forbidden", f"this needs a key with the role {role}; this one has {self.key.role}")
        if domain is not None and not self.sees(domain):
            raise Problem(403, "forbidden", f"this key may not be used for the domain {domain!r}")

    def may(self, role: Role) -> bool:
        """Whether the caller has this role or a higher one."""
        return self.key is None or ROLES.index(self.key.role) >= ROLES.index(role)

    def sees(self, domain: str) -> bool:
        """Whether the caller may use a domain."""
        return self.key is None or self.key.domains is None or domain in self.key.domains

    @property
    def sees_all(self) -> bool:
        """Whether it may be used for every domain."""
        return self.key is None or self.key.domains is None


@dataclass(slots=True)
class _Bucket:
    """A token bucket: the requests that a key may still make."""

    left: float
    at: float = field(default_factory=time.monotonic)

    def take(self, per_minute: int) -> float:
        """Take one request; if there is none, return the seconds to wait."""
        now = time.monotonic()
        self.left = min(float(per_minute), self.left + (now - self.at) * per_minute / 60)
        self.at = now
        if self.left < 1:
            return (1 - self.left) * 60 / per_minute
        self.left -= 1
        return 0.0


class Access:
    """The keys of a service. file: None allows everything to everybody"""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lock = Lock()
        self._read_at: tuple[int, int, int] | None = None
        self._keys: tuple[Key, ...] = ()
        self._buckets: dict[str, _Bucket] = {}
        if file is not None:
            self._keys, self._read_at = read_keys(file), _identity(file)

    @property
    def is_open(self) -> bool:
        """Whether requests need no key."""
        return self._file is None

    def caller(self, presented: str | None, address: str = "") -> Caller:
        """The owner of a key, at an address. Each call counts as one request."""
        if self._file is None:
            return Caller(None, address)
        if not presented:
            raise Problem(401, "no_key", "a key is needed: send it as 'Authorization: Bearer KEY'")
        found = self._found(presented)
        if found is None:
            raise Problem(401, "unknown_key", "this key is unknown")
        if found.per_minute is not None:
            with self._lock:
                bucket = self._buckets.setdefault(found.sha256, _Bucket(float(found.per_minute)))
                wait = bucket.take(found.per_minute)
            if wait:
                message = f"this key may make {found.per_minute} requests per minute"
                raise Problem(429, "too_many_requests", message, retry_after=wait)
        return Caller(found, address)

    def holder(self, name: str) -> Caller:
        """Whoever has the key of this name now: for addresses with a secret, which a client asks without its key.

        A key that was taken out opens them no more.
        """
        if self._file is None:
            return Caller(None)
        found = next((key for key in self._newest() if key.name == name), None)
        if found is None:
            raise Problem(403, "unknown_key", "the key that this address was made for is no longer known")
        return Caller(found)

    def _found(self, presented: str) -> Key | None:
        """The key of a request. It is compared with every key, in constant time."""
        digest = _digest(presented[:_MAX_PRESENTED])
        found = None
        for key in self._newest():
            if hmac.compare_digest(key.sha256, digest):
                found = key
        return found

    def _newest(self) -> tuple[Key, ...]:
        assert self._file is not None  # noqa: S101 - asked before
        with self._lock:
            identity = _identity(self._file)
            if identity != self._read_at:
                self._keys, self._read_at = read_keys(self._file), identity
                known = {key.sha256 for key in self._keys}
                self._buckets = {name: each for name, each in self._buckets.items() if name in known}
            return self._keys


def read_keys(file: Path) -> tuple[Key, ...]:
    """Read the keys of a file. Raise an error if any part of it is invalid."""
    try:
        content = parse_json(read_regular(file))
    except OSError as error:
        raise SettingError(
            f"{file}: cannot read the keys: {error.strerror}. Make a key with `knnmt serve-key`"
        ) from error
    except ValueError as error:
        raise InputError(f"{file}: expected the JSON that `knnmt serve-key` writes: {error}") from error
    keys = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(keys, list) or not all(isinstance(each, dict) for each in keys):
        raise InputError(f'{file}: expected {{"keys": [...]}}, as written by `knnmt serve-key`')
    return tuple(_key(file, each) for each in keys)


def new_key(
    file: Path, name: str, role: Role, domains: Iterable[str] | None = None, per_minute: int | None = None
) -> str:
    """Add a key to a file that only its owner can read, and return the key. It cannot be recovered later."""
    keys = read_keys(file) if file.exists() else ()
    check(all(key.name != name for key in keys), f"{file}: the file already has a key {name!r}; choose another name")
    secret = _PREFIX + secrets.token_urlsafe(32)
    added = Key(name, _digest(secret), role, None if domains is None else tuple(domains), per_minute)
    content = json.dumps({"keys": [_as_json(key) for key in (*keys, added)]}, indent=1).encode() + b"\n"

    def write(out: Any) -> None:
        os.fchmod(out.fileno(), 0o600) if hasattr(os, "fchmod") else None
        out.write(content)

    publish_file(file, write)
    return secret


def _key(file: Path, content: dict[str, Any]) -> Key:
    domains = content.get("domains")
    texts = domains is None or (isinstance(domains, list) and all(isinstance(each, str) for each in domains))
    named = all(isinstance(content.get(each), str) for each in ("name", "sha256", "role"))
    known = content.keys() <= {"name", "sha256", "role", "domains", "per_minute"}
    if not (texts and named and known):
        raise InputError(
            f"{file}: expected keys with name, sha256 and role, optionally domains and per_minute; found something else"
        )
    return Key(
        content["name"],
        content["sha256"],
        content["role"],
        None if domains is None else tuple(domains),
        content.get("per_minute"),
    )


def _as_json(key: Key) -> dict[str, Any]:
    content = {"name": key.name, "sha256": key.sha256, "role": key.role}
    more = {"domains": key.domains, "per_minute": key.per_minute}
    return {**content, **{name: value for name, value in more.items() if value is not None}}


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _identity(file: Path) -> tuple[int, int, int]:
    try:
        found = file.stat()
    except OSError as error:
        raise SettingError(f"{file}: cannot read the keys: {error.strerror}") from error
    return found.st_ino, found.st_mtime_ns, found.st_size
