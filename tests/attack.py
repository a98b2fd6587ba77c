"""Attacks a service: `python tests/attack.py --minutes 10`, part of `make soak`.

64 honest clients ask for texts, no two of which are equal, first by themselves and then beside 16 hostile ones, on this
machine. The status is 1 if an honest answer is lost or belongs to another text, if because of the hostile clients 99 of
100 answers come more than 2 s later after the time that their own decoding takes, if memory grows by more than 5 %, or
if the service ends more than 10 s after SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

from attacking.honest import Honest
from attacking.hostile import WAYS, Hostile
from attacking.serving import Service, attacked, busy_seconds, cpu_seconds
from attacking.verdict import Observed, faults, memory_before_and_after, percentile

_UNDISTURBED = 0.05  # of the time of the attack: how long the honest clients are by themselves


def main() -> int:
    """Run, and return the exit status."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--honest", type=int, default=64, help="clients [default: 64]")
    options.add_argument("--pause", type=float, default=10.0, help="mean seconds between an answer and the next text")
    options.add_argument("--model", default="de-en", help="a model or a checkpoint [default: de-en]")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    names = [f"honest-{number}" for number in range(given.honest)]
    with TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as place:
        everybody = [*names, *(way.__name__ for way in WAYS), "watcher", "owner"]
        with attacked(Path(place), everybody, given.model) as service:
            honest, hostile, seen = Honest(service, names, given.pause), Hostile(service, given.seed), Observed()
            honest.measure_alone(names[0])
            stop, watching = Event(), Thread(target=lambda: _watch(service, seen, stop, 0.6 * given.minutes))
            honest.start()
            time.sleep(60 * given.minutes * _UNDISTURBED)
            honest.record.disturb()
            began, busy, cpu = time.monotonic(), busy_seconds(), service.seconds_of_cpu()
            for each in (hostile, watching):
                each.start()
            time.sleep(60 * given.minutes)
            honest.stop()
            passed = time.monotonic() - began
            used = [busy_seconds() - busy, service.seconds_of_cpu() - cpu, cpu_seconds(hostile.pid)]
            batches = [service.metric(f"knnmt_batch_seconds_{each}") for each in ("sum", "count")]
            stop.set()
            watching.join()
            seen.ending = service.end()
            answered = list(hostile.stop())
            _say((Path(place) / "log").read_text("utf-8")[-2_000:])
    for name, counts in answered:
        _say(f"{name:24} " + ", ".join(f"{what}: {count:,}" for what, count in sorted(counts.items())))
    record = honest.record
    late = record.late
    alone = ", ".join(f"{seconds:.2f}" for seconds in record.alone.values())
    before, after = memory_before_and_after(seen.memory)
    _say(f"{len(late):,} answers in {passed:.0f} s; alone a text took {alone} s")
    for words, seconds in (("under attack", late), ("by themselves", record.undisturbed)):
        shares = ", ".join(f"p{share} {percentile(seconds, share / 100):.2f} s" for share in (50, 90, 99, 100))
        _say(f"later than alone, {words}: {shares}")
    _say(
        "GET /metrics: " + ", ".join(f"p{share} {percentile(seen.ready, share / 100):.2f} s" for share in (50, 99, 100))
    )
    _say(f"memory: {before / 1e6:.0f} MB, at the end {after / 1e6:.0f} MB; SIGTERM: {seen.ending:.1f} s")
    _say("memory over time: " + ", ".join(f"{each / 1e6:.0f}" for each in seen.memory) + " MB")
    _say(f"CPU seconds: the service {used[1]:.0f}, the attackers {used[2]:.0f}, the whole machine {used[0]:.0f}")
    _say(f"{batches[1]:.0f} batches took {batches[0] / max(1.0, batches[1]):.2f} s each; load {os.getloadavg()[1]:.1f}")
    found = faults(record, seen)
    for fault in found:
        _say(f"FAULT: {fault}")
    return int(bool(found))


def _watch(service: Service, seen: Observed, stop: Event, seconds: float) -> None:
    """Note memory, and how long the service takes to tell it, again and again."""
    while not stop.wait(seconds):
        began = time.monotonic()
        seen.memory.append(service.metric("process_resident_memory_bytes"))
        seen.ready.append(time.monotonic() - began)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
