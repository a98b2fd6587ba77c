"""`Connections`: the open connections of a server, how long it waits for their clients, and which of them make room.

uvicorn limits the length of a request's head, but not the time in which it must arrive, and it refuses everybody while
too many connections are open. Clients that send half a request, or do not read their answers, could use up all places.
Here a connection that waits too long for its client is closed. When all places are taken, connections that wait for
their clients make room for new ones. The time that a body takes is limited where it is read (`guard.py`).

A body in chunks of one byte takes thousands of times as long to read as another: seconds for each megabyte, in which
nobody else would be answered. So what comes in chunks is read piece by piece, and addresses take turns.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
import weakref
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

from h11 import LocalProtocolError
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from knnmt.service.config import LEAST_BYTES, Limits

_LOOKS = 10  # in the shortest time limit
_ROOM = 50  # a 50th of the connections is closed together to make room, at least one
_PIECE = 4_096  # bytes that are read at once of a request whose length is not known; some milliseconds at most
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
        self._early = b""  # what came before there was a place, or before the connection's turn
        self._unread, self._read, self._reading_since = 0, 0, 0.0  # bytes of the answer

    def connection_made(self, transport: Any) -> None:
        """Take a place."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self)
        transport.set_write_buffer_limits(high=0)  # the application sends more when the client has read everything
        self.address = site_of(self.client[0]) if self.client else None
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
        """Read what the client sends, when the connection has a place, and in pieces if that may take long."""
        if self.is_held or self._early:  # uvloop begins to read after `connection_made`, whatever was said there
            self._early += data
            self.flow.pause_reading()
        else:
            self._read_piece(data)

    def read_on(self) -> None:
        """Read the next piece of what has come."""
        data, self._early = self._early, b""
        self.flow.resume_reading()
        if data and not self.transport.is_closing():
            self._read_piece(data)

    def _read_piece(self, data: bytes) -> None:
        size = len(data) if self._knows_length else _PIECE
        super().data_received(data[:size])
        if size < len(data) and self._knows_length:
            super().data_received(data[size:])
        elif size < len(data):
            self._early = data[size:]
            self.flow.pause_reading()
            self._among.let_read_on(self)

    @property
    def _knows_length(self) -> bool:
        """Whether the body of a request is read whose length was stated: it needs few steps."""
        return not self.waits_for_head and all(name != b"transfer-encoding" for name, _ in self.headers)

    @property
    def has_early(self) -> bool:
        """Whether something has come that is not read yet."""
        return bool(self._early)

    def release(self) -> None:
        """Read requests from now on."""
        self.is_held, self.waits_since = False, time.monotonic()
        self.read_on()

    @property
    def waits_for_head(self) -> bool:
        """Whether the head of a request has to arrive next."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits_for_client(self) -> bool:
        """Whether the client has to send or read something, or waits for a place."""
        return self.waits_for_head or self.cycle.more_body or self.unread_bytes > 0

    def is_overdue(self, now: float, limits: Limits) -> bool:
        """Whether the client took too long. Must be called often while the client reads an answer."""
        if unread := self.unread_bytes:
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
        if self.waits_for_head and not self.unread_bytes:
            self.transport.close()
        else:
            self.transport.abort()

    @property
    def unread_bytes(self) -> int:
        """Bytes of the answer that wait in this process for the client to read others."""
        return int(self.transport.get_write_buffer_size())


class _Flow(FlowControl):
    """uvicorn's flow control, which does not read on while something that has come is not read yet."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        super().__init__(transport)
        self._connection = weakref.ref(connection)  # without cycles, connections that are gone take no memory

    def resume_reading(self) -> None:
        """Read on."""
        connection = self._connection()
        if connection is None or not connection.has_early:
            super().resume_reading()


class Connections:
    """The open connections of one server. Only for the thread of its event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[Connection, None] = {}  # in the order of arrival
        self._served = Counter[Hashable]()  # by address, without those that are held
        self._held: dict[Hashable, dict[Connection, None]] = {}  # by address, each in the order of arrival
        self._looking = False
        self._reading: dict[Hashable, dict[Connection, None]] = {}  # by address, those that have more to read

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

    def let_read_on(self, connection: Connection) -> None:
        """Give a connection its next turn to read: after everything else that is due, one of each address."""
        if not self._reading:
            asyncio.get_running_loop().call_soon(self._take_turns)
        self._reading.setdefault(connection.address, {})[connection] = None

    def _take_turns(self) -> None:
        reading, self._reading = self._reading, {}
        for same in reading.values():
            first = next(iter(same))
            del same[first]
            for each in same:
                self.let_read_on(each)
            first.read_on()

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

    def _let_memory_go(self) -> None:
        """If answers that clients have not read take too much memory, close connections of the address with most."""
        unread = {each: each.unread_bytes for each in self._open if each.unread_bytes}
        while sum(unread.values()) > self._limits.unread_bytes:
            of_address = Counter[Hashable]()
            for each, count in unread.items():
                of_address[each.address] += count
            [(most, _)] = of_address.most_common(1)
            largest = max((each for each in unread if each.address == most), key=unread.__getitem__)
            del unread[largest]
            largest.end()

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
        self._let_memory_go()
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


def site_of(address: str) -> str:
    """An IPv4 address; of an IPv6 address, the part that all addresses of a client share."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4 or address in _PROXIES:
        return address
    return str(ipaddress.ip_network((address, _SITE_BITS), strict=False))
