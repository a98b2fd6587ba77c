"""Kills a command again and again, and looks after each kill.

    python -m support.killing COMMAND CHECKPOINT PLACE KILLS SEED

Half of the kills come at the n-th call that opens, syncs, renames, removes or cuts a file, half at any time. Children
are forked from one process that has imported everything. After each kill the store must be, whole and verified, what
it was before or what the command makes of it. A later run, sometimes killed as well, must end with the very files that
a command leaves that nobody disturbed. Prints how many kills left the store as before, and how many changed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import torch

from knnmt.adapting import adapt as adapting
from knnmt.adapting import tune as tuning
from knnmt.adapting.holding_out import plan
from knnmt.adapting.verification import problems_beside
from knnmt.calibration.index_choice import prepare
from knnmt.cli.tune import tune
from knnmt.datastore import slices
from knnmt.datastore.combining import merge_stores
from knnmt.datastore.store import Datastore, matching
from knnmt.errors import DatastoreExistsError
from knnmt.index.saved import read_saved
from knnmt.retrieval.profiles import default_profile, read_profiles
from knnmt.translator.translator import Translator
from support.datastore_pairs import some_pairs

_CALLS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
_NEVER = 10**9
State = tuple[object, ...]


class Command:
    """A command, the store it begins with, and what undisturbed runs make of that: once, and once more."""

    def __init__(self, name: str, checkpoint: Path, place: Path) -> None:
        self._checkpoint, self._place = checkpoint, place
        self._translator = Translator(checkpoint, device="cpu")
        self.run: Callable[[Path], object] = getattr(self, f"_{name}")
        (place / "0").mkdir()
        if name == "merge":
            for number, part in enumerate(self._parts):
                Datastore.build(part, some_pairs(40, start=40 * number), self._translator.engine)
            Datastore.open(self._parts[0]).remove(matching(origin="own.tsv#7"))
        if name not in ("build", "adapt", "merge"):
            self._make(place / "0" / "s")
        self.states = [state(place / "0")]
        for turn in ("1", "2"):
            shutil.copytree(place / str(int(turn) - 1), place / turn)
            calls, seconds = child(lambda turn=turn: self.run(place / turn / "s"), place / turn)  # type: ignore[misc]
            if turn == "1":
                self.calls, self.seconds = calls, seconds
            self.states.append(state(place / turn))
        self.files = [files(place / turn) for turn in ("0", "1", "2")]

    def begin(self, number: int) -> Path:
        """A place of its own with the store as it is at first."""
        return Path(shutil.copytree(self._place / "0", self._place / f"kill{number}"))

    def _make(self, store: Path) -> None:
        made = Datastore.build(store, some_pairs(60), self._translator.engine)
        for number in range(3):
            made.add(some_pairs(1, "live", number), self._translator.engine)
        made.remove(matching(origin="live#1"))
        prepare(made, self._translator.engine, kinds=["pq4"])
        made.add(some_pairs(1, "late"), self._translator.engine)

    def _build(self, store: Path) -> None:
        if store.exists():  # a build is refused; the next writer clears up
            Datastore.open(store).remove(matching(origin="none"))
        else:
            Datastore.build(store, some_pairs(60), self._translator.engine)

    @property
    def _parts(self) -> list[Path]:
        return [self._place / "part-1", self._place / "part-2"]

    def _merge(self, store: Path) -> None:
        if store.exists():  # as above
            Datastore.open(store).remove(matching(origin="none"))
        else:
            merge_stores([Datastore.open(part) for part in self._parts], store)

    def _add(self, store: Path) -> None:
        Datastore.open(store).add(some_pairs(3, "added"), self._translator.engine)

    def _remove(self, store: Path) -> None:
        Datastore.open(store).remove(matching(origin="own.tsv#7"))

    def _replace(self, store: Path) -> None:
        Datastore.open(store).replace(matching(origin="live#2"), some_pairs(2, "new"), self._translator.engine)

    def _compact(self, store: Path) -> None:
        Datastore.open(store).compact()

    def _index(self, store: Path) -> None:
        prepare(Datastore.open(store), self._translator.engine, kinds=["pq4"])

    def _adapt(self, store: Path) -> None:
        with suppress(DatastoreExistsError):
            adapting.adapt(plan(lambda: some_pairs(420)), store, model=self._translator, sample=1)

    def _tune(self, store: Path) -> None:
        text = self._place / "development.tsv"
        if not text.exists():
            lines = [f"{pair.source}\t{pair.target}\n" for pair in some_pairs(12, start=900)]
            text.write_text("".join(lines), encoding="utf-8")
        with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing):
            tune(store, development=text, model=str(self._checkpoint), device="cpu", threads=1)


def state(place: Path) -> State:
    """All that a store says, every byte of it checked; nothing where there is none."""
    if not (place / "s").exists():
        return ()
    store = Datastore.open(place / "s", verify=True)
    assert list(problems_beside(store, [])) == []
    saved = read_saved(store)
    profiles = sorted(read_profiles(store.path)), default_profile(store.path)
    return store.manifest.generation, tuple(store.pairs()), saved and (saved.kind, saved.generation), profiles


def files(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


def child(
    run: Callable[[], object], place: Path, last: int = _NEVER, seconds: float | None = None
) -> tuple[int, float]:
    """Run in a child, killed at its last file call or after that time; how many calls it made, and how long it took.

    The calls are -1 where it was killed.
    """
    reading, writing = os.pipe()
    started = time.monotonic()
    number = os.fork()
    if number == 0:
        _in_child(run, place, last, writing)
    os.close(writing)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(number, signal.SIGKILL)
    ended = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert ended in (0, -signal.SIGKILL), said
    return (int(said) if ended == 0 else -1), time.monotonic() - started


def _in_child(run: Callable[[], object], place: Path, last: int, pipe: int) -> NoReturn:
    calls = 0

    def hear(event: str, given: tuple[Any, ...]) -> None:
        nonlocal calls
        if event in _CALLS and (event != "open" or str(given[0]).startswith(str(place))):
            calls += 1
            if calls == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sync = os.fsync

    def fsync(descriptor: int) -> None:
        hear("os.rename", ())  # which the system does not tell hooks of
        sync(descriptor)

    status = 1
    try:
        setattr(os, "fsync", fsync)  # noqa: B010
        sys.addaudithook(hear)
        run()
        os.write(pipe, str(calls).encode())
        status = 0
    except BaseException:
        os.write(pipe, traceback.format_exc().encode())
    finally:
        os._exit(status)


def kill(command: Command, place: Path, chance: Random, at_call: bool) -> bool:
    """Whether a run was killed, before it had ended."""
    if at_call:
        return child(lambda: command.run(place / "s"), place, last=chance.randint(1, command.calls))[0] < 0
    return child(lambda: command.run(place / "s"), place, seconds=chance.uniform(0, command.seconds))[0] < 0


def kill_often(command: Command, kills: int, chance: Random) -> Counter[str]:
    done: Counter[str] = Counter()
    number = 0
    while done["before"] + done["after"] < kills:
        place, turn = command.begin(number), 0
        number += 1
        while True:
            if kill(command, place, chance, at_call=number % 2 == 0):
                after = _reached(command, place, turn)
                done["after" if after else "before"] += 1
                turn += after
            else:
                done["ended first"] += 1
                turn += 1
            if turn or chance.random() < 0.6:
                break
        if turn < 2:
            child(lambda: command.run(place / "s"), place)  # noqa: B023
            turn += 1
        assert state(place) == command.states[turn], f"{place}: not what undisturbed runs make"
        assert files(place) == command.files[turn], files(place) ^ command.files[turn]
        shutil.rmtree(place)
    return done


def _reached(command: Command, place: Path, turn: int) -> bool:
    """Whether a killed run had taken effect; a store that is neither as before nor as after is an error."""
    found = state(place)
    assert found in command.states[turn : turn + 2], f"{place}: neither as before nor as after"
    return found != command.states[turn]


def main(name: str, checkpoint: str, place: str, kills: str, seed: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    slices.SLICE_ENTRIES = 400  # several slices of few pairs
    tuning.CACHE_PAIRS = 1  # a random model ends no sentence early
    command = Command(name, Path(checkpoint), Path(place))
    started = time.monotonic()
    done = kill_often(command, int(kills), Random(int(seed)))
    seconds = time.monotonic() - started
    sys.stdout.write(f"{name} {done['before']} {done['after']} {done['ended first']} {command.calls} {seconds:.0f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
