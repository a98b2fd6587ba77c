"""The attacked service in a process of its own, and what it says of itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.store import Datastore
from knnmt.engine.loading import load_engine
from knnmt.service.access import new_key

STORES = ("software", "shrinking")  # the second is the one whose files the attackers cut
_PAIRS = 400
_THINGS = ("Datei", "Seite", "Tabelle", "Zeile", "Nachricht", "Vorlage", "Verbindung", "Sicherung")
_DEEDS = ("gelöscht", "gespeichert", "geöffnet", "verschoben", "kopiert", "gedruckt", "geprüft", "gesendet")


@dataclass(frozen=True)
class Service:
    """A running service. store: the one that attackers cut"""

    process: subprocess.Popen[bytes]
    port: int
    keys: dict[str, str]
    store: Path

    def end(self, most: float = 60.0) -> float:
        """The seconds from SIGTERM to the end of the process, at most so many."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(most)
        except subprocess.TimeoutExpired:
            return most
        return time.monotonic() - began

    def metric(self, name: str) -> float:
        """One of its metrics without labels."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", "/metrics", headers={"authorization": f"Bearer {self.keys['watcher']}"})
            said = connection.getresponse().read().decode()
        finally:
            connection.close()
        return float(said.partition(f"\n{name} ")[2].partition("\n")[0])

    def seconds_of_cpu(self) -> float:
        """The CPU time that the process has taken."""
        return cpu_seconds(self.process.pid)


def cpu_seconds(process: int) -> float:
    """The CPU time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """The CPU time of everything on the machine."""
    user, nice, system = map(int, Path("/proc/stat").read_text("ascii").split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


@contextmanager
def attacked(place: Path, names: list[str], model: str) -> Iterator[Service]:
    """A service with two stores and a key for each name, with the limits that it has by default."""
    pairs = [
        SegmentPair(f"Die {thing} {number} wurde {deed}.", f"{thing} {number}: {deed}", f"m#{number}")
        for number, (thing, deed) in enumerate((a, b) for _ in range(_PAIRS // 64 + 1) for a in _THINGS for b in _DEEDS)
    ][:_PAIRS]
    engine = load_engine(model, device="cpu")
    first = Datastore.build(place / STORES[0], pairs, engine, BuildConfig("de", "en")).path
    shutil.copytree(first, place / STORES[1])
    keys = {name: new_key(place / "keys.json", name, "admin" if name == "owner" else "translate") for name in names}
    command = [sys.executable, "-m", "knnmt", "serve", "--model", model, "--port", "0", "--data", str(place / "data")]
    command += ["--keys", str(place / "keys.json"), "--default", STORES[0]]
    command += [f"--store={name}={place / name}" for name in STORES]
    # With one thread, it would decode one batch at a time, and texts would wait for costly ones.
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with (place / "log").open("wb") as log, subprocess.Popen(command, stderr=log, env=environment) as process:
        try:
            yield Service(process, _port(place / "log", process), keys, place / STORES[1])
        finally:
            process.kill()


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    while True:
        said = log.read_text("utf-8")
        if "serving on http://127.0.0.1:" in said:
            return int(said.partition("127.0.0.1:")[2].partition(";")[0])
        if process.poll() is not None:
            raise AssertionError(f"the service did not start: {said}")
        time.sleep(0.05)
