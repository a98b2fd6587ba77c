"""The steps of `knnmt.decoding.recorded_drafts`: work of fixed shape, which is recorded on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from knnmt.config import DecodingConfig
from knnmt.decoding.arena import Arena
from knnmt.decoding.recorded_places import GAINS, TOKENS
from knnmt.engine.fixed_state import RecordingEngine, TurnState
from knnmt.index import base
from knnmt.native.gpu import kernel
from knnmt.retrieval.recorded import MixedInTurn, RecordedSteps, Rules

_NEVER = float("-inf")


def writes_to_host(arena: Arena) -> bool:
    """Whether steps write their results to the host themselves, which takes less time than a copy after the step."""
    return kernel("take", arena.draft.device) is not None


def stage(_engine: RecordingEngine, arena: Arena, cross: Sequence[Tensor], mask: Tensor) -> None:
    """Load the sources of sentences that wait."""
    arena.memory.stage(cross, mask)


def admit(
    engine: RecordingEngine, arena: Arena, sentences: int, source: int, drafted: bool, retrieval: RecordedSteps
) -> None:
    """So many waiting sentences, of at most so many source positions, take the places that `arena.admitted` tells.

    drafted: whether any of them begins with a draft
    """
    told = arena.admitted.numbers[:sentences]
    places = told[:, 0]
    arena.memory.admit(places, source)
    arena.tokens.index_fill_(0, places, engine.special_tokens.decoder_start)
    arena.generated.index_fill_(0, places, 0)
    arena.ended.index_copy_(0, places, told[:, 1].int())
    retrieval.admit(places, told[:, 2:4])
    if drafted:
        arena.draft.index_copy_(0, places, told[:, 4:])


def take_in(engine: RecordingEngine, arena: Arena, state: TurnState, token: int) -> None:
    """The decoder's step before a forced first token, for sentences that have no tokens yet; others repeat a step."""
    tokens, generated = arena.tokens[: state.sentences], arena.generated[: state.sentences]
    engine.step(state, tokens[..., None])
    new = generated == 0
    tokens.masked_fill_(new[:, None], token)
    generated += new


def advance(
    engine: RecordingEngine, arena: Arena, state: TurnState, turns: int, choice: Choice, retrieval: RecordedSteps
) -> None:
    """Steps for the first sentences of the arena, as many at once as there are turns."""
    sentences = state.sentences
    inputs = torch.cat([arena.tokens[:sentences], arena.draft[:sentences, : turns - 1]], dim=1)
    representations = engine.step(state, inputs[:, None])[:, 0]
    with arena.aside():
        found = retrieval.look(representations)
    if retrieval.chooses_in_one(engine.dtype):
        scores = engine.scores(representations)
        arena.join()
        best, tokens, mixed = retrieval.best_in_turn(found, scores, choice.rules, arena.generated)
        choice.take(arena, best, tokens, mixed, found, retrieval, scores.shape[-1])
    else:
        log_probabilities = engine.log_probabilities(representations)
        arena.join()
        mixed = retrieval.mix_in_turn(found, log_probabilities)
        choice(arena, log_probabilities, mixed, found, retrieval)


