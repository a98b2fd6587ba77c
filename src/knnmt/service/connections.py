"""`Connections`: the open connections of a server, how long it waits for their clients, and which of them make room.

uvicorn limits the length of a request's head, but not the time in which it must arrive, and it refuses everybody while
too many connections are open. Clients that send half a request, or do not read their answers, could use up all places.
Here a connection that waits too long for its client is closed. When all places are taken, connections that wait for
their clients make room for new ones. The time that a body takes is limited where it is read (`guard.py`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

from h11 import LocalProtocolError
from uvicorn.protocols.http.h11_impl import H11Protocol

from knnmt.service.config import LEAST_BYTES, Limits

_LOOKS = 10  # in the shortest time limit
_ROOM = 50  # a 50th of the connections is closed together to make room, at least one
_PROXIES = ("127.0.0.1", "::1")  # their connections are those of many clients
_SITE_BITS = 64  # of an IPv6 address: a client usually has all addresses that begin with the same bits


class Connection(H11Protocol):
    """uvicorn's connection, which knows whether it waits for its client, and since when.

    address: the client's
    is_held: nothing is read from it yet, because it waits for a place
    """

    def __init__(self, among: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._among = among
        self.address: Hashable = None
        self.is_held = self._has_answered = False
        self.waits_since = time.monotonic()
        self._early = b""  # what came before there was a place
        self._unread, self._read, self._reading_since = 0, 0, 0.0  # bytes of the answer

    def connection_made(self, transport: Any) -> None:
        """Take a place."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # the application sends more when the client has read everything
        self.address = _site(self.client[0]) if self.client else None
        self._among.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._among.remove(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._has_answered, self.waits_since = True, time.monotonic()
        super().on_response_complete()

    def resume_writing(self) -> None:
        """Note that the client has read everything."""
        self._unread = 0
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request; close the connection if it cannot have an answer any more."""
        try:
            super().send_400_response(msg)
        except LocalProtocolError:  # uvicorn would log it, with a traceback that takes milliseconds to write
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Read what the client sends, when the connection has a place."""
        if self.is_held:  # uvloop begins to read after `connection_made`, whatever was said there
            self._early += data
            self.flow.pause_reading()
        else:
            super().data_received(data)

    def release(self) -> None:
        """Read requests from now on."""
        self.is_held, self.waits_since = False, time.monotonic()
        self.flow.resume_reading()
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    @property
    def waits_for_head(self) -> bool:
        """Whether the head of a request has to arrive next."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits_for_client(self) -> bool:
        """Whether the client has to send or read something, or waits for a place."""
        return self.waits_for_head or self.cycle.more_body or self._unread_bytes() > 0

    def is_overdue(self, now: float, limits: Limits) -> bool:
        """Whether the client took too long. Must be called often while the client reads an answer."""
        if unread := self._unread_bytes():
            if not self._unread:
                self._reading_since, self._read, self._unread = now, 0, unread
            self._read += max(0, self._unread - unread)
            self._unread = unread
            return now - self._reading_since > limits.reader_seconds + self._read / LEAST_BYTES
        self._unread = 0
        seconds = limits.idle_seconds if self._has_answered else limits.head_seconds
        return self.waits_for_head and not self.is_held and now - self.waits_since > seconds

    def end(self) -> None:
        """Close the connection, whatever the client has still to read."""
        if self.waits_for_head and not self._unread_bytes():
            self.transport.close()
        else:
            self.transport.abort()

    def _unread_bytes(self) -> int:
        """Bytes of the answer that wait in this process for the client to read others."""
        return int(self.transport.get_write_buffer_size())


class Connections:
    """The open connections of one server. Only for the thread of its event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[Connection, None] = {}  # in the order of arrival
        self._served = Counter[Hashable]()  # by address, without those that are held
        self._held: dict[Hashable, dict[Connection, None]] = {}  # by address, each in the order of arrival
        self._looking = False

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    @property
    def protocol(self) -> type[asyncio.Protocol]:
        """What uvicorn takes as `http` and calls for each connection."""
        return cast("type[asyncio.Protocol]", partial(Connection, self))

    def add(self, new: Connection) -> None:
        """Give a new connection a place, or let it wait for one."""
        if len(self._open) >= self._limits.connections:
            self._make_room()
        self._open[new] = None
        if self._has_place(new.address):
            self._served[new.address] += 1
        else:
            new.is_held = True
            self._held.setdefault(new.address, {})[new] = None
        if not self._looking:
            self._looking = True
            self._look()

    def remove(self, gone: Connection) -> None:
        """Give the place of a connection to one that waits for it."""
        if gone not in self._open:  # it was closed to make room
            return
        del self._open[gone]
        if gone.is_held:
            self._take_held(gone)
            return
        self._served[gone.address] -= 1
        if not self._served[gone.address]:
            del self._served[gone.address]
        # By address, because an attacker can have hundreds of them, and every connection that closes comes here.
        address = next(
            (each for each in (gone.address, *self._held) if each in self._held and self._has_place(each)), None
        )
        if address is not None:
            held = next(iter(self._held[address]))
            self._take_held(held)
            self._served[address] += 1
            held.release()

    def _take_held(self, connection: Connection) -> None:
        same = self._held[connection.address]
        del same[connection]
        if not same:
            del self._held[connection.address]

    def _has_place(self, address: Hashable) -> bool:
        most = self._limits.connections if address in _PROXIES else self._limits.address_connections
        return self._served[address] < most and self._served.total() < self._limits.connections

    def _make_room(self) -> None:
        """Of the connections that wait for their clients, close the oldest ones of the address that has most."""
        waiting = [each for each in self._open if each.waits_for_client]
        for each in _longest(_greediest(waiting))[: 1 + self._limits.connections // _ROOM]:
            self.remove(each)
            each.end()

    def _look(self) -> None:
        """Close connections whose clients took too long, now and again as long as there are any connections."""
        now = time.monotonic()
        for each in list(self._open):
            if each.is_overdue(now, self._limits):
                each.end()
        self._looking = bool(self._open)
        if self._looking:
            limits = self._limits
            seconds = min(limits.head_seconds, limits.idle_seconds, limits.reader_seconds) / _LOOKS
            asyncio.get_running_loop().call_later(seconds, self._look)


def _greediest(waiting: Iterable[Connection]) -> list[Connection]:
    by_address = groupby(sorted(waiting, key=lambda each: str(each.address)), attrgetter("address"))
    return max((list(same) for _, same in by_address), key=len, default=[])


def _longest(waiting: Iterable[Connection]) -> list[Connection]:
    return sorted(waiting, key=attrgetter("waits_since"))


def _site(address: str) -> str:
    """An IPv4 address; of an IPv6 address, the part that all addresses of a client share."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4 or address in _PROXIES:
        return address
    return str(ipaddress.ip_network((address, _SITE_BITS), strict=False))
