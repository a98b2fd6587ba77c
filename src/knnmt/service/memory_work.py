"""The work of a job with a memory, in its own process: `python -m knnmt.service.memory_work`.

This process, and not the service, reads a file that somebody sent, so a malicious file can harm only this process. It
runs at a lower priority, so that translation goes on, and it can be ended at any moment. The first line of its input is
a `MemoryWork` as JSON. The end of the input means that the service is gone, and ends the process. Its output has lines
of JSON: the progress, and finally the result.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from knnmt.adapting.adapt import adapt
from knnmt.adapting.build import build
from knnmt.adapting.holding_out import plan
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.building import BuildConfig
from knnmt.datastore.lock import while_unlocked
from knnmt.datastore.slices import too_long_for
from knnmt.datastore.store import Datastore
from knnmt.datastore.unfinished import is_unfinished
from knnmt.documents.memory_languages import model_for_memories
from knnmt.documents.memory_reading import MemoryReading
from knnmt.engine.base import Engine
from knnmt.engine.loading import load_engine
from knnmt.errors import InputError, KnnmtError, SettingError
from knnmt.progress import Progress, ignore
from knnmt.records import as_record, parse_json
from knnmt.service.child_process import end_with_the_service
from knnmt.service.job_records import work_beside
from knnmt.translator.translator import Translator

_LOCKED_SECONDS = 30.0  # the process of a killed service may live this much longer
_HELD = "already in the domain"
Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWork:
    """The work to do.

    file: the memory
    name: the sender's name of it
    store: the store to make
    model: None for the shipped one for the languages of the memory
    domain: the existing store that the pairs are for, if any; pairs that it already holds are left out
    pairs: at most this many
    unpacked_bytes: of the file, at most
    """

    file: str
    name: str
    store: str
    domain: str | None
    model: str | None
    device: str
    dtype: str
    source_language: str | None
    target_language: str | None
    format: str | None
    skip_malformed: bool
    unfinished: bool
    pairs: int
    unpacked_bytes: int

    def line(self) -> bytes:
        """The line that the process reads."""
        return json.dumps(asdict(self)).encode() + b"\n"


def do(work: MemoryWork, report: Report) -> None:
    """Make a store from the file and report its progress and its result."""
    held = None if work.domain is None else Datastore.open(work.domain)
    if held is not None and held.manifest.transforms:
        raise SettingError(
            f"the keys of the domain's store were changed after building ({', '.join(held.manifest.transforms)}), "
            f"so nothing can be added to it"
        )
    work = _with_model(work, report)
    assert work.source_language is not None  # noqa: S101 - chosen with the model
    assert work.target_language is not None  # noqa: S101
    config = BuildConfig(work.source_language, work.target_language)
    if held is not None:
        manifest = held.manifest
        config = replace(
            config,
            key_dtype=manifest.key_dtype,
            for_fast=manifest.for_fast,
            accelerators=manifest.accelerators,
        )
    reading = MemoryReading(
        [Path(work.file)],
        ReadingConfig(
            work.source_language,
            work.target_language,
            format=work.format,
            on_error="skip" if work.skip_malformed else "stop",
            unfinished=work.unfinished,
            max_bytes=work.unpacked_bytes,
        ),
    )
    total = reading.count() or 0
    if total > work.pairs:
        raise InputError(
            f"{work.name}: has {total:,} pairs; the service takes at most {work.pairs:,}: split the memory"
        )
    report({"done": 0, "of": total})
    if held is None:
        _adapt(work, config, reading, report)
        return
    pairs = _new(_named(reading, work), held, reading)
    if Path(work.store).exists():  # its builder was killed before it could report
        _report_again(work, pairs, reading, report)
        return
    first = next(pairs, None)
    if first is None and reading.report.skipped[_HELD]:
        report({"ended": True, "made": False, "read": reading.summary()})
        return
    first_ones = [] if first is None else [first]
    _make_store(work, config, chain(first_ones, pairs), reading, total, report)


def _with_model(work: MemoryWork, report: Report) -> MemoryWork:
    """The work with a model and languages."""
    if work.model is not None:
        return work
    reading = ReadingConfig(
        format=work.format, on_error="skip" if work.skip_malformed else "stop", max_bytes=work.unpacked_bytes
    )
    choice = model_for_memories([Path(work.file)], work.source_language, work.target_language, reading)
    report({"read": [f"model      {choice}"]})
    return replace(work, model=choice.name, source_language=choice.source, target_language=choice.target)


def _report_again(work: MemoryWork, pairs: Iterator[SegmentPair], reading: MemoryReading, report: Report) -> None:
    """Report the same as the process that built the store and was killed."""
    store, engine = Datastore.open(work.store), _engine(work)
    too_long = sum(1 for _ in pairs) - sum(1 for _ in store.units())
    dropped = Counter({too_long_for(engine.max_positions): too_long} if too_long > 0 else {})
    report({"ended": True, "made": True, "read": reading.summary(dropped)})


def _make_store(
    work: MemoryWork,
    config: BuildConfig,
    pairs: Iterator[SegmentPair],
    reading: MemoryReading,
    total: int,
    report: Report,
) -> None:
    def progress(done: int, _entries: int) -> None:
        left_out = sum(reading.report.skipped.values())
        report({"done": min(done + left_out, total), "of": total})

    # The settings of the domain apply.
    made = build(pairs, work.store, config, estimate=False, model=_engine(work), progress=progress)
    report({"ended": True, "made": True, "read": reading.summary(made.dropped)})


def _adapt(work: MemoryWork, config: BuildConfig, reading: MemoryReading, report: Report) -> None:
    """Make the store of a new domain as `knnmt adapt` does. It can be served before it is tuned."""
    store = Path(work.store)
    if store.exists() and not is_unfinished(store):  # its process was killed before it could say so
        report({"built": True, "ended": True, "made": True})
        return

    @contextlib.contextmanager
    def bars(step: str, _unit: str) -> Iterator[Progress]:
        yield (lambda done, total: report({"done": done, "of": total})) if step == "building" else ignore

    planned = plan(lambda: _named(reading, work))
    report({"read": reading.summary()})
    with Translator(
        work.model,
        device=work.device,
        dtype=work.dtype,
        source_lang=work.source_language,
        target_lang=work.target_language,
    ) as translator:
        adapt(
            planned,
            store,
            config,
            model=translator,
            on_message=lambda line: report({"read": [line]}),
            progress=bars,
            work=work_beside(Path(work.file)),
            on_built=lambda: report({"built": True}),
        )
    report({"done": planned.count, "of": planned.count, "ended": True, "made": True})


def _engine(work: MemoryWork) -> Engine[Any]:
    assert work.model is not None  # noqa: S101 - chosen before
    return load_engine(work.model, work.device, work.dtype, work.source_language, work.target_language)


def _named(reading: MemoryReading, work: MemoryWork) -> Iterator[SegmentPair]:
    """The pairs, with origins that have the sender's name of the file."""
    name = work.name.replace("#", "%23")
    for pair in reading.pairs():
        file, number, unit = pair.origin.partition("#")
        yield replace(pair, origin=f"{name}{number}{unit}") if file.endswith(Path(work.file).name) else pair


def _new(pairs: Iterator[SegmentPair], store: Datastore, reading: MemoryReading) -> Iterator[SegmentPair]:
    """The pairs that a store does not hold, so that nothing is added twice if a memory is sent again or after a
    restart.
    """
    held = {hash(pair) for pair in store.units()}
    for pair in pairs:
        if hash(pair) in held:
            reading.report.skip(_HELD)
        else:
            yield pair


def main() -> None:
    """Do one piece of work in this process."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries goes to the log

    def report(content: dict[str, Any]) -> None:
        output.write(json.dumps(content) + "\n")
        output.flush()

    work = as_record(MemoryWork, parse_json(sys.stdin.buffer.readline()))
    if work.domain is None:  # the store becomes a domain in the data directory, which is private
        os.umask(0o077)
    end_with_the_service()
    warnings.showwarning = lambda message, *_: report({"warning": str(message)})
    try:
        while_unlocked(lambda: do(work, report), _LOCKED_SECONDS, pause=0.5)
    except KnnmtError as error:
        report({"error": str(error)})
    except Exception as error:
        traceback.print_exc()
        report({"error": f"the process of the job failed ({type(error).__name__}); the service's log says where"})


if __name__ == "__main__":
    main()
