"""Sixteen hostile clients, each with its own way to harm a service. Nothing leaves this machine."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from random import Random
from threading import Event, Thread

from attacking.serving import Service
from support.worst_cases import documents, texts

_MOST = 20_000  # characters of a text
_SOCKETS = 3_000  # file descriptors that may be open
_CODECS = ("idna", "punycode", "undefined", "rot13", "base64", "zlib", "unicode_escape")
_PAUSE = 0.2  # seconds between two rounds of a client


@dataclass
class Attacker:
    """A hostile client: its address, its key if it has one, and what it was answered."""

    name: str
    port: int
    address: str
    key: str
    owner: str
    store: Path
    stop: Event
    chance: Random
    seen: Counter[str] = field(default_factory=Counter)

    def connected(self, seconds: float = 60.0) -> socket.socket:
        """A connection from its own address."""
        made = socket.socket()
        made.settimeout(seconds)
        try:
            made.bind((self.address, 0))
            made.connect(("127.0.0.1", self.port))
        except BaseException:
            made.close()
            raise
        return made

    def send(self, request: bytes, seconds: float = 60.0) -> bytes:
        """Send anything, and return the beginning of the answer. The status is counted."""
        with self.connected(seconds) as connection:
            with suppress(ConnectionError):  # refused while the body is on its way
                connection.sendall(request)
            said = b""
            while b"\r\n\r\n" not in said and (piece := connection.recv(1 << 16)):
                said += piece
            self.seen[said[9:12].decode("latin-1") or "closed"] += 1
            while len(said) < 1 << 22 and not self._is_whole(said) and (piece := connection.recv(1 << 20)):
                said += piece
        return said

    def _is_whole(self, said: bytes) -> bool:
        head, _, body = said.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return not length.isdigit() or len(body) >= int(length)

    def ask(self, method: str, path: str, body: bytes = b"", *, key: str | None = None, **headers: str) -> bytes:
        """Send a request, with its key or another; an empty key is none."""
        return self.send(self.request(method, path, body, key=key, **headers))

    def request(self, method: str, path: str, body: bytes = b"", *, key: str | None = None, **headers: str) -> bytes:
        """A request as it is sent."""
        secret = self.key if key is None else key
        told = {"host": "localhost", "content-length": str(len(body)), "content-type": "application/json"}
        told |= {"authorization": f"Bearer {secret}"} if secret else {}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body

    def translate(self, domain: str = "base", **asked: object) -> bytes:
        """Have texts translated."""
        return self.ask("POST", f"/d/{domain}/v1/translate", json.dumps(asked).encode())

    def together(self, works: Sequence[Callable[[], object]]) -> None:
        """Do several things at the same time."""
        threads = [Thread(target=self.quietly, args=(work,)) for work in works]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def quietly(self, work: Callable[[], object]) -> None:
        """Do something that may fail: an attacker goes on."""
        try:
            work()
        except (OSError, ValueError) as error:
            self.seen[type(error).__name__] += 1


def slow_texts(client: Attacker) -> None:
    """Texts that patterns and loops could be slow to read."""
    for _, make in client.chance.sample(list(texts(client.chance.randrange(1 << 30), 50)), 5):
        text = make(_MOST)[:_MOST]
        client.translate(texts=[text], beam=1, max_tokens=4, tags=client.chance.choice(["auto", "xml", "html"]))
        client.ask("POST", "/v1/sentences", json.dumps({"text": text}).encode())


def slow_texts_of_dialects(client: Attacker) -> None:
    """The same by other protocols, with glossaries, explanations and matches."""
    for _, make in client.chance.sample(list(texts(client.chance.randrange(1 << 30), 50)), 3):
        text = make(_MOST)[:_MOST]
        tagged = {"text": [text], "target_lang": "EN", "tag_handling": client.chance.choice(["xml", "html"])}
        client.ask("POST", "/v2/translate", json.dumps(tagged).encode())
        client.ask("POST", "/translate", json.dumps({"q": text, "source": "auto", "target": "en"}).encode())
        client.ask("POST", "/d/software/v1/match", json.dumps({"texts": [text], "at_least": 1, "limit": 100}).encode())
        terms = [{"source": each, "target": "end"} for each in dict.fromkeys(text.split()[:200]) if len(each) <= 500]
        client.translate(texts=[text[:2_000]], beam=1, max_tokens=4, glossary=terms)


def slow_documents(client: Attacker) -> None:
    """Documents that readers could be slow to read."""
    _, name, make = client.chance.choice(list(documents()))
    client.ask("POST", f"/v1/documents?name={name}", make(client.chance.choice([10_000, 100_000])))


def uploads_without_a_key(client: Attacker) -> None:
    """Files for routes that take them, from nobody."""
    for path in ("/translate_file", "/v1/documents?name=a.txt", "/v2/document", "/v1/domains/new/memories?name=a.tsv"):
        client.ask("POST", path, bytes(1 << 20), key="", content_type="application/octet-stream")
        head = client.request("POST", path, key="", content_length=str(300 << 20))
        client.send(head + bytes(1 << 18))


def made_up_methods(client: Attacker) -> None:
    """Methods and addresses that nobody has used before."""
    for _ in range(50):
        made = "".join(client.chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=12))
        client.ask(made, "/metrics")
        client.ask("GET", f"/{made.lower()}")


def long_texts(client: Attacker) -> None:
    """Three long texts with the widest beam, at the same time."""
    words = [f"Die {client.chance.randrange(10**6)} Dateien in dem Ordner wurden gestern gelesen" for _ in range(250)]
    text = ". ".join(words)[: _MOST - 1] + "."
    together = [lambda number=number: client.translate(texts=[f"{number} {text}"[:_MOST]], beam=16) for number in "123"]
    client.together(together)


def many_documents(client: Attacker) -> None:
    """48 documents at once."""
    numbers = [client.chance.randrange(10**6) for _ in range(100)]
    content = "".join(f'msgid "Die Datei {number} wurde gelesen."\nmsgstr ""\n\n' for number in numbers).encode()
    for _ in range(48):
        client.ask("POST", "/v1/documents?name=a.po", content)
    client.stop.wait(20)


def half_sent(client: Attacker) -> None:
    """A thousand requests whose second half does not come."""
    with ExitStack() as stack:
        whole = client.request("POST", "/v1/translate", json.dumps({"texts": ["Ja"]}).encode())
        for _ in range(1_000):
            connection = stack.enter_context(client.connected())
            connection.sendall(whole[: client.chance.randrange(len(whole))])
            client.seen["open"] += 1
        client.stop.wait(5)


def slow_readers(client: Attacker) -> None:
    """Requests with long answers that nobody reads."""
    with ExitStack() as stack:
        for _ in range(50):
            connection = stack.enter_context(client.connected())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.sendall(client.request("GET", "/openapi.json") * 50)
            client.seen["open"] += 1
        client.stop.wait(10)


def other_sites(client: Attacker) -> None:
    """Links of other sites that would translate."""
    for path in ("/translate?q=Ja&langpair=de%7Cen", "/translate?q=Ja&source=de&target=en", "/de/en/unit/Ja"):
        client.ask("GET", path, sec_fetch_site="cross-site", sec_fetch_mode="navigate")
        client.ask("GET", path, origin="https://example.org")


def shrinking_stores(client: Attacker) -> None:
    """Files of an open store that shrink and grow again, while its domain is asked."""
    files = sorted((client.store / "segments").iterdir(), key=lambda path: path.stat().st_size)
    file, whole = files[-1], files[-1].read_bytes()
    try:
        for size in (0, 4_096, len(whole) - 1):
            os.truncate(file, size)
            client.translate("shrinking", texts=[f"Die Seite {client.chance.random()} wurde gedruckt."], beam=1)
            with tempfile.NamedTemporaryFile() as copied:
                Path(copied.name).write_bytes(whole)
                shutil.copyfile(copied.name, file)
    finally:
        file.write_bytes(whole)


def strange_codecs(client: Attacker) -> None:
    """Documents and forms that state codecs which are no encodings of text."""
    for codec in _CODECS:
        page = f'<?xml version="1.0" encoding="{codec}"?><xliff version="1.2"/>'.encode()
        catalog = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={codec}\\n"\n\nmsgid "Ja"\nmsgstr ""\n'.encode()
        client.ask("POST", "/v1/documents?name=a.xlf", page)
        client.ask("POST", "/v1/documents?name=a.po", catalog)
        client.ask("POST", "/translate", b"q=Ja&source=de&target=en", content_type=f"text/plain; charset={codec}")


def broken_requests(client: Attacker) -> None:
    """Requests that are none, or two at once."""
    json_bombs = [b"[" * 100_000, b'{"texts": ' + b"[" * 100_000, b'{"texts": ["' + b"\\ud800" * 1_000 + b'"]}']
    for body in json_bombs:
        client.ask("POST", "/v1/translate", body)
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 10_000 + b"\r\n")
    both = client.request("POST", "/v1/translate", transfer_encoding="chunked", content_length="5")
    client.send(both + b"0\r\n\r\nGET /health HTTP/1.1\r\n\r\n")
    client.send(b"\x16\x03\x01" + bytes(100) + b"\r\n\r\n")


def floods_of_texts(client: Attacker) -> None:
    """As many texts as a request may have, in several requests at the same time."""
    requests = [[f"Die Datei {client.chance.random()} wurde gelesen." for _ in range(1_000)] for _ in range(4)]
    client.together([lambda mine=mine: client.translate(texts=mine, beam=2, timeout_seconds=20) for mine in requests])  # type: ignore[misc]


def hanging_up(client: Attacker) -> None:
    """Requests whose clients are gone before the answer."""
    for number in range(20):
        with client.connected() as connection:
            asked = {"texts": [f"Der Vorgang {client.chance.random()} dauert {number} Tage."] * 20, "beam": 8}
            body = json.dumps(asked).encode()
            connection.sendall(client.request("POST", "/v1/translate", body))
            client.seen["gone"] += 1
        client.stop.wait(0.2)


def used_addresses(client: Attacker) -> None:
    """One address for an upload, used six times at the same time, with a memory that is none."""
    asked = {"source_file": {"file_name": "a.tmx", "content_length": 20}, "parameters": {"display_name": "stolen"}}
    said = client.ask("POST", "/v3/translation_memories/import", json.dumps(asked).encode(), key=client.owner)
    with suppress(ValueError, KeyError):
        path = "/" + json.loads(said.partition(b"\r\n\r\n")[2])["upload_url"].split("/", 3)[3]
        client.together([lambda: client.ask("PUT", path, b"<tmx>" + bytes(20), key="")] * 6)
    client.stop.wait(5)


WAYS: tuple[Callable[[Attacker], None], ...] = (
    slow_texts,
    slow_texts_of_dialects,
    slow_documents,
    uploads_without_a_key,
    made_up_methods,
    long_texts,
    many_documents,
    half_sent,
    slow_readers,
    other_sites,
    shrinking_stores,
    strange_codecs,
    broken_requests,
    floods_of_texts,
    hanging_up,
    used_addresses,
)


class Hostile:
    """All hostile clients, in a process of their own."""

    def __init__(self, service: Service, seed: int) -> None:
        context = get_context("spawn")
        self._stop, self._said = context.Event(), context.Queue()
        given = (service.port, service.keys, service.store, seed, self._stop, self._said)
        self._process = context.Process(target=_attack, args=given)

    def start(self) -> None:
        """Attack from now on."""
        self._process.start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid or 0

    def stop(self) -> Iterator[tuple[str, dict[str, int]]]:
        """End, and return what each was answered: status codes and errors, with how often."""
        self._stop.set()
        with suppress(Exception):
            yield from self._said.get(timeout=120)
        self._process.join(10)
        self._process.kill()


def _attack(
    port: int, keys: dict[str, str], store: Path, seed: int, stop: Event, said: Queue[list[tuple[str, dict[str, int]]]]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(_SOCKETS, hard)), hard))
    clients = [
        Attacker(
            way.__name__,
            port,
            f"127.0.1.{number}",
            keys[way.__name__],
            keys["owner"],
            store,
            stop,
            Random(seed + number),
        )
        for number, way in enumerate(WAYS, 1)
    ]
    threads = [Thread(target=_go_on, args=(each, way), daemon=True) for each, way in zip(clients, WAYS, strict=True)]
    for each in threads:
        each.start()
    stop.wait()
    until = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    said.put([(each.name, dict(each.seen)) for each in clients])


def _go_on(client: Attacker, way: Callable[[Attacker], None]) -> None:
    while not client.stop.is_set():
        client.quietly(lambda: way(client))
        client.seen["rounds"] += 1
        client.stop.wait(_PAUSE)
