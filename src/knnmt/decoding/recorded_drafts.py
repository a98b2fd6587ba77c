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

import numpy as np
import torch

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.datastore.arrays import Array
from knnmt.decoding import recorded_turns
from knnmt.decoding.arena import MAX_TURNS, Arena, Recorded, Sent, borrow, give_back, size_for
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.following_batches import FollowingBatches
from knnmt.decoding.hypothesis import Begun, Found, Hypothesis, unheard, unnoticed
from knnmt.decoding.recorded import MIN_SLOTS, SHRINKING, load_sources
from knnmt.decoding.recorded_places import Places
from knnmt.decoding.recorded_policy import turns_for
from knnmt.decoding.recorded_sentences import Batch, Sentence
from knnmt.engine.fixed_state import RecordingEngine, TurnState, seen_up_to
from knnmt.retrieval.open_store import Chosen, ChosenEntries
from knnmt.retrieval.recorded import RecordedRetrieval
from knnmt.retrieval.retriever import BatchRetrieval

FILLING = 4  # so many groups of waiting sentences fill all places: small groups wait less, but the host works more


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

    size: how many, including blanks; source: positions of the longest source, including padding
    entries: of their own segments; spans: where these are on the device, (sentences, 2), None until they are there
    """

    sentences: list[Sentence]
    size: int
    source: int
    entries: list[Array]
    spans: Array | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that the device computes."""

    sent: Sent
    turns: int


