"""The service under load, beside translating the same text offline: throughput, latencies, memory.

    python benchmarks/serving.py [--clients 1 8 32 128] [--sentences 256] [--rounds 3] [--threads 2] [--device cuda]
    python benchmarks/serving.py --memory projekt.tmx      how much a job slows translation
    python benchmarks/serving.py --requests 100000         whether memory stays flat

The service, the offline translator and the load are separate processes. Only one of the first two works at a time, and
they take turns within every round, so that a slow moment of the machine affects both. Each client sends one sentence
after the other and waits for its answer; in a `burst`, every client sends one sentence at once. Results are not cached,
and no sentence is sent twice at the same time. `CPU ms` is the CPU time of a sentence: of the service, of the load
beside it, and of translating offline. On a shared machine it says more than wall-clock time, especially with
--threads 1, because threads that wait for each other spin. Default text: the German side of the development sets under
KNNMT_DATA (default ../shared). With --store, both translate with this store.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from knnmt.engine.precision import cpu_name
from knnmt_lab.scripts import argument_parser, development_sources

_LOADING_SECONDS = 5.0  # until a job has loaded its model


# Offline, in a process of its own -------------------------------------------------------------------------------------


def offline(store: str | None, device: str | None) -> None:
    """Translate the texts of each input line, and print how many seconds that took."""
    from knnmt.translator.translator import Translator

    translator = Translator(datastore=store, device=device)
    for line in sys.stdin:
        texts = json.loads(line)
        began, processor = time.perf_counter(), time.process_time()
        list(translator.stream(texts))
        done = {"seconds": time.perf_counter() - began, "processor": time.process_time() - processor}
        print(json.dumps(done), flush=True)


# The load, in a process of its own ------------------------------------------------------------------------------------


def load(port: int) -> None:
    """Send the texts of each input line from the given number of clients, and print the time of each answer."""
    for line in sys.stdin:
        asked = json.loads(line)
        texts, clients, beam = asked["texts"], asked["clients"], asked.get("beam", 5)
        began, processor = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(clients) as pool:
            shares = [texts[number::clients] for number in range(clients)]
            done = list(pool.map(client, [port] * clients, shares, [beam] * clients))
        seconds = time.perf_counter() - began
        told = {"seconds": seconds, "processor": time.process_time() - processor}
        print(json.dumps({**told, "took": [each for share in done for each in share]}), flush=True)


def client(port: int, texts: Sequence[str], beam: int) -> list[float]:
    """The time of each answer; an answer that is no translation ends the run."""
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    took = []
    for text in texts:
        began = time.perf_counter()
        body = json.dumps({"texts": [text], "beam": beam})
        connection.request("POST", "/v1/translate", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = json.loads(answer.read())
        assert answer.status == 200, content
        assert len(content["translations"]) == 1
        took.append(time.perf_counter() - began)
    connection.close()
    return took


# Measuring ------------------------------------------------------------------------------------------------------------


class Peer:
    """A process that gets lines of JSON and answers with lines."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, __file__, *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, content: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(content), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def service(store: str | None, device: str | None, place: Path, cached: int) -> Iterator[int]:
    """Run a service; yields its port."""
    on = "" if device is None else f'device = "{device}"\n'
    settings = f'port = 0\ndata = "data"\n{on}[limits]\ncached = {cached}\n'
    (place / "serve.toml").write_text(settings, encoding="utf-8")
    given = [] if store is None else ["--store", f"bench={store}"]
    command = [sys.executable, "-m", "knnmt", "serve", "--config", str(place / "serve.toml"), *given]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("knnmt: serving on "), said + process.stderr.read()
        yield int(said.partition("127.0.0.1:")[2].partition(";")[0])
        process.terminate()


def ask(port: int, method: str, path: str, body: bytes | None = None) -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(method, path, body)
    answer = connection.getresponse().read()
    connection.close()
    return answer


def megabytes(port: int) -> float:
    """The memory of the service."""
    return metric(port, "process_resident_memory_bytes") / 1e6


def metric(port: int, name: str) -> float:
    for line in ask(port, "GET", "/metrics").decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise LookupError(f"the metrics do not have {name}")


def percentile(took: Sequence[float], part: float) -> float:
    return sorted(took)[min(len(took) - 1, round(part * len(took)))]


