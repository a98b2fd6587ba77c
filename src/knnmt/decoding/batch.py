"""A batch while it is decoded: what greedy and beam search have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic

import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.continuations import best_continuations, best_tokens
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.engine.base import Engine, State
from knnmt.engine.batching import with_gaps_filled
from knnmt.engine.compiled_ahead import EngineAhead, Running
from knnmt.engine.state import TransformerState
from knnmt.retrieval.retriever import BatchRetrieval


class Batch(Generic[State]):
    """Sentences with `width` running hypotheses each; a sentence that is done leaves.

    sources: the source of each sentence of the batch
    tokens: (sentences, width), the newest token of each hypothesis
    history: (sentences, width, generated so far)
    scores: (sentences, width), sums of log-probabilities
    rows, base: (sentences, width, generated so far), if evidence is recorded: the row of its step that each token came
        from, and the model's own log-probability of it
    """

    def __init__(
        self,
        engine: Engine[State],
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        retrieval: BatchRetrieval | None,
    ) -> None:
        self._engine = engine
        self._retrieval = retrieval
        self._constraints = Constraints(config, engine.special_tokens.end, engine.device)
        encoded = engine.encode(sources)
        if retrieval is not None:
            retrieval.begin(encoded, sources)
        self.state = engine.start(encoded)
        self._ahead = engine.ahead if retrieval is None and isinstance(engine, EngineAhead) else None
        self.sources = list(range(len(sources)))
        self.tokens = torch.full((len(sources), 1), engine.special_tokens.decoder_start, device=engine.device)
        self.history = self.tokens[:, :, None][:, :, :0]
        self.scores = torch.zeros((len(sources), 1), device=engine.device)
        self.records = retrieval is not None and retrieval.steps is not None
        self.rows = self.history
        self.base = self.scores[:, :, None][:, :, :0]
        self._log_probabilities = self.scores

    def best(self, count: int, most: int = 1) -> tuple[Tensor, Tensor, Tensor]:
        """Make a step; return its best continuations: scores, parent rows and tokens, (sentences, count) each.

        most: so many steps may be made in one compiled call, as long as each sentence just follows its best
        continuations: none of these ends, and one is possible. The results are then those of the last step.
        """
        never, steps = self._constraints.steady(self.history.shape[-1])
        if self._ahead is not None and isinstance(self.state, TransformerState) and steps > 0:
            running = Running(self.tokens, self.history, self.scores)
            steps, end = min(most, steps), self._engine.special_tokens.end
            now, *found = self._ahead.run(self.state, running, count, steps, end, never)
            self.tokens, self.history, self.scores = now.tokens, now.history, now.scores
            best, parents, tokens = found
            return best, parents, tokens
        scores, log_probabilities = self.step()
        with timing.stage("greedy" if count == 1 else "beam"):
            if count > 1:
                return best_continuations(scores, log_probabilities, count)
            best, tokens = best_tokens(log_probabilities[:, 0])
            return best[:, None] + scores, torch.zeros_like(tokens)[:, None], tokens[:, None]

    def step(self) -> tuple[Tensor, Tensor]:
        """Scores so far (sentences, width) and log-probabilities of the next token (sentences, width, vocabulary).

        A continuation's score is the sum of both.
        """
        engine, retrieval = self._engine, self._retrieval
        representations = engine.step(self.state, self.tokens[..., None])[:, :, 0]
        log_probabilities = engine.log_probabilities(representations)
        scores = self.scores
        if retrieval is not None:
            if self._constraints.forces(self.history.shape[-1]):
                retrieval.skip()
            else:
                scores = scores + retrieval.mix(representations, log_probabilities, self.history)
        self._constraints.apply(log_probabilities, self.history.shape[-1], self.history)
        self._log_probabilities = log_probabilities
        return scores, log_probabilities

    def ended(self, sentences: Tensor, parents: Tensor, tokens: Tensor, scores: Tensor) -> list[Hypothesis]:
        """The hypotheses that end when these tokens are added to these rows, (n,) each, with the given scores."""
        prefixes = self.history[sentences, parents].tolist()
        ends = zip(prefixes, tokens.tolist(), scores.tolist(), strict=True)
        found = [Hypothesis((*prefix, token), score) for prefix, token, score in ends]
        if self.records:
            rows, base = self._origins(sentences, parents, tokens)
            trails = zip(
                torch.cat([self.rows[sentences, parents], rows[:, None]], dim=1).tolist(),
                torch.cat([self.base[sentences, parents], base[:, None]], dim=1).tolist(),
                strict=True,
            )
            found = [
                replace(each, rows=tuple(trail[0]), base=tuple(trail[1]))
                for each, trail in zip(found, trails, strict=True)
            ]
        return found

    def leading(self) -> dict[int, list[int]]:
        """The tokens of each sentence's first hypothesis, by the number of its source."""
        return dict(zip(self.sources, self.history[:, 0].tolist(), strict=True))

    def follow(self, parents: Tensor, tokens: Tensor, scores: Tensor) -> None:
        """Row w of a sentence continues its row parents[:, w] with tokens[:, w]; (sentences, width) each."""
        if self.records:
            sentences = torch.arange(len(tokens), device=tokens.device)[:, None].expand_as(tokens)
            rows, base = self._origins(sentences.flatten(), parents.flatten(), tokens.flatten())
            self.rows = _continued(self.rows, parents, rows.view_as(tokens))
            self.base = _continued(self.base, parents, base.view_as(tokens))
        self.history = _continued(self.history, parents, tokens)
        self.tokens, self.scores = tokens, scores
        if self.state.width == 1 and tokens.shape[1] > 1:
            self.state.widen(tokens.shape[1])
        elif tokens.shape[1] > 1:
            self.state.reorder(parents)

    def keep(self, open_: Sequence[int]) -> None:
        """Continue only with these sentences of the batch."""
        if len(open_) == len(self.sources):
            return
        kept = with_gaps_filled(open_)
        self.state.keep(kept)
        if self._retrieval is not None:
            self._retrieval.keep(kept)
        self.sources = [self.sources[i] for i in kept]
        self.tokens, self.history, self.scores = self.tokens[kept], self.history[kept], self.scores[kept]
        if self.records:
            self.rows, self.base = self.rows[kept], self.base[kept]

    def _origins(self, sentences: Tensor, parents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the last step from which tokens were chosen, and the model's own log-probabilities of them."""
        width = self._log_probabilities.shape[1]
        rows = sentences * width + parents
        scores = self._log_probabilities.view(-1, self._log_probabilities.shape[-1])
        assert self._retrieval is not None  # noqa: S101 - nothing records without it
        return rows, self._retrieval.base_log_probabilities(scores, rows, tokens)


def _continued(history: Tensor, parents: Tensor, new: Tensor) -> Tensor:
    """history (sentences, width before, length), of which each row takes its parent's; new (sentences, width)."""
    ancestry = history  # of a single row
    if history.shape[1] > 1 or parents.shape[1] > 1:
        ancestry = history.gather(1, parents[..., None].expand(-1, -1, history.shape[-1]))
    return torch.cat([ancestry, new[..., None]], dim=-1)
