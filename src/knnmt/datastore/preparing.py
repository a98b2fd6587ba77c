"""Units of a memory made ready for the model: what it sees of them, in tokens, and what they are found by.

A GPU computes faster than one process can prepare text. Others then prepare it beside: each is given some units at a
time over a pipe and gives them back in tokens. What is prepared does not depend on who does it.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from threading import Thread
from typing import IO, cast

from knnmt.corpus.accelerators import Accelerators
from knnmt.corpus.match_tokens import word_hashes
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.sameness import sameness_hash
from knnmt.corpus.units import for_model, lines_of
from knnmt.engine.tokenizer import Tokenizer

_ALONE_FIRST = 2  # chunks that are prepared here before processes are started for the rest, and while they start
_GONE = (OSError, EOFError, pickle.UnpicklingError)  # what is met at the pipes of a process that has ended


@dataclass(frozen=True, slots=True)
class Prepared:
    """Units in the order they came in, each followed by its lines.

    lines: source and target of the lines of units that have some, by the units' numbers
    sources, targets: token ids of what the model is to see
    hashes: of the sources as the model is to see them; words: the hashes of the words of these
    """

    lines: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    sources: list[list[int]] = field(default_factory=list)
    targets: list[list[int]] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    words: list[list[int]] = field(default_factory=list)


def prepare(units: Sequence[tuple[str, str]], tokenizer: Tokenizer, accelerators: Accelerators) -> Prepared:
    """Make units ready, by their sources and targets."""
    seen: list[SegmentPair] = []
    lines: dict[int, list[tuple[str, str]]] = {}
    for number, (source, target) in enumerate(units):
        unit = SegmentPair(source, target, "")
        seen.append(for_model(unit, accelerators))
        if own := lines_of(unit):
            lines[number] = [(line.source, line.target) for line in own]
            seen.extend(for_model(line, accelerators) for line in own)
    return Prepared(
        lines,
        tokenizer.encode_sources([pair.source for pair in seen]),
        tokenizer.encode_targets([pair.target for pair in seen]),
        [sameness_hash(pair.source) for pair in seen],
        [word_hashes(pair.source) for pair in seen],
    )


def prepared_chunks(
    chunks: Iterable[list[SegmentPair]], tokenizer: Tokenizer, accelerators: Accelerators, processes: int = 0
) -> Iterator[tuple[list[SegmentPair], Prepared]]:
    """Chunks of a memory made ready, in their order; by this process, or after the first few by so many others."""
    stream = iter(chunks)
    settings = _pickled((tokenizer, accelerators)) if processes else None
    alone = None if settings is None else _ALONE_FIRST
    for chunk in islice(stream, alone):
        yield chunk, prepare(_texts(chunk), tokenizer, accelerators)
    first = next(stream, None)
    if first is None or settings is None:
        return
    with ExitStack() as ending:
        others = [ending.enter_context(_Preparer(tokenizer, accelerators, settings)) for _ in range(processes)]
        for chunk in islice(chain([first], stream), _ALONE_FIRST):  # while the others start
            yield chunk, prepare(_texts(chunk), tokenizer, accelerators)
        waiting: deque[tuple[list[SegmentPair], _Preparer]] = deque()
        for chunk in stream:
            if len(waiting) < processes:
                other = others[len(waiting)]
                other.ask(chunk)
                waiting.append((chunk, other))
                continue
            oldest, other = waiting.popleft()
            ready = other.answer(oldest)
            other.ask(chunk)
            waiting.append((chunk, other))
            yield oldest, ready
        for chunk, other in waiting:
            yield chunk, other.answer(chunk)


def _pickled(settings: object) -> bytes | None:
    """What other processes are told first; None where that cannot be, as with tokenizers of somebody's own."""
    try:
        return pickle.dumps(settings, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None


def _texts(chunk: Sequence[SegmentPair]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in chunk]


class _Preparer:
    """A process that prepares chunks, one at a time. Where it ends before its time, this one does its work."""

    def __init__(self, tokenizer: Tokenizer, accelerators: Accelerators, pickled: bytes) -> None:
        self._settings = tokenizer, accelerators
        package = str(Path(__file__).parents[2])
        self._process = subprocess.Popen(
            # -P: the directory that the command is called in holds no modules of ours
            [sys.executable, "-P", "-c", "from knnmt.datastore.preparing import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
                "TOKENIZERS_PARALLELISM": "false",  # there is one process for each core already
            },
        )
        self._requests, self._answers = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        # Beside: a process takes a moment to start, and until then it takes nothing.
        self._telling = Thread(target=self._send, args=(pickled,), name="knnmt-preparer", daemon=True)
        self._telling.start()

    def __enter__(self) -> _Preparer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._telling.join()
        for pipe in (self._answers, self._requests):
            with suppress(OSError):  # what could not be sent
                pipe.close()

    def ask(self, chunk: Sequence[SegmentPair]) -> None:
        """Give it a chunk, when it has answered for the one before."""
        self._telling.join()
        self._send(pickle.dumps(_texts(chunk), pickle.HIGHEST_PROTOCOL))

    def answer(self, chunk: Sequence[SegmentPair]) -> Prepared:
        """What it made of the chunk that it was given."""
        try:
            found = pickle.load(self._answers)  # noqa: S301 -- from a process of ours
        except _GONE:
            return prepare(_texts(chunk), *self._settings)
        if isinstance(found, Exception):
            raise found
        return cast("Prepared", found)

    def _send(self, pickled: bytes) -> None:
        with suppress(OSError):  # it has ended: that shows when it is asked for an answer
            self._requests.write(pickled)
            self._requests.flush()


def serve() -> None:
    """Prepare what comes in until nothing more does. What a process that was started for it runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, BrokenPipeError):
        tokenizer, accelerators = pickle.load(requests)  # noqa: S301 -- from the process that started this one
        while True:
            units = pickle.load(requests)  # noqa: S301
            try:
                made: Prepared | Exception = prepare(units, tokenizer, accelerators)
            except Exception as error:
                made = error
            pickle.dump(made, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
