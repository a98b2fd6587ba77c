"""Buffers in which batches are decoded on a GPU, and the steps that were captured over them as CUDA graphs.

A step of a small model consists of a few hundred small operations, which a GPU finishes faster than a host can issue
them one by one. Shapes and addresses are the same for many steps, so the operations are captured once as a CUDA graph
and replayed as one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from knnmt.engine.fixed_state import GraphEngine

_USES_BEFORE_CAPTURE = 2  # by then everything is loaded that a capture must not load
_MAX_CAPTURES = 512
_SOURCE_STEP = 128  # buffers grow by this many source positions, so that they seldom have to grow
_capturing = threading.Lock()  # one at a time: captures share the state of PyTorch's random numbers


def size_for(sentences: int) -> int:
    """The number of sentences of a step for so many: one of few sizes, at most half as many again as needed."""
    size = 1
    while size < sentences:
        if size % 2 == 0 and 3 * size // 2 >= sentences:
            return 3 * size // 2
        size *= 2
    return size


class CapturedWork:
    """Work in buffers that is replayed after it has been done a few times. It must always be the same work.

    work: is given the engine and the buffers; if it held them, an unused engine would keep its memory
    """

    def __init__(self, work: Callable[[GraphEngine, GraphBuffers], None]) -> None:
        self._work = work
        self._uses = 0
        self.replays = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, engine: GraphEngine, buffers: GraphBuffers) -> None:
        self._uses += 1
        if self._graph is None and buffers.cuda and self._uses > _USES_BEFORE_CAPTURE:
            graph = torch.cuda.CUDAGraph()
            with _capturing:
                # Not torch.cuda.graph, which collects garbage first; and other threads may go on using the device.
                graph.capture_begin(pool=buffers.pool, capture_error_mode="thread_local")
                try:
                    self._work(engine, buffers)
                finally:
                    graph.capture_end()
            self._graph = graph
        if self._graph is None:
            self._work(engine, buffers)
        else:
            self._graph.replay()
            self.replays += 1


class GraphBuffers:
    """Memory for decoding one batch after another, with the steps that were captured over it.

    sources: token ids of the sources, each after the number of real ones, at the beginning
    tokens, scores: (sentences, width), the newest token and the score of each running hypothesis
    chosen: (sentences, 7 * width), the result of a step, for the host: see `knnmt.decoding.graphs`
    on_host: (2, sentences, numbers), the results of the last two steps; the device can write it
    """

    def __init__(self, engine: GraphEngine, sentences: int, width: int, capacity: int, source: int) -> None:
        self.memory = engine.fixed_memory(sentences, width, capacity, source)
        self.sources = FromHost((sentences * (1 + source),), engine.device)
        self.tokens = torch.zeros((sentences, width), dtype=torch.long, device=engine.device)
        self.scores = torch.zeros((sentences, width), device=engine.device)
        self.chosen = torch.zeros((sentences, 7 * width), dtype=torch.int32, device=engine.device)
        self.cuda = engine.device.type == "cuda"
        self.on_host = torch.empty((2, *self.chosen.shape), dtype=torch.int32, pin_memory=self.cuda)
        self._arrived = [torch.cuda.Event() if self.cuda else None for _ in range(2)]  # type: ignore[no-untyped-call]
        self._made: dict[Hashable, Any] = {}
        self.stream = torch.cuda.Stream(engine.device) if self.cuda else None  # type: ignore[no-untyped-call]
        self.beside = torch.cuda.Stream(engine.device) if self.cuda else None  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle() if self.cuda else None

    @property
    def shape(self) -> tuple[int, int]:
        """The number of sentences, and of tokens in each, that fit."""
        return self.memory.sentences, self.memory.source

    def grow(self, capacity: int) -> None:
        """Make room for more slots. Captures over the old memory are dropped, together with its pool."""
        larger = self.memory.larger(capacity)
        if self.stream is not None:
            self.stream.synchronize()  # otherwise others could get the old memory while it is still read
        self.memory = larger
        self._made.clear()
        self.pool = torch.cuda.graph_pool_handle() if self.cuda else None

    def get_or_make(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The object that was made for a key. A new one replaces the one that was unused for longest."""
        found = self._made.pop(key, None)
        if found is None:
            found = make()
            if len(self._made) >= _MAX_CAPTURES:
                del self._made[next(iter(self._made))]
        self._made[key] = found
        return found

    def keep(self, rows: Tensor, source: int, used: int) -> None:
        """Sentence i continues as rows[i]."""
        self.memory.keep(rows, source, used)
        for each in (self.tokens, self.scores):
            each[: len(rows)] = each[rows]

    def send(self, sentences: int, step: int, written: bool = False) -> Sent:
        """Start to copy the result of a step to the host, unless the device has written it there.

        Two results may be under way.
        """
        place, arrived = self.on_host[step % 2, :sentences], self._arrived[step % 2]
        if not written:
            place.copy_(self.chosen[:sentences], non_blocking=True)
        if arrived is not None:
            arrived.record(self.stream)
        return Sent(place, arrived)

    def wait_for_others(self) -> None:
        """Later work of `on_stream` comes after the work of the present stream so far."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))

    def wait_in_others(self) -> None:
        """Later work of the present stream comes after the work of `on_stream` so far."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Work within goes to its own stream. After an error, nobody uses its memory before it is finished."""
        if self.stream is None:
            yield
            return
        try:
            with torch.cuda.stream(self.stream):
                yield
        except BaseException:
            self.wait_in_others()
            raise

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Work within may run beside later work, until `join`."""
        if self.beside is None:
            yield
            return
        self.beside.wait_stream(torch.cuda.current_stream(self.beside.device))
        with torch.cuda.stream(self.beside):
            yield

    def join(self) -> None:
        """Wait on the device for the work of `aside`."""
        if self.beside is not None:
            torch.cuda.current_stream(self.beside.device).wait_stream(self.beside)


class FromHost:
    """Whole numbers at a fixed address on the device, which the host writes.

    numbers: all of them, on the device
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        cuda = device.type == "cuda"
        self.numbers = torch.zeros(shape, dtype=torch.long, device=device)
        self._on_host = torch.empty(shape, dtype=torch.long, pin_memory=cuda)
        self._arrived = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]

    def send(self, numbers: npt.NDArray[np.int64]) -> None:
        """Start to replace the first ones, after those that were sent before have arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        on_host = self._on_host[: len(numbers)]
        on_host.numpy()[:] = numbers
        self.numbers[: len(numbers)].copy_(on_host, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()


class Sent:
    """Numbers on their way to the host."""

    def __init__(self, place: Tensor, arrived: torch.cuda.Event | None) -> None:
        self._place = place
        self._arrived = arrived

    def wait(self) -> npt.NDArray[np.int32]:
        """Wait for the numbers and return them."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._place.numpy()


