"""API keys: who may do what, where and how often.

A key is 32 random bytes, shown once when it is made. The file of keys holds its SHA-256: whoever reads the file cannot
use it, and nobody can find 32 random bytes by trying, so that no slower hash is needed. The file is read again when it
changes; a key that is taken out no longer opens anything.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterable
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
ROLES: tuple[Role, ...] = get_args(Role)  # each may do what those before it may
_PREFIX = "knnmt_"
_MAX_PRESENTED = 200  # characters of a key that anybody presents


@dataclass(frozen=True, slots=True)
class Key:
    """A key as the file has it.

    sha256: of the key, in hexadecimal
    domains: that it may be used for, None for all
    per_minute: requests, None for any number
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
    """Who asks. key: None where the service has no keys"""

    key: Key | None

    @property
    def name(self) -> str:
        return "anybody" if self.key is None else self.key.name

    def require(self, role: Role, domain: str | None = None) -> None:
        """Refuse who may not do something, with a domain or at all."""
        if self.key is None:
            return
        if not self.may(role):
            raise Problem(403, "forbidden", f"this needs a key with the role {role}; this one has {self.key.role}")
        if domain is not None and not self.sees(domain):
            raise Problem(403, "forbidden", f"this key may not be used for the domain {domain!r}")

    def may(self, role: Role) -> bool:
        """Whether it has a role, or one that may do more."""
        return self.key is None or ROLES.index(self.key.role) >= ROLES.index(role)

    def sees(self, domain: str) -> bool:
        """Whether it may be used for a domain."""
        return self.key is None or self.key.domains is None or domain in self.key.domains

    @property
    def sees_all(self) -> bool:
        """Whether it may be used for every domain."""
        return self.key is None or self.key.domains is None


@dataclass(slots=True)
class _Bucket:
    """Requests that a key may still make: full at first, and filled again as time goes by."""

    left: float
    at: float = field(default_factory=time.monotonic)

    def take(self, per_minute: int) -> float:
        """Take one request, or say how many seconds it must wait."""
        now = time.monotonic()
        self.left = min(float(per_minute), self.left + (now - self.at) * per_minute / 60)
        self.at = now
        if self.left < 1:
            return (1 - self.left) * 60 / per_minute
        self.left -= 1
        return 0.0


class Access:
    """The keys of a service. file: None lets everybody do everything"""

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
        """Whether nobody needs a key."""
        return self._file is None

    def caller(self, presented: str | None) -> Caller:
        """Who presents a key; each call counts as a request of it."""
        if self._file is None:
            return Caller(None)
        if not presented:
            raise Problem(401, "no_key", "a key is needed: send it as 'Authorization: Bearer KEY'")
        found = self._found(presented)
        if found is None:
            raise Problem(401, "unknown_key", "this key is not known")
        if found.per_minute is not None:
            with self._lock:
                bucket = self._buckets.setdefault(found.sha256, _Bucket(float(found.per_minute)))
                wait = bucket.take(found.per_minute)
            if wait:
                message = f"this key may make {found.per_minute} requests a minute"
                raise Problem(429, "too_many_requests", message, retry_after=wait)
        return Caller(found)

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
        """The key that is presented. Every key is compared, each in the same time."""
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
    """The keys of a file. One that is not as it should be is refused whole: nobody gets in by a mistake."""
    try:
        content = parse_json(read_regular(file))
    except OSError as error:
        raise SettingError(f"{file}: the keys cannot be read: {error.strerror}. Make some: knnmt serve-key") from error
    except ValueError as error:
        raise InputError(f"{file}: expected keys as JSON, as `knnmt serve-key` writes them: {error}") from error
    keys = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(keys, list) or not all(isinstance(each, dict) for each in keys):
        raise InputError(f'{file}: expected {{"keys": [...]}}, as `knnmt serve-key` writes it')
    return tuple(_key(file, each) for each in keys)


def new_key(
    file: Path, name: str, role: Role, domains: Iterable[str] | None = None, per_minute: int | None = None
) -> str:
    """Add a key to a file, which only its owner can read, and return the key itself: nobody can find it out later."""
    keys = read_keys(file) if file.exists() else ()
    check(all(key.name != name for key in keys), f"{file}: has a key {name!r} already; choose another name")
    secret = _PREFIX + secrets.token_urlsafe(32)
    added = Key(name, _digest(secret), role, None if domains is None else tuple(domains), per_minute)
    content = json.dumps({"keys": [_told(key) for key in (*keys, added)]}, indent=1).encode() + b"\n"

    def write(out: Any) -> None:
        os.fchmod(out.fileno(), 0o600) if hasattr(os, "fchmod") else None
        out.write(content)

    publish_file(file, write)
    return secret


def _key(file: Path, told: dict[str, Any]) -> Key:
    domains = told.get("domains")
    texts = domains is None or (isinstance(domains, list) and all(isinstance(each, str) for each in domains))
    named = all(isinstance(told.get(each), str) for each in ("name", "sha256", "role"))
    known = told.keys() <= {"name", "sha256", "role", "domains", "per_minute"}
    if not (texts and named and known):
        raise InputError(f"{file}: a key has name, sha256, role, and it may have domains and per_minute; found another")
    return Key(
        told["name"], told["sha256"], told["role"], None if domains is None else tuple(domains), told.get("per_minute")
    )


def _told(key: Key) -> dict[str, Any]:
    told = {"name": key.name, "sha256": key.sha256, "role": key.role}
    more = {"domains": key.domains, "per_minute": key.per_minute}
    return {**told, **{name: value for name, value in more.items() if value is not None}}


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _identity(file: Path) -> tuple[int, int, int]:
    try:
        found = file.stat()
    except OSError as error:
        raise SettingError(f"{file}: the keys cannot be read: {error.strerror}") from error
    return found.st_ino, found.st_mtime_ns, found.st_size
