"""Honest clients: each asks for one text after the other, no two of which are equal, and looks at every answer."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from random import Random
from threading import Event, Lock, Thread

from attacking.serving import Service

_FORMS = (
    "Die Rechnung {number} vom {day}. Mai liegt im Ordner des Kunden.",
    "Öffnen Sie Seite {number} und wählen Sie {day} Einträge aus der Liste.",
    "Es wurden {number} Nachrichten an {day} Empfänger gesendet.",
    "Der Fehler {number} tritt nur auf, wenn {day} Fenster offen sind.",
)
_PATIENCE = 120.0  # seconds until an answer counts as lost


@dataclass
class Record:
    """What became of the texts. alone: seconds that a text of each form takes when nobody else asks

    undisturbed: seconds beyond that, for each answer while only honest clients ask
    late: the same for each answer while hostile clients ask, too
    lost, swapped: what was said instead of an answer, and answers to other texts
    """

    alone: dict[str, float] = field(default_factory=dict)
    undisturbed: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    swapped: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def disturb(self) -> None:
        """From now on, there are hostile clients, too."""
        with self.lock:
            self.undisturbed, self.late = self.late, []

    def answer(self, form: str, asked: tuple[int, int], seconds: float, status: int, content: str) -> None:
        """Count one answer."""
        text = json.loads(content)["translations"][0].get("text", "") if status == 200 else ""
        with self.lock:
            if status != 200 or not text:
                self.lost.append(f"{status}: {content[:200]}")
            elif not all(str(number) in text for number in asked):
                self.swapped.append(f"{asked}: {text}")
            else:
                self.late.append(max(0.0, seconds - self.alone.get(form, 0.0)))


class Honest:
    """Clients with a key each. pause: the mean time between an answer and the next text, in seconds"""

    def __init__(self, service: Service, names: list[str], pause: float) -> None:
        self.record = Record()
        self._service, self._pause = service, pause
        self._stop = Event()
        self._threads = [Thread(target=self._ask_often, args=(each, number)) for number, each in enumerate(names)]
        self._numbers = iter(range(10_000, 10_000_000))

    def measure_alone(self, name: str) -> None:
        """Measure how long a text of each form takes, before anybody else asks."""
        for form in _FORMS:
            found = [self._ask(name, form, Random(number)) for number in range(5)]
            self.record.alone[form] = statistics.median(found)
        self.record.late.clear()

    def start(self) -> None:
        """Let all of them ask."""
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """End when every text is answered."""
        self._stop.set()
        for each in self._threads:
            each.join()

    def _ask_often(self, name: str, seed: int) -> None:
        chance = Random(seed)
        while not self._stop.wait(chance.random() * 2 * self._pause):
            try:
                self._ask(name, chance.choice(_FORMS), chance)
            except (OSError, HTTPException) as error:
                with self.record.lock:
                    self.record.lost.append(repr(error))

    def _ask(self, name: str, form: str, chance: Random) -> float:
        connection = HTTPConnection("127.0.0.1", self._service.port, timeout=_PATIENCE)
        with self.record.lock:
            asked = next(self._numbers), chance.randint(2, 28)
        body = json.dumps({"texts": [form.format(number=asked[0], day=asked[1])]})
        headers = {"authorization": f"Bearer {self._service.keys[name]}", "content-type": "application/json"}
        began = time.monotonic()
        try:
            connection.request("POST", "/v1/translate", body, headers)
            answer = connection.getresponse()
            content = answer.read().decode()
        finally:
            connection.close()
        seconds = time.monotonic() - began
        self.record.answer(form, asked, seconds, answer.status, content)
        return seconds
