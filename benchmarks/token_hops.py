"""The cost of asking another process at every token: a round trip over the network, without any search.

    python benchmarks/token_hops.py [--rows 5] [--dim 320] [--k 8] [--times 2000]

A process on this machine answers at once. A request has the states of one step of beam search, (rows, dim) float32. An
answer has k neighbours for each row: distances, tokens and ids. "TCP" sends the bare bytes over a connection that stays
open; "HTTP" sends the same as the body of a request, with the standard library at both ends. A network in one room adds
about 0.1 ms, and a database adds its search. Times are medians in milliseconds, and the smallest.
"""

from __future__ import annotations

import http.client
import socket
import statistics
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing import get_context

from knnmt_lab.scripts import argument_parser, milliseconds, print_header, print_row


def answer_tcp(asked: int, answered: int, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while received(connection, asked):
                connection.sendall(bytes(answered))


def answer_http(answered: int, port: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:  # the name that the library calls
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(answered))
            self.end_headers()
            self.wfile.write(bytes(answered))

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


def received(connection: socket.socket, count: int) -> bool:
    left = count
    while left:
        some = connection.recv(left)
        if not some:
            return False
        left -= len(some)
    return True


def connected(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)


def measured(name: str, ask: Callable[[], object], times: int) -> None:
    taken = milliseconds(ask, times)
    print_row(name, f"{statistics.median(taken):.3f}", f"{min(taken):.3f}")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rows", type=int, default=5)
    parser.add_argument("--dim", type=int, default=320)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--times", type=int, default=2000)
    parser.add_argument("--port", type=int, default=18765)
    arguments = parser.parse_args()
    asked = bytes(4 * arguments.rows * arguments.dim)
    answered = arguments.rows * arguments.k * (4 + 4 + 8)
    context = get_context("spawn")
    print(f"{len(asked):,} bytes asked, {answered:,} answered")
    print_header("way", "median ms", "smallest")
    others = [
        context.Process(target=answer_tcp, args=(len(asked), answered, arguments.port), daemon=True),
        context.Process(target=answer_http, args=(answered, arguments.port + 1), daemon=True),
    ]
    for other in others:
        other.start()
    with connected(arguments.port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def over_tcp() -> None:
            connection.sendall(asked)
            received(connection, answered)

        measured("TCP", over_tcp, arguments.times)
    connected(arguments.port + 1).close()
    client = http.client.HTTPConnection("127.0.0.1", arguments.port + 1)

    def over_http() -> None:
        client.request("POST", "/", asked)
        client.getresponse().read()

    measured("HTTP", over_http, arguments.times)
    for other in others:
        other.terminate()


if __name__ == "__main__":
    main()
