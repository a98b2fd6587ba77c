"""The steps of a batch in PyTorch, as equations 1 to 3 say: every engine, device, retrieval and constraint.

Tests compare the other backends with this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.backend import Leading
from knnmt.decoding.constrained import WithRequirements
from knnmt.decoding.constraints import Constraints
from knnmt.decoding.continuations import Choose, Freely
from knnmt.decoding.hypothesis import NEVER, Hypothesis, Numbers, Scores
from knnmt.decoding.requirements import ConstrainedSentence
from knnmt.engine.base import Engine
from knnmt.engine.batching import with_gaps_filled
from knnmt.retrieval.retriever import BatchRetrieval

_COMPACT_EVERY = 16


class ReferenceBackend:
    """See `knnmt.decoding.backend.Backend`.

    choose: decides what follows a step, `Freely` without it
    tokens: (sentences, width), the newest token of each hypothesis
    history: (sentences, width, generated so far)
    scores: (sentences, width), sums of log-probabilities
    rows, base: (sentences, width, generated so far), if evidence is recorded: the row of its step that each token came
        from, and the model's own log-probability of it
    """

    def __init__(
        self,
        engine: Engine[Any],
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        retrieval: BatchRetrieval | None,
        constrained: Sequence[ConstrainedSentence] = (),
    ) -> None:
        self._engine, self._retrieval = engine, retrieval
        end = engine.special_tokens.end
        self._choose: Choose = WithRequirements(constrained, end, engine.device) if constrained else Freely(config, end)
        self._has_gaps = bool(constrained)
        self._constraints = Constraints(config, end, engine.device)
        encoded = engine.encode(sources)
        if retrieval is not None:
            retrieval.begin(encoded, sources)
        self._state = engine.start(encoded)
        self.context = nullcontext()
        self.sentences = np.arange(len(sources))
        self.leaders = np.zeros(len(sources))
        self._tokens = torch.full((len(sources), 1), engine.special_tokens.decoder_start, device=engine.device)
        self._history = self._tokens[:, :, None][:, :, :0]
        self._scores = torch.zeros((len(sources), 1), device=engine.device)
        self._records = retrieval is not None and retrieval.evidence is not None
        self._rows = self._history
        self._base = self._scores[:, :, None][:, :, :0]

    @property
    def lengths(self) -> Numbers:
        return np.full(len(self.sentences), self._history.shape[-1])

    def advance(self, least: Scores, one_step: bool) -> list[tuple[int, Hypothesis]]:  # noqa: ARG002
        scores, log_probabilities = self._step()
        with timing.stage("beam"):
            chosen = self._choose(scores, log_probabilities, self._history.shape[-1] + 1)
            ended = []
            if len(chosen.ended[0]):
                numbers = self.sentences[chosen.ended[0].cpu().numpy()].tolist()
                ended = list(zip(numbers, self._ended(log_probabilities, *chosen.ended), strict=True))
            self._follow(log_probabilities, *chosen.going)
            self.leaders = np.array(chosen.leaders)
            if self._history.shape[-1] % _COMPACT_EVERY == 0:
                self._state.compact()
        return ended

    def keep(self, places: Sequence[int]) -> None:
        places = with_gaps_filled(places)
        if places:
            self._state.keep(places)
            self._choose.keep(places)
            if self._retrieval is not None:
                self._retrieval.keep(places)
        self.sentences, self.leaders = self.sentences[places], self.leaders[places]
        self._tokens, self._history, self._scores = self._tokens[places], self._history[places], self._scores[places]
        if self._records:
            self._rows, self._base = self._rows[places], self._base[places]

    def leading(self) -> Leading:
        return dict(zip(self.sentences.tolist(), self._history[:, 0].tolist(), strict=True))

    def _step(self) -> tuple[Tensor, Tensor]:
        """Scores so far (sentences, width) and log-probabilities of the next token (sentences, width, vocabulary).

        A continuation's score is the sum of both.
        """
        engine, retrieval, generated = self._engine, self._retrieval, self._history.shape[-1]
        representations = engine.step(self._state, self._tokens[..., None])[:, :, 0]
        log_probabilities = engine.log_probabilities(representations)
        scores = self._scores
        if self._has_gaps:  # of which a memory may find nothing that counts for the sentence
            representations = representations.masked_fill((scores == NEVER)[..., None], math.inf)
        if retrieval is not None:
            if self._constraints.forces(generated):
                retrieval.skip()
            else:
                scores = scores + retrieval.mix(representations, log_probabilities, self._history)
        self._constraints.apply(log_probabilities, generated, self._history)
        return scores, log_probabilities

    def _ended(
        self, log_probabilities: Tensor, sentences: Tensor, parents: Tensor, tokens: Tensor, scores: Tensor
    ) -> list[Hypothesis]:
        """The hypotheses that end when these tokens are added to these rows, (n,) each, with the given scores."""
        prefixes = self._history[sentences, parents].tolist()
        ends = zip(prefixes, tokens.tolist(), scores.tolist(), strict=True)
        found = [Hypothesis((*prefix, token), score) for prefix, token, score in ends]
        if self._records:
            rows, base = self._origins(log_probabilities, sentences, parents, tokens)
            trails = zip(
                torch.cat([self._rows[sentences, parents], rows[:, None]], dim=1).tolist(),
                torch.cat([self._base[sentences, parents], base[:, None]], dim=1).tolist(),
                strict=True,
            )
            found = [
                replace(each, rows=tuple(trail[0]), base=tuple(trail[1]))
                for each, trail in zip(found, trails, strict=True)
            ]
        return found

    def _follow(self, log_probabilities: Tensor, parents: Tensor, tokens: Tensor, scores: Tensor) -> None:
        """Row w of a sentence continues its row parents[:, w] with tokens[:, w]; (sentences, width) each."""
        if self._records:
            sentences = torch.arange(len(tokens), device=tokens.device)[:, None].expand_as(tokens)
            flat = (sentences.flatten(), parents.flatten(), tokens.flatten())
            rows, base = self._origins(log_probabilities, *flat)
            self._rows = _continued(self._rows, parents, rows.view_as(tokens))
            self._base = _continued(self._base, parents, base.view_as(tokens))
        self._history = _continued(self._history, parents, tokens)
        self._tokens, self._scores = tokens, scores
        if self._state.width == 1 and tokens.shape[1] > 1:
            self._state.widen(tokens.shape[1])
        elif tokens.shape[1] > 1:
            self._state.reorder(parents)

    def _origins(
        self, log_probabilities: Tensor, sentences: Tensor, parents: Tensor, tokens: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The rows of the last step from which tokens were chosen, and the model's own log-probabilities of them."""
        rows = sentences * log_probabilities.shape[1] + parents
        scores = log_probabilities.view(-1, log_probabilities.shape[-1])
        assert self._retrieval is not None  # noqa: S101 - nothing records without it
        return rows, self._retrieval.base_log_probabilities(scores, rows, tokens)


def _continued(history: Tensor, parents: Tensor, new: Tensor) -> Tensor:
    """history (sentences, width before, length), of which each row takes its parent's; new (sentences, width)."""
    ancestry = history  # of a single row
    if history.shape[1] > 1 or parents.shape[1] > 1:
        ancestry = history.gather(1, parents[..., None].expand(-1, -1, history.shape[-1]))
    return torch.cat([ancestry, new[..., None]], dim=-1)
