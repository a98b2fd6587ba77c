"""Prepares units of a memory for the model: the tokens that it sees, and the hashes by which units are found.

A GPU computes faster than one process can prepare text, so other processes prepare it as well. Each gets a few units
at a time over a pipe and returns them as tokens. The result does not depend on which process prepares a unit.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, cast

import numpy as np

from knnmt.corpus.accelerators import Accelerators
from knnmt.corpus.match_tokens import word_hashes
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import sameness_hash
from knnmt.corpus.units import for_model, lines_of
from knnmt.datastore.prepared import Slice, texts_of
from knnmt.engine.rows import Rows
from knnmt.engine.tokenizer import Tokenizer
from knnmt.errors import InputError

_AHEAD = 2  # chunks per process that are read ahead, so that none waits for the next
_PIPE_BYTES = 1 << 20  # so that a pipe takes most chunks and answers whole
_Answer = Future[Slice | None]  # None: that process could not prepare it
_Question = tuple[list[SegmentPair], _Answer]


def prepare(units: Sequence[SegmentPair], tokenizer: Tokenizer, accelerators: Accelerators) -> Slice:
    """Prepare units for the model."""
    pairs: list[SegmentPair] = []
    is_line: list[bool] = []
    for unit in units:
        own = lines_of(unit)
        pairs += [unit, *own]
        is_line += [False, *[True] * len(own)]
    _require_text(units)
    seen = [for_model(pair, accelerators) for pair in pairs]
    return Slice(
        texts_of(pairs),
        Rows.of(tokenizer.encode_sources([pair.source for pair in seen])),
        Rows.of(tokenizer.encode_targets([pair.target for pair in seen])),
        Rows.of([word_hashes(pair.source) for pair in seen]),
        np.array([sameness_hash(pair.source) for pair in seen], np.int64),
        np.array(is_line, np.uint8),
    )


def _require_text(units: Iterable[SegmentPair]) -> None:
    for unit in units:
        try:
            f"{unit.source}{unit.target}{unit.origin}{unit.context}".encode()
        except UnicodeEncodeError as error:
            origin = unit.origin.encode("utf-8", "backslashreplace").decode()
            raise InputError(f"{origin}: expected text, found half of a surrogate pair ({error.reason})") from error


def prepared_chunks(
    chunks: Iterable[list[SegmentPair]],
    tokenizer: Tokenizer,
    accelerators: Accelerators,
    processes: int = 0,
    alone_first: int = 2,
    preparer: type[Preparer] | None = None,
) -> Iterator[Slice]:
    """Prepared chunks of a memory, in their order; by this process, or after `alone_first` by `processes` others.

    If no other process has begun a chunk when it is needed (for example while they start), this process prepares it.
    preparer: by default `Preparer`
    """
    stream = iter(chunks)
    settings = _pickled((tokenizer, accelerators)) if processes else None
    for chunk in islice(stream, None if settings is None else alone_first):
        yield prepare(chunk, tokenizer, accelerators)
    first = next(stream, None)
    if first is None or settings is None:
        return

    def result(chunk: list[SegmentPair], answer: _Answer) -> Slice:
        made = None if answer.cancel() else answer.result()
        return prepare(chunk, tokenizer, accelerators) if made is None else made

    asked: SimpleQueue[_Question | None] = SimpleQueue()
    waiting: deque[tuple[list[SegmentPair], _Answer]] = deque()
    with ExitStack() as ending:
        for _ in range(processes):
            ending.enter_context((preparer or Preparer)(settings, asked))
        for chunk in chain([first], stream):
            waiting.append((chunk, Future()))
            asked.put(waiting[-1])
            if len(waiting) > _AHEAD * processes:
                yield result(*waiting.popleft())
        while waiting:
            yield result(*waiting.popleft())


def _pickled(settings: object) -> bytes | None:
    """The first message to other processes; None if it cannot be pickled, as with a user's own tokenizer."""
    try:
        return pickle.dumps(settings, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None


class Preparer:
    """A process that prepares chunks, and the thread that sends them to it. An unfinished chunk has no result."""

    def __init__(self, settings: bytes, asked: SimpleQueue[_Question | None]) -> None:
        self._asked = asked
        package = str(Path(__file__).parents[2])
        self.process = subprocess.Popen(
            # -P: do not import modules from the current directory
            [sys.executable, "-P", "-c", "from knnmt.datastore.preparing import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pipesize=_PIPE_BYTES,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
                "TOKENIZERS_PARALLELISM": "false",  # there is one process for each core already
            },
        )
        self._requests, self._answers = cast("IO[bytes]", self.process.stdin), cast("IO[bytes]", self.process.stdout)
        self.thread = Thread(target=self._hand_over, args=(settings,), name="knnmt-preparer", daemon=True)
        self.thread.start()

    def __enter__(self) -> Preparer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._asked.put(None)
        self.thread.join()
        for pipe in (self._answers, self._requests):
            with suppress(OSError):  # data that could not be sent
                pipe.close()

    def _hand_over(self, settings: bytes) -> None:
        answer: _Answer = Future()
        try:
            self.ask(settings)  # it answers when it is ready for chunks
            while (question := self._asked.get()) is not None:
                chunk, answer = question
                if answer.set_running_or_notify_cancel():
                    units = [(pair.source, pair.target, pair.origin, pair.context) for pair in chunk]
                    made = self.ask(pickle.dumps(units, pickle.HIGHEST_PROTOCOL))
                    if isinstance(made, Exception):
                        answer.set_exception(made)
                    else:
                        answer.set_result(cast("Slice", made))
            self._asked.put(None)  # for the next thread that looks
        except Exception:  # most probably the process has ended
            if answer.running():
                answer.set_result(None)

    def ask(self, pickled: bytes) -> object:
        self._requests.write(pickled)
        self._requests.flush()
        return pickle.load(self._answers)  # noqa: S301 -- from a process of ours


def serve() -> None:
    """Prepare chunks from standard input until it ends. Runs in a process started for this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it ends it
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, BrokenPipeError):
        tokenizer, accelerators = pickle.load(requests)  # noqa: S301 -- from the process that started this one
        made: Slice | Exception | None = None  # None says that it is ready
        while True:
            pickle.dump(made, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
            units = pickle.load(requests)  # noqa: S301
            try:
                made = prepare([SegmentPair(*unit) for unit in units], tokenizer, accelerators)
            except Exception as error:
                made = error