def under_load(
    texts: list[str], store: str | None, device: str | None, counts: Sequence[int], rounds: int, place: Path
) -> None:
    alone = Peer("--as-offline", *_given("--store", store), *_given("--device", device))
    # A GPU records the steps of a batch size when it first occurs.
    first = texts if device == "cuda" else texts[:8]
    with service(store, device, place, cached=0) as port:
        senders = Peer("--as-load", str(port))
        alone.ask(first)
        for count in counts if device == "cuda" else [8]:
            senders.ask({"texts": first[: _asked(first, count)], "clients": count})
        speeds: list[float] = []
        processor: dict[str, list[float]] = {}
        rates: dict[int, list[float]] = {count: [] for count in counts}
        took: dict[tuple[str, int], list[float]] = {}
        for _ in range(rounds):
            done = alone.ask(texts)
            speeds.append(len(texts) / done["seconds"])
            print(f"offline {speeds[-1]:.1f} sentences/s", file=sys.stderr, flush=True)
            processor.setdefault("offline", []).append(done["processor"] / len(texts))
            for count in counts:
                some = texts[: _asked(texts, count)]
                before = metric(port, "process_cpu_seconds_total")
                found = senders.ask({"texts": some, "clients": count})
                used = metric(port, "process_cpu_seconds_total") - before
                processor.setdefault(f"service {count}", []).append(used / len(some))
                processor.setdefault(f"load {count}", []).append(found["processor"] / len(some))
                rates[count].append(len(some) / found["seconds"])
                print(f"{count} clients {rates[count][-1]:.1f} sentences/s", file=sys.stderr, flush=True)
                took.setdefault(("steady", count), []).extend(found["took"])
                burst = senders.ask({"texts": texts[:count], "clients": count})
                took.setdefault(("burst", count), []).extend(burst["took"])
        offline_speed = statistics.median(speeds)
        print(f"offline      {offline_speed:7.1f} sentences/s  ({', '.join(f'{each:.1f}' for each in speeds)})")
        milliseconds = {name: 1000 * statistics.median(each) for name, each in processor.items()}
        print(f"             {milliseconds['offline']:7.1f} CPU ms a sentence")
        print(
            "clients  sentences/s  of offline    p50 s   p95 s   p99 s   burst p95 s  x clients/offline"
            "  CPU ms: service  of offline  load"
        )
        for count in counts:
            rate, steady, burst = statistics.median(rates[count]), took["steady", count], took["burst", count]
            parts = "  ".join(f"{percentile(steady, part):6.3f}" for part in (0.5, 0.95, 0.99))
            last = percentile(burst, 0.95)
            of_service, of_load = (milliseconds[f"{who} {count}"] for who in ("service", "load"))
            print(
                f"{count:7}  {rate:11.1f}  {rate / offline_speed:9.0%}    {parts}  {last:12.3f}"
                f"  {last / (count / offline_speed):17.2f}  {of_service:15.1f}"
                f"  {milliseconds['offline'] / of_service:10.0%}  {of_load:4.1f}"
            )
        print(f"memory       {megabytes(port):,.0f} MB")
        senders.end()
    alone.end()


def _asked(texts: Sequence[str], clients: int) -> int:
    """How many texts the clients send together; a single client takes longer, so it sends fewer."""
    return max(clients, len(texts) if clients > 1 else len(texts) // 4)


def _given(option: str, value: str | None) -> list[str]:
    return [] if value is None else [option, value]


def with_a_job(texts: list[str], store: str | None, device: str | None, memory: Path, rounds: int, place: Path) -> None:
    with service(store, device, place, cached=0) as port:
        senders = Peer("--as-load", str(port))
        senders.ask({"texts": texts[:8], "clients": 8})
        speeds: dict[str, list[float]] = {"without": [], "with": []}
        for number in range(rounds):
            speeds["without"].append(len(texts) / senders.ask({"texts": texts, "clients": 8})["seconds"])
            sent = json.loads(
                ask(port, "POST", f"/v1/domains/job{number}/memories?name={memory.name}", memory.read_bytes())
            )
            job = sent
            while "of" not in job:  # until it has counted the pairs that it will build
                time.sleep(0.1)
                job = json.loads(ask(port, "GET", f"/v1/jobs/{sent['id']}"))
                assert job["state"] in ("waiting", "running"), job
            time.sleep(_LOADING_SECONDS)
            found = senders.ask({"texts": texts, "clients": 8})
            job = json.loads(ask(port, "GET", f"/v1/jobs/{sent['id']}"))
            if job["state"] != "running":
                print("the job ended before all was translated: send a larger memory, or less text")
            speeds["with"].append(len(texts) / found["seconds"])
            ask(port, "DELETE", f"/v1/jobs/{sent['id']}")
        without, beside = (statistics.median(speeds[name]) for name in ("without", "with"))
        print(f"{without:.1f} sentences/s without a job, {beside:.1f} beside one: {beside / without:.0%}")
        senders.end()


def many_requests(texts: list[str], store: str | None, device: str | None, requests: int, place: Path) -> None:
    short = sorted(texts, key=len)[: max(1, len(texts) // 4)]
    with service(store, device, place, cached=100) as port:
        senders = Peer("--as-load", str(port))
        for done in range(10):
            repeated = [short[number % len(short)] for number in range(requests // 10)]
            found = senders.ask({"texts": repeated, "clients": 8, "beam": 1})
            print(
                f"{(done + 1) * (requests // 10):9,} requests  {megabytes(port):8,.1f} MB  "
                f"{len(repeated) / found['seconds']:6.0f} a second",
                flush=True,
            )
        senders.end()


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--text", type=Path, help="a file with a sentence a line")
    parser.add_argument("--store")
    parser.add_argument("--device", help="of the model; by default as the service chooses it")
    parser.add_argument("--memory", type=Path, help="a memory to send while others translate")
    parser.add_argument("--requests", type=int, help="how many short requests to send, looking at the memory")
    parser.add_argument("--as-offline", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--as-load", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_offline:
        offline(asked.store, asked.device)
        return
    if asked.as_load is not None:
        load(asked.as_load)
        return
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    if asked.text is not None:
        texts = list(dict.fromkeys(asked.text.read_text(encoding="utf-8").splitlines()))[: asked.sentences]
    else:
        texts = development_sources(asked.sentences)
    print(f"{len(texts)} sentences, {asked.threads} threads, {cpu_name()}")
    with tempfile.TemporaryDirectory() as place:
        if asked.memory is not None:
            with_a_job(texts, asked.store, asked.device, asked.memory, asked.rounds, Path(place))
        elif asked.requests is not None:
            many_requests(texts, asked.store, asked.device, asked.requests, Path(place))
        else:
            under_load(texts, asked.store, asked.device, asked.clients, asked.rounds, Path(place))


if __name__ == "__main__":
    main()