class Choice:
    """Decides which of several steps greedy search takes for each sentence, and what it drafts next: see take.cu."""

    def __init__(self, engine: RecordingEngine, config: DecodingConfig, sentences: int, turns: int) -> None:
        self._config, self._end = config, engine.special_tokens.end
        self._sentences, self._turns = sentences, turns
        self._kernel = kernel("take", engine.device)
        suppressed = torch.tensor(config.suppressed_tokens, dtype=torch.long, device=engine.device)
        self.rules = Rules(suppressed, self._end, config.min_tokens)
        self._ahead = torch.arange(turns, device=engine.device)
        self._numbers: Tensor | None = None

    def __call__(
        self, arena: Arena, log_probabilities: Tensor, mixed: MixedInTurn, found: base.Found, retrieval: RecordedSteps
    ) -> None:
        config = self._config
        if len(self.rules.forbidden):
            log_probabilities.index_fill_(-1, self.rules.forbidden, _NEVER)
        if config.min_tokens:
            early = arena.generated[: self._sentences, None] + self._ahead < config.min_tokens
            log_probabilities[..., self._end].masked_fill_(early, _NEVER)
        best, tokens = log_probabilities.max(-1)
        self.take(arena, best, tokens, mixed, found, retrieval, log_probabilities.shape[-1])

    def take(
        self,
        arena: Arena,
        best: Tensor,
        tokens: Tensor,
        mixed: MixedInTurn,
        found: base.Found,
        retrieval: RecordedSteps,
        vocabulary: int,
    ) -> None:
        """Take the best tokens of the steps, (sentences, turns), as far as they count, and draft the next ones."""
        if self._kernel is None:
            self._in_pytorch(arena, best, tokens, mixed, found[1], retrieval, vocabulary)
            return
        self._kernel(
            grid=(self._sentences, 1, 1),
            block=(32, 1, 1),
            args=[
                self._told(arena, found[1].shape[1], vocabulary),
                best,
                tokens,
                mixed.offsets,
                mixed.sums,
                mixed.steps,
                found[1].contiguous(),
                len(retrieval.values),
                retrieval.values,
                arena.draft,
                arena.tokens,
                arena.generated,
                arena.ended,
                retrieval.so_far.sums,
                retrieval.so_far.steps,
                arena.parity,
                arena.on_host,
            ],
        )

    def _told(self, arena: Arena, k: int, vocabulary: int) -> Tensor:
        """The constants of take.cu, on the device before anything is recorded."""
        if self._numbers is None:
            forced = -1 if self._config.forced_last_token is None else self._config.forced_last_token
            shapes = [self._turns, k, arena.draft.shape[1], arena.on_host.shape[2]]
            rules = [self._config.max_tokens, self._end, forced]
            numbers = [*shapes, *rules, vocabulary, arena.on_host[0].numel()]
            self._numbers = torch.tensor(numbers, dtype=torch.int32).to(arena.draft.device)
        return self._numbers

    def _in_pytorch(
        self,
        arena: Arena,
        best: Tensor,
        tokens: Tensor,
        mixed: MixedInTurn,
        ids: Tensor,
        retrieval: RecordedSteps,
        vocabulary: int,
    ) -> None:
        """The same as take.cu. Sentences that are done continue in the arena, but are ignored."""
        config, sentences, turns = self._config, self._sentences, self._turns
        draft, generated, ended = arena.draft[:sentences], arena.generated[:sentences], arena.ended[:sentences]
        places = generated[:, None] + self._ahead
        gains = best + mixed.offsets
        if config.forced_last_token is not None:
            at_end = places == config.max_tokens - 1
            tokens = tokens.masked_fill(at_end, config.forced_last_token)
            gains = gains.masked_fill(at_end, 0.0)
        stops = (tokens == self._end) | (places >= config.max_tokens - 1) | ~gains.isfinite()
        right = (tokens[:, :-1] == draft[:, : turns - 1]) & ~stops[:, :-1]
        taken = 1 + right.long().cumprod(1).sum(1)
        last = (taken - 1)[:, None]
        newest, offset = tokens.gather(1, last), mixed.offsets.gather(1, last)[:, 0]
        near = ids.view(sentences, turns, -1)[torch.arange(sentences, device=ids.device), taken - 1]
        values = retrieval.values
        having_it = (near >= 0) & (values[near.clamp(min=0)] == newest)
        known, first = having_it.any(1), having_it.int().argmax(1, keepdim=True)
        coming = near.gather(1, first) + 1 + torch.arange(draft.shape[1], device=ids.device)
        following = values[coming.clamp(min=0, max=len(values) - 1)].long()
        sound = (coming < len(values)) & (following >= 0) & (following < vocabulary)
        following = following.masked_fill(~sound, self._end)
        draft.copy_(torch.where(known[:, None], following, draft))
        ends = ((following != self._end) | ~known[:, None]).int().cumprod(1).sum(1)
        arena.tokens[:sentences] = newest
        retrieval.take(mixed, taken - 1)
        taken = taken.masked_fill(ended > 0, 0)
        stopped = stops.gather(1, last)[:, 0]
        chance = torch.where(known & (ended == 0), 1 - offset.exp(), 0.0)
        ends = ends.masked_fill(stopped, -1).masked_fill(ended > 0, 0)
        ended |= stopped.int()
        generated.copy_((generated + taken).masked_fill(ended > 0, 0))  # a later step may have fewer slots
        result = arena.chosen[:sentences]
        result[:, :TOKENS] = torch.stack([taken.int(), chance.view(torch.int32), ends.int()], dim=1)
        result[:, TOKENS : TOKENS + turns], result[:, GAINS : GAINS + turns] = tokens.int(), gains.view(torch.int32)
