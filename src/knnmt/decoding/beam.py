"""Beam search with the results of `transformers`' own: same candidates, same length penalty, same stopping.

Each step looks at the 2 x beam best continuations of a sentence, so that enough remain when some end. Those that end
and are among the best `beam` are finished hypotheses; the best that do not end continue. A sentence is done when `beam`
hypotheses are finished and no running one can still beat the worst of them, or when no continuation is possible. A
sentence that is impossible from the start has no hypothesis.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence

import torch

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.batch import Batch
from knnmt.decoding.hypothesis import Found, Growing, Hypothesis, unheard
from knnmt.engine.base import Engine, State
from knnmt.retrieval.retriever import BatchRetrieval

_COMPACT_EVERY = 16


class Finished:
    """The best finished hypotheses of one sentence, at most `beam` of them, best first."""

    def __init__(self, config: DecodingConfig) -> None:
        self._config = config
        self.hypotheses: list[Hypothesis] = []

    def add(self, ended: Hypothesis) -> None:
        """ended: with the sum of its log-probabilities as score"""
        if not math.isfinite(ended.score):  # made of forbidden tokens only, if nothing else was left
            return
        score = ended.score / len(ended.tokens) ** self._config.length_penalty
        if len(self.hypotheses) == self._config.beam and score <= self.hypotheses[-1].score:
            return
        insort(self.hypotheses, ended.scored(score), key=lambda hypothesis: -hypothesis.score)
        del self.hypotheses[self._config.beam :]

    def closed(self, best_running: float, length: int) -> bool:
        """Whether the running hypotheses, of `length` tokens, can be given up."""
        config = self._config
        if best_running == float("-inf"):  # whatever follows an impossible token is impossible
            return True
        if len(self.hypotheses) < config.beam:
            return False
        if config.early_stopping is True:
            return True
        hopeful = config.early_stopping == "never" and config.length_penalty > 0
        reachable = config.max_tokens if hopeful else length
        reachable_score: float = best_running / reachable**config.length_penalty
        return reachable_score <= self.hypotheses[-1].score


def beam_search(
    engine: Engine[State],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    retrieval: BatchRetrieval | None = None,
    found: Found = unheard,
    growing: Growing | None = None,
) -> list[list[Hypothesis]]:
    """The `config.n_best` best hypotheses for each source, best first."""
    beam, end = config.beam, engine.special_tokens.end
    batch = Batch(engine, sources, config, retrieval)
    finished = [Finished(config) for _ in sources]

    with torch.inference_mode():
        steps = 1
        while True:
            best, parents, tokens = batch.best(2 * beam, steps)
            with timing.stage("beam"):
                length = batch.history.shape[-1] + 1
                ends = tokens == end
                if length == config.max_tokens:
                    ends.fill_(True)

                ended = ends[:, :beam].nonzero(as_tuple=True)
                if sentences := ended[0].tolist():
                    hypotheses = batch.ended(ended[0], parents[ended], tokens[ended], best[ended])
                    for i, hypothesis in zip(sentences, hypotheses, strict=True):
                        finished[batch.sources[i]].add(hypothesis)
                if length == config.max_tokens:
                    break

                # The best candidates that did not end, in order of their scores. After a forced token there is one;
                # impossible ones beside it would be searched for, and would count as steps of their sentence.
                forced = length == 1 and config.forced_first_token is not None
                going = best.masked_fill(ends, float("-inf")).topk(1 if forced else beam).indices
                batch.follow(parents.gather(1, going), tokens.gather(1, going), best.gather(1, going))

                leaders = batch.scores[:, 0].tolist()
                running = enumerate(batch.sources)
                open_ = [i for i, source in running if not finished[source].closed(leaders[i], length)]
                if not open_:
                    break
                if len(open_) < len(batch.sources):
                    for source in set(batch.sources) - {batch.sources[i] for i in open_}:
                        found(source, finished[source].hypotheses[: config.n_best])
                    batch.keep(open_)
                if growing is not None:
                    growing(batch.leading)
                if length % _COMPACT_EVERY == 0:
                    batch.state.compact()
                # Steps that nobody has to look at, unless a hypothesis ends: no sentence can be done before that.
                undecided = all(len(finished[source].hypotheses) < beam for source in batch.sources)
                alone = growing is None and undecided and batch.tokens.shape[1] == beam
                steps = _COMPACT_EVERY - length % _COMPACT_EVERY if alone else 1
    return [each.hypotheses[: config.n_best] for each in finished]