def _holds(shape: tuple[int, int], other: tuple[int, int]) -> bool:
    return shape[0] >= other[0] and shape[1] >= other[1]


def _joined(shape: tuple[int, int], others: list[tuple[int, int]]) -> tuple[int, int]:
    """A shape that also holds those of other buffers, unless it would be much larger than either:

    few long sentences and many short ones have separate buffers.
    """
    for other in others:
        both = max(shape[0], other[0]), max(shape[1], other[1])
        if prod(both) <= 2 * max(prod(shape), prod(other)):
            shape = both
    return shape


_lock = threading.Lock()


class FreeBuffers:
    """The buffers of one model that are not in use.

    on_host: of all buffers ever made, because a step may still write there after its buffers were dropped
    """

    def __init__(self) -> None:
        self.free: list[GraphBuffers] = []
        self.on_host: list[Tensor] = []


def borrow(engine: GraphEngine, sentences: int, width: int, capacity: int, source: int) -> GraphBuffers:
    """Buffers that nobody else uses until they are given back. Larger ones replace smaller ones."""
    free = engine.get_or_make(FreeBuffers).free
    shape = size_for(sentences), -(-source // _SOURCE_STEP) * _SOURCE_STEP
    with _lock:
        alike = [each for each in free if each.memory.width == width]
        fitting = [each for each in alike if _holds(each.shape, shape)]
        buffers = min(fitting, key=lambda each: prod(each.shape), default=None)
        if buffers is None:
            shape = _joined(shape, [other.shape for other in alike])
        for gone in alike:
            if gone is buffers or (buffers is None and _holds(shape, gone.shape)):
                free.remove(gone)
    if buffers is None:
        buffers = GraphBuffers(engine, shape[0], width, capacity, shape[1])
        engine.get_or_make(FreeBuffers).on_host.append(buffers.on_host)
    return buffers


def give_back(engine: GraphEngine, buffers: GraphBuffers) -> None:
    """Keep buffers beside the weights for the next batch. Not after an error: their captures may be incomplete then."""
    with _lock:
        engine.get_or_make(FreeBuffers).free.append(buffers)
