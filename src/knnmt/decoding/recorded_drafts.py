"""Greedy search with drafts on a GPU: the search of `knnmt.decoding.drafted`, in steps of fixed shape.

A step computes a few tokens of every sentence: the newest one, and some that follow it in the memory. The device itself
decides which of them count and what is drafted next, so sentences advance by different lengths and the host never
waits. The host looks at the result of a step while the device computes the next one, and chooses how many tokens the
step after that computes.

Sentences end at different steps, however alike they are. So sentences of the next batch take the places of those that
are done: a few wait on the device, encoded and with their entries, until there are enough free places for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from math import isfinite

import numpy as np
import numpy.typing as npt
import torch

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.datastore.arrays import Array
from knnmt.decoding import recorded_turns
from knnmt.decoding.arena import Arena, Recorded, Sent, borrow, give_back, size_for
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.hypothesis import Begun, Found, Hypothesis, unheard, unnoticed
from knnmt.decoding.recorded import MIN_SLOTS, SHRINKING, load_sources
from knnmt.decoding.recorded_policy import likely_ends, turns_for
from knnmt.decoding.recorded_sentences import Batch, Counts, Sentence
from knnmt.engine.fixed_state import RecordingEngine, TurnState, seen_up_to
from knnmt.retrieval.open_store import Chosen
from knnmt.retrieval.recorded import RecordedRetrieval
from knnmt.retrieval.retriever import BatchRetrieval

FILLING = 4  # so many groups of waiting sentences fill all places: small groups wait less, but the host works more
_USUAL, _MEMORY = 0.5, 0.3  # the chance before anything is known, and how much the last step or sentence counts for it


def recorded_drafts(
    engine: RecordingEngine,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval,
    recorded: RecordedRetrieval,
    found: Found = unheard,
    begun: Begun = unnoticed,
) -> list[list[Hypothesis]]:
    """Like `greedy.greedy_search`. recorded: of the retrieval, in which each sentence has its own segments"""
    drafting = RecordedDrafting(engine, config, recorded, begun)
    drafting.add(sources, retrieval, found=found)
    [results] = drafting.finish()
    return results


@dataclass(slots=True)
class _Waiting:
    """Sentences on the device that wait for free places.

    size: how many, including blanks
    entries: of their own segments; spans: where these are on the device, (sentences, 2), None until they are there
    """

    sentences: list[Sentence]
    size: int
    entries: list[Array]
    spans: Array | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that the device computes. places: the sentences that it began with"""

    sent: Sent
    turns: int
    places: list[Sentence | None]


