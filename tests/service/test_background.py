"""Work in the background: records wait, run, and are over, whatever their work does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from time import sleep

import pytest

from knnmt.errors import InputError
from knnmt.service.background import Background, State, UnwantedError, WorkRecord
from knnmt.service.problems import Problem

WAIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand(WorkRecord):
    """What the tests have done. place: errands of one place run one after the other"""

    place: str = ""


class Errands:
    """Work that the tests begin, and end by opening its gate; and every state that was saved."""

    def __init__(self) -> None:
        self.gates: dict[str, Event] = {}
        self.begun: list[str] = []
        self.saved: list[tuple[str, State]] = []
        self.cleared: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.work = Background[Errand](
            4,
            "errand",
            self.do,
            lambda errand, message: f"{errand.name}: {message}",
            save=lambda errand: self.saved.append((errand.id, errand.state)),
            clear=lambda errand: self.cleared.append(errand.id),
            place=lambda errand: errand.place or errand.id,
        )

    def do(self, errand: Errand) -> None:
        self.begun.append(errand.id)
        if error := self.fails.get(errand.id):
            raise error
        gate = self.gates[errand.id]
        with self.work.stopped_by(errand, gate.set):
            assert gate.wait(WAIT)

    def send(self, number: str, place: str = "") -> Errand:
        self.gates[number] = Event()
        errand = Errand(id=number, name=f"name of {number}", by="anna", place=place)
        self.work.add(errand)
        return errand

    def over(self, number: str) -> Errand:
        return self.work.over(number).result(WAIT)

    def wait_for(self, number: str) -> None:
        until(lambda: number in self.begun)


def until(holds: Callable[[], bool]) -> None:
    for _ in range(int(WAIT / 0.01)):
        if holds():
            return
        sleep(0.01)
    raise TimeoutError


@pytest.fixture
def errands() -> Iterator[Errands]:
    made = Errands()
    yield made
    made.work.close()


def test_a_record_waits_runs_and_is_done(errands: Errands) -> None:
    errands.send("a")
    errands.wait_for("a")
    errands.gates["a"].set()
    done = errands.over("a")
    assert (done.state, done.message, done.is_over) == ("done", None, True)
    assert done.ended is not None
    assert done.ended >= done.created
    assert errands.saved == [("a", "waiting"), ("a", "running"), ("a", "done")]
    assert errands.cleared == ["a"]
    assert errands.work.get("a") == done


def test_records_of_one_place_run_in_order_and_others_beside_them(errands: Errands) -> None:
    for number, place in (("a", "x"), ("b", "x"), ("c", "y")):
        errands.send(number, place)
    errands.wait_for("c")
    assert errands.begun == ["a", "c"]
    errands.gates["a"].set()
    errands.wait_for("b")
    assert [errand.state for errand in errands.work] == ["done", "running", "running"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Problem(422, "failed", "as it is"), "as it is"),
        (InputError("at /a/path"), "name of a: at /a/path"),
        (ValueError("secret"), "the service failed; its log says why"),
    ],
)
def test_an_error_becomes_the_message_of_a_record(errands: Errands, error: Exception, message: str) -> None:
    errands.fails["a"] = error
    errands.send("a")
    assert (errands.over("a").state, errands.over("a").message) == ("failed", message)


def test_what_waits_or_runs_can_be_cancelled_and_what_is_over_cannot(errands: Errands) -> None:
    running, waiting = errands.send("a", "x"), errands.send("b", "x")
    errands.wait_for("a")
    assert errands.work.cancel(waiting).state == "cancelled"
    errands.work.cancel(running)
    assert errands.over("a").state == errands.over("b").state == "cancelled"
    assert errands.begun == ["a"]
    assert errands.work.cancel(running).state == "cancelled"

    def refuse(_errand: Errand) -> None:
        raise Problem(409, "too_late", "no")

    later = errands.send("c")
    with pytest.raises(Problem, match="no"):
        errands.work.cancel(later, refuse)
    errands.gates["c"].set()
    assert errands.over("c").state == "done"


def test_a_forgotten_record_is_seen_by_nobody_and_its_work_ends(errands: Errands) -> None:
    errand = errands.send("a")
    errands.wait_for("a")
    over = errands.work.over("a")
    errands.work.forget(errand)
    assert over.result(WAIT).state == "cancelled"
    assert errands.work.get("a") is None
    until(lambda: errands.cleared == ["a"])
    with pytest.raises(UnwantedError):
        errands.work.update(errand, done=1)
    assert ("a", "cancelled") not in errands.saved


def test_what_runs_when_the_service_ends_goes_on_at_its_next_start(errands: Errands) -> None:
    for number in ("a", "b"):
        errands.send(number, "x")
    errands.wait_for("a")
    errands.work.close()
    left = list(errands.work)
    assert [errand.state for errand in left] == ["running", "waiting"]
    again = Errands()
    again.gates = {number: Event() for number in ("a", "b")}
    for gate in again.gates.values():
        gate.set()
    again.work.resume([*left, Errand(id="c", name="c", by="", state="failed")])
    assert [again.over(number).state for number in ("a", "b", "c")] == ["done", "done", "failed"]
    assert again.begun == ["a", "b"]
    assert again.cleared == ["c", "a", "b"]
    again.work.close()