class RecordedDrafting(FollowingBatches[Batch]):
    """Decodes batches that are searched in the same way, one after the other.

    recorded: the retrieval of the first batch, in which each sentence has its own segments
    begun: is called when the first step is on its way
    """

    def __init__(
        self, engine: RecordingEngine, config: DecodingConfig, recorded: RecordedRetrieval, begun: Begun = unnoticed
    ) -> None:
        super().__init__()
        self._engine, self._config, self._recorded, self._begun = engine, config, recorded, begun
        self._forced = Constraints(config, engine.special_tokens.end, engine.device).at(0)[0]
        rules = (config.max_tokens, config.min_tokens, config.forced_last_token, config.suppressed_tokens)
        self._told = engine.special_tokens, rules
        self._alike = object()
        self._arena: Arena | None = None
        self._places = Places(0, config, engine.special_tokens.end)
        self._waiting: _Waiting | None = None
        self._under_way: deque[_Step] = deque()
        self._steps = 0

    def takes(self, sources: Sequence[Sequence[int]], recorded: object) -> bool:
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
        """Add a batch. chosen: what `retrieval` will choose; found: see `search.search`"""
        self._append(Batch(sources, retrieval, found, chosen))

    def finish(self) -> Iterator[list[list[Hypothesis]]]:
        """Decode the rest; yields one batch after the other."""
        yield from super().finish()
        if self._arena is not None:
            give_back(self._engine, self._arena)

    def _decode(self, enough: Callable[[], bool]) -> None:
        if enough():
            return
        arena = self._begin()
        # Recordings of the same rules have the same object in their keys, because it is compared faster than rules.
        self._alike = arena.kept(("rules", *self._told), object)
        with torch.inference_mode(), arena.on_stream():
            while not enough():
                self._admit()
                if not self._places.running:
                    self._under_way.clear()
                    if self._open[0].done:
                        break  # before the choice of the next one fails
                    self._stage()
                    continue
                self._go_on()

    def _begin(self) -> Arena:
        """The arena, at first with blanks only."""
        if self._arena is None:
            size = size_for(max(len(batch.sources) for batch in self._queue))
            longest = max(len(source) for batch in self._queue for source in batch.sources)
            self._arena = arena = borrow(self._engine, 2 * size, 1, MIN_SLOTS, longest)
            self._places = Places(size, self._config, self._engine.special_tokens.end)
            with torch.inference_mode(), arena.on_stream():
                arena.ended[:size].fill_(1)
                arena.generated[:size].zero_()
                arena.parity.zero_()
                self._recorded.begin_with_blanks(size, arena.kept)
        return self._arena

    def _go_on(self) -> None:
        """Issue the next step, and look at the one before it meanwhile."""
        if self._under_way and self._places.likely_end(self._under_way[-1].turns):
            self._look()
            return
        self._step()
        self._stage(while_running=True)
        if len(self._under_way) > 1:
            self._look()
        fewer = len(self._places) // SHRINKING
        if not self._queue and self._waiting is None and self._places.running <= fewer:
            while self._under_way:
                self._look()
            self._keep_running()

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
            chosen = batch.chosen_entries()
            entries += [chosen.entries[number] for number in taken]
            sentences += [Sentence(batch, number, self._first_draft(chosen, number)) for number in taken]
            batch.begun = taken.stop
            if batch.begun == len(batch.sources):
                self._queue.popleft()
        if not sentences:
            return None
        group = size_for(len(sentences))
        sources = [each.batch.sources[each.number] for each in sentences]
        source = load_sources(self._engine, self._begin(), sources, group, recorded_turns.stage)
        return _Waiting(sentences, group, source, entries)

    def _first_draft(self, chosen: ChosenEntries, sentence: int) -> list[int]:
        """What the memory has for a sentence that it holds, or almost."""
        if self._forced is not None:
            return []
        end, vocabulary = self._engine.special_tokens.end, self._engine.vocabulary_size
        return chosen.first_draft(sentence, MAX_TURNS - 1, end, vocabulary)

    def _admit(self) -> None:
        """Give waiting sentences their places, if there are enough."""
        waiting = self._waiting
        if waiting is None or waiting.spans is None or len(free := self._places.free) < waiting.size:
            return
        arena, steps, sentences, source = self._begin(), self._recorded.steps, waiting.sentences, waiting.source
        assert steps is not None  # noqa: S101 - it has begun
        free = free[: waiting.size]
        told = np.zeros((waiting.size, arena.admitted.numbers.shape[1]), np.int64)
        told[:, 0] = free
        told[len(sentences) :, 1] = 1
        told[: len(sentences), 2:4] = waiting.spans
        told[:, 4:] = self._engine.special_tokens.end
        for row, each in zip(told, sentences, strict=False):
            if each.draft:
                row[4 : 4 + len(each.draft)] = each.draft
        arena.admitted.send(told)
        self._recorded.admit(free, told[:, 2:4])
        drafted = any(each.draft for each in sentences)
        work = partial(recorded_turns.admit, sentences=waiting.size, source=source, drafted=drafted, retrieval=steps)
        key = ("admit", self._engine.special_tokens, waiting.size, source, drafted, steps)
        arena.kept(key, lambda: Recorded(work))(self._engine, arena)
        for place, each in zip(free, sentences, strict=False):
            self._places.take(place, each, source, len(self._under_way))
        self._waiting = None
        if self._forced is not None:
            self._begin_with(self._forced, free[: len(sentences)])

    def _begin_with(self, token: int, places: Sequence[int]) -> None:
        """New sentences take a forced first token: nothing is retrieved for it, and it adds nothing to scores."""
        shape, arena = self._shape(1), self._begin()
        key = ("told", self._engine.special_tokens, *shape, token)
        arena.kept(key, lambda: Recorded(partial(recorded_turns.take_in, state=self._state(*shape), token=token)))(
            self._engine, arena
        )
        for place in places:
            if self._places.tell(place, token):
                self._leave(place)

    def _step(self) -> None:
        """One step for all sentences."""
        turns = turns_for(self._places.hopes, len(self._places))
        config, steps, shape, arena = self._config, self._recorded.steps, self._shape(turns), self._begin()
        assert steps is not None  # noqa: S101 - it has begun

        def recorded() -> Recorded:
            choice = recorded_turns.Choice(self._engine, config, shape[0], turns)
            state = self._state(*shape)
            return Recorded(partial(recorded_turns.advance, state=state, turns=turns, choice=choice, retrieval=steps))

        with timing.stage("step"):
            arena.kept(("drafted", *shape, turns, self._alike, steps), recorded)(self._engine, arena)
            sent = arena.send(len(self._places), self._steps, written=recorded_turns.writes_to_host(arena))
        self._under_way.append(_Step(sent, turns))
        if not self._steps:
            self._begun()
        self._steps += 1

    def _shape(self, turns: int) -> tuple[int, int, int]:
        """The sentences, slots and source positions of a step that computes so many tokens."""
        slots = self._places.longest + turns + sum(step.turns for step in self._under_way)
        extent = MIN_SLOTS
        while slots > extent:
            extent *= 2
        arena = self._begin()
        if extent > arena.memory.capacity:
            arena.grow(extent)
        return len(self._places), extent, self._places.source

    def _state(self, sentences: int, extent: int, source: int) -> TurnState:
        arena = self._begin()
        up_to = arena.kept(("seen up to", extent), lambda: seen_up_to(extent, arena.memory.visible))
        return TurnState(arena.memory, up_to, source, arena.generated[:sentences], self._engine.max_positions)

    def _look(self) -> None:
        """Read the result of the oldest step on the host."""
        step = self._under_way.popleft()
        for place in self._places.read(step.sent.wait(), step.turns):
            self._leave(place)

    def _leave(self, place: int) -> None:
        """A sentence is done, and its place is free."""
        sentence, found = self._places.leave(place)
        sentence.end(found)

    def _keep_running(self) -> None:
        """Continue with the sentences that are not done, and blanks for the rest of a smaller step."""
        places = [place for place, each in enumerate(self._places.sentences) if each is not None]
        size = len(self._places) // SHRINKING
        if not 0 < len(places) <= size:
            return
        arena = self._begin()
        kept = [*places, *places[:1] * (size - len(places))]
        moved = torch.tensor(kept, device=self._engine.device)
        arena.keep(moved, self._places.source, arena.memory.capacity)
        arena.ended[len(places) : size] = 1
        arena.generated[len(places) : size] = 0
        self._recorded.keep(moved, len(places), arena.kept)
        self._places.keep(places, size)