class RecordedDrafting:
    """Decodes batches that are searched in the same way, one after the other.

    recorded: the retrieval of the first batch, in which each sentence has its own segments
    begun: is called when the first step is on its way

    places: the sentence at each place of a step, None if it is free
    """

    def __init__(
        self, engine: RecordingEngine, config: DecodingConfig, recorded: RecordedRetrieval, begun: Begun = unnoticed
    ) -> None:
        self._engine, self._config, self._recorded, self._begun = engine, config, recorded, begun
        self._forced = Constraints(config, engine.special_tokens.end, engine.device).at(0)[0]
        self._open: deque[Batch] = deque()
        self._queue: deque[Batch] = deque()
        self._arena: Arena | None = None
        self._places: list[Sentence | None] = []
        self._waiting: _Waiting | None = None
        self._under_way: deque[_Step] = deque()
        self._steps = 0
        self._usual = _USUAL

    def takes(self, sources: Sequence[Sequence[int]], recorded: RecordedRetrieval) -> bool:
        """Whether a batch can follow those that were added."""
        room = self._arena is None or max(map(len, sources)) <= self._arena.memory.source
        return room and self._recorded.same_as(recorded)

    def add(
        self,
        sources: Sequence[Sequence[int]],
        retrieval: BatchRetrieval,
        chosen: Future[Chosen] | None = None,
        found: Found = unheard,
    ) -> None:
        """Add a batch. chosen: what `retrieval` will choose; found: see `search`"""
        batch = Batch(sources, retrieval, chosen, found, [None] * len(sources))
        self._open.append(batch)
        self._queue.append(batch)

    def advance(self) -> list[list[list[Hypothesis]]]:
        """Decode until the last batch is next; returns the batches that are done, in order."""
        return self._decode(lambda: len(self._queue) <= 1)

    def finish(self) -> Iterator[list[list[Hypothesis]]]:
        """Decode the rest; yields one batch after the other."""
        while self._open:
            yield from self._decode(lambda: self._open[0].done)
        if self._arena is not None:
            give_back(self._engine, self._arena)

    def _decode(self, enough: Callable[[], bool]) -> list[list[list[Hypothesis]]]:
        """Decode until it is enough, or the rest must wait for batches that have failed."""
        if not enough():
            with torch.inference_mode(), self._begin().on_stream():
                while not enough():
                    self._admit()
                    if not any(self._places):
                        self._under_way.clear()
                        if self._open[0].done:
                            break  # before the choice of the next one fails
                        self._stage()
                        continue
                    self._go_on()
        done = []
        while self._open and self._open[0].done:
            done.append([each or [] for each in self._open.popleft().results])
        return done

    def _begin(self) -> Arena:
        """The arena, at first with blanks only."""
        if self._arena is None:
            size = size_for(max(len(batch.sources) for batch in self._queue))
            longest = max(len(source) for batch in self._queue for source in batch.sources)
            self._arena = arena = borrow(self._engine, 2 * size, 1, MIN_SLOTS, longest)
            self._places = [None] * size
            with torch.inference_mode(), arena.on_stream():
                arena.ended[:size].fill_(1)
                arena.generated[:size].zero_()
                arena.parity.zero_()
                self._recorded.begin_with_blanks(size, arena.kept)
        return self._arena

    def _go_on(self) -> None:
        """Issue the next step, and look at the one before it meanwhile."""
        if self._under_way and self._likely_done():
            self._look()
            return
        self._step()
        self._stage(while_running=True)
        if len(self._under_way) > 1:
            self._look()
        running = len(self._places) - self._places.count(None)
        if not self._queue and self._waiting is None and running <= len(self._places) // SHRINKING:
            while self._under_way:
                self._look()
            self._keep_running()

    def _likely_done(self) -> bool:
        """Whether the newest step probably ends all sentences."""
        turns = self._under_way[-1].turns
        return all(each is None or likely_ends(each.chance, each.ends, turns) for each in self._places)

    def _stage(self, while_running: bool = False) -> None:
        """Bring the next sentences to the device, where they wait.

        while_running: only as far as that takes no longer than a step: their sources, or their entries
        """
        if self._waiting is None:
            self._waiting = self._next(while_running)
            if while_running:
                return
        if self._waiting is not None and self._waiting.spans is None:
            self._waiting.spans = self._recorded.stage(self._waiting.entries, self._begin().kept)

    def _next(self, while_running: bool) -> _Waiting | None:
        """The next sentences, encoded; None if they would have to wait for the choice of their segments."""
        size = len(self._places)
        most = max(1, size // FILLING) if while_running else size
        sentences: list[Sentence] = []
        entries: list[Array] = []
        while self._queue and len(sentences) < most:
            batch = self._queue[0]
            if (while_running or sentences) and not batch.ready:
                break
            taken = range(batch.begun, min(len(batch.sources), batch.begun + most - len(sentences)))
            entries += [batch.entries()[number] for number in taken]
            sentences += [Sentence(batch, number, self._usual) for number in taken]
            batch.begun = taken.stop
            if batch.begun == len(batch.sources):
                self._queue.popleft()
        if not sentences:
            return None
        group = size_for(len(sentences))
        sources = [each.batch.sources[each.number] for each in sentences]
        positions = load_sources(self._engine, self._begin(), sources, group, recorded_turns.stage)
        for each in sentences:
            each.source = positions
        return _Waiting(sentences, group, entries)

    def _admit(self) -> None:
        """Give waiting sentences their places, if there are enough."""
        waiting = self._waiting
        if waiting is None or waiting.spans is None or self._places.count(None) < waiting.size:
            return
        arena, steps = self._begin(), self._recorded.steps
        assert steps is not None  # noqa: S101 - it has begun
        free = [place for place, each in enumerate(self._places) if each is None][: waiting.size]
        sentences, source = waiting.sentences, waiting.sentences[0].source
        told = np.zeros((waiting.size, 4), np.int64)
        told[:, 0] = free
        told[len(sentences) :, 1] = 1
        told[: len(sentences), 2:] = waiting.spans
        arena.admitted.send(told)
        self._recorded.admit(free, told[:, 2:])
        work = partial(recorded_turns.admit, sentences=waiting.size, source=source, retrieval=steps)
        key = ("admit", self._engine.special_tokens, waiting.size, source, steps)
        arena.kept(key, lambda: Recorded(work))(self._engine, arena)
        for place, each in zip(free, sentences, strict=False):
            self._places[place] = each
        self._waiting = None
        if self._forced is not None:
            self._begin_with(self._forced, sentences)

    def _begin_with(self, token: int, sentences: Sequence[Sentence]) -> None:
        """New sentences take a forced first token: nothing is retrieved for it, and it adds nothing to scores."""
        shape, arena = self._shape(1), self._begin()
        key = ("told", self._engine.special_tokens, *shape, token)
        arena.kept(key, lambda: Recorded(partial(recorded_turns.take_in, state=self._state(*shape), token=token)))(
            self._engine, arena
        )
        for each in sentences:
            each.tokens.append(token)
            each.drafted.append(False)
            if token == self._engine.special_tokens.end or self._config.max_tokens == 1:
                self._leave(each)

    def _step(self) -> None:
        """One step for all sentences."""
        running = [each for each in self._places if each is not None]
        turns = turns_for(np.array([max(each.chance, each.usual) for each in running]), len(self._places))
        config, steps, shape, arena = self._config, self._recorded.steps, self._shape(turns), self._begin()
        assert steps is not None  # noqa: S101 - it has begun
        told = (config.max_tokens, config.min_tokens, config.forced_last_token, config.suppressed_tokens)
        key = ("drafted", *shape, turns, self._engine.special_tokens, told, steps)

        def recorded() -> Recorded:
            choice = recorded_turns.Choice(self._engine, config, shape[0], turns)
            state = self._state(*shape)
            return Recorded(partial(recorded_turns.advance, state=state, turns=turns, choice=choice, retrieval=steps))

        with timing.stage("step"):
            arena.kept(key, recorded)(self._engine, arena)
            sent = arena.send(len(self._places), self._steps, written=recorded_turns.writes_to_host(arena))
        self._under_way.append(_Step(sent, turns, list(self._places)))
        if not self._steps:
            self._begun()
        self._steps += 1

    def _shape(self, turns: int) -> tuple[int, int, int]:
        """The sentences, slots and source positions of a step that computes so many tokens."""
        running = [each for each in self._places if each is not None]
        slots = max(len(each.tokens) for each in running) + turns + sum(step.turns for step in self._under_way)
        extent = MIN_SLOTS
        while slots > extent:
            extent *= 2
        arena = self._begin()
        if extent > arena.memory.capacity:
            arena.grow(extent)
        return len(self._places), extent, max(each.source for each in running)

    def _state(self, sentences: int, extent: int, source: int) -> TurnState:
        arena = self._begin()
        up_to = arena.kept(("seen up to", extent), lambda: seen_up_to(extent, arena.memory.visible))
        return TurnState(arena.memory, up_to, source, arena.generated[:sentences], self._engine.max_positions)

    def _look(self) -> None:
        """Read the result of the oldest step on the host."""
        step = self._under_way.popleft()
        self.look_at(step.sent.wait(), step.turns, step.places)

    def look_at(self, chosen: npt.NDArray[np.int32], turns: int, places: Sequence[Sentence | None]) -> None:
        """Read the result of a step that began with these sentences; some may be done since."""
        gains = chosen[:, 3 + turns : 3 + 2 * turns].view(np.float32).tolist()
        tokens, taken, ends = chosen[:, 3 : 3 + turns].tolist(), chosen[:, 0].tolist(), chosen[:, 2].tolist()
        chances = chosen[:, 1].view(np.float32).tolist()
        end, most, forced = self._engine.special_tokens.end, self._config.max_tokens, self._config.forced_last_token
        counts: dict[Batch, Counts] = {}
        for place, each in enumerate(places):
            if each is None or each.done:
                continue
            count = taken[place]
            each.tokens += tokens[place][:count]
            each.drafted += [turn > 0 for turn in range(count)]
            each.score += sum(gains[place][:count])
            each.lost = not isfinite(gains[place][count - 1])
            of_batch = counts.setdefault(each.batch, Counts())
            of_batch.rows += count - (len(each.tokens) == most and forced is not None)
            of_batch.first += not each.stepped
            if turns > 1 and each.chance > 0:
                of_batch.verified += 1
                of_batch.accepted += count - 1
            each.stepped, each.chance, each.ends = True, chances[place], ends[place]
            each.usual += _MEMORY * (each.chance - each.usual)
            if each.tokens[-1] == end or len(each.tokens) == most or each.lost:
                self._leave(each)
        for batch, counted in counts.items():
            counted.add_to(batch.retrieval, turns)

    def _leave(self, sentence: Sentence) -> None:
        """A sentence is done, and its place is free."""
        self._places[self._places.index(sentence)] = None
        self._usual += _MEMORY * (sentence.usual - self._usual)
        sentence.end(self._config.length_penalty)

    def _keep_running(self) -> None:
        """Continue with the sentences that are not done, and blanks for the rest of a smaller step."""
        places = [place for place, each in enumerate(self._places) if each is not None]
        size = len(self._places) // SHRINKING
        if not 0 < len(places) <= size:
            return
        arena = self._begin()
        source = max(each.source for each in self._places if each is not None)
        kept = [*places, *places[:1] * (size - len(places))]
        moved = torch.tensor(kept, device=self._engine.device)
        arena.keep(moved, source, arena.memory.capacity)
        arena.ended[len(places) : size] = 1
        arena.generated[len(places) : size] = 0
        self._recorded.keep(moved, len(places), arena.kept)
        self._places = [*(self._places[place] for place in places), *[None] * (size - len(places))]
