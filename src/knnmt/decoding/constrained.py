"""Beam search for translations with required content: Post and Vilar 2018, Hu et al. 2019.

Each hypothesis tracks how much of the required content it has (`knnmt.decoding.requirements`). The beam is divided by
the number of met requirements, so that hypotheses with more of them are not dropped for likelier ones with fewer. At
each step a hypothesis continues with its likeliest tokens, and with those that start or continue a requirement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from knnmt import timing
from knnmt.config import DecodingConfig
from knnmt.decoding.batch import Batch
from knnmt.decoding.beam import Finished
from knnmt.decoding.continuations import best_continuations
from knnmt.decoding.hypothesis import Hypothesis
from knnmt.decoding.requirements import Fulfilment, Requirements
from knnmt.engine.base import Engine, State
from knnmt.engine.batching import with_gaps_filled
from knnmt.retrieval.retriever import BatchRetrieval

_COMPACT_EVERY = 16
_NEVER = float("-inf")
_MAX_MORE_HYPOTHESES = 16  # hypotheses beyond the beam: two for each requirement, at most this many
_PATIENCE = 4  # tokens
_SLACK = 16  # tokens of a translation beyond twice those of its source and all that is required


@dataclass(frozen=True, slots=True)
class _Candidate:
    score: float
    parent: int
    token: int
    progress: Fulfilment


def constrained_search(
    engine: Engine[State],
    sources: Sequence[Sequence[int]],
    required: Sequence[Requirements],
    config: DecodingConfig,
    retrieval: BatchRetrieval | None = None,
) -> list[list[Hypothesis]]:
    """Hypotheses with all that each source requires, at most `config.n_best`, best first; there may be none."""
    # A sentence has at most as many tokens and hypotheses as it would have alone; the rest of its rows is impossible.
    configs = [
        replace(
            config,
            max_tokens=min(config.max_tokens, _longest(source, one)),
            length_penalty=one.length_penalty * config.length_penalty,
        )
        for source, one in zip(sources, required, strict=True)
    ]
    widths = [config.beam + min(2 * one.total, _MAX_MORE_HYPOTHESES) for one in required]
    config, width = replace(config, max_tokens=max(each.max_tokens for each in configs)), max(widths)
    batch = Batch(engine, sources, config, retrieval)
    finished = [Finished(each) for each in configs]
    rows = [_Rows(one, [one.begin()]) for one in required]  # of each sentence in the batch
    only = torch.from_numpy(np.stack([one.only for one in required])).to(engine.device)
    joins = torch.from_numpy(required[0].words.joins).to(engine.device)
    end = engine.special_tokens.end

    with torch.inference_mode():
        for length in range(1, config.max_tokens + 1):
            scores, log_probabilities = batch.step()
            with timing.stage("constrained"):
                if config.forced_last_token is not None:
                    last = [i for i, source in enumerate(batch.sources) if length == configs[source].max_tokens]
                    log_probabilities[last] = _NEVER
                    log_probabilities[last, :, config.forced_last_token] = 0.0
                advancing = _restrict(log_probabilities, scores, rows, only, joins, end)
                likeliest = _likeliest(scores, log_probabilities, config.beam + 1)
                going: list[list[_Candidate]] = []
                for i, each in enumerate(rows):
                    candidates = each.candidates([*likeliest[i], *advancing[i]])
                    ended = [candidate for candidate in candidates if candidate.token == end][: config.beam]
                    others = [candidate for candidate in candidates if candidate.token != end]
                    going.append(each.shared(others, widths[batch.sources[i]]))
                    for hypothesis in _ended(batch, i, ended):
                        finished[batch.sources[i]].add(hypothesis)
                running = [
                    i
                    for i, source in enumerate(batch.sources)
                    if going[i]
                    and length < configs[source].max_tokens
                    and not _closed(
                        finished[source], going[i], required[source], length, len(sources[source]), configs[source]
                    )
                ]
                if not running:
                    break
                for each, candidates in zip(rows, going, strict=True):
                    each.follow(candidates, width)
                batch.follow(*_filled(going, width, end, engine.device))
                kept = with_gaps_filled(running)
                batch.keep(running)
                rows, only = [rows[i] for i in kept], only[kept]
                if length % _COMPACT_EVERY == 0:
                    batch.state.compact()
    return [each.hypotheses[: config.n_best] for each in finished]


class _Rows:
    """The hypotheses of one sentence, and the progress of each."""

    def __init__(self, required: Requirements, progress: list[Fulfilment]) -> None:
        self.required, self.progress = required, progress

    def candidates(self, continuations: Iterable[tuple[float, int, int]]) -> list[_Candidate]:
        """The allowed ones of some continuations (score, row, token), best first, without duplicates."""
        found: dict[tuple[int, int], _Candidate] = {}
        for score, parent, token in continuations:
            if score == _NEVER or score != score or (parent, token) in found:
                continue
            after = self.required.after(self.progress[parent], token)
            if after is not None:
                found[parent, token] = _Candidate(score, parent, token, after)
        return sorted(found.values(), key=lambda candidate: -candidate.score)

    def shared(self, candidates: Sequence[_Candidate], width: int) -> list[_Candidate]:
        """The best of each share of the beam in turn, until the beam is full.

        Hypotheses that have met as much are in three shares: between requirements, at the first token of one, and
        further inside. There the furthest one comes first: a requirement costs more with every token, and would
        otherwise be given up for a new start. The shares with the best hypotheses and those with most met come first in
        turn.
        """
        shares: dict[tuple[int, int], list[tuple[int, _Candidate]]] = {}
        for candidate in candidates:  # best first
            met, depth = self.required.share(candidate.progress)
            shares.setdefault((met, min(depth, 2)), []).append((depth, candidate))
        ordered: dict[tuple[int, int], list[_Candidate]] = {}
        for share, found in shares.items():
            furthest = max(found, key=lambda each: each[0])
            ordered[share] = [furthest[1], *(each for _, each in found if each is not furthest[1])]
        by_met = sorted(ordered, reverse=True)
        by_score = sorted(ordered, key=lambda share: -ordered[share][0].score)
        turns = dict.fromkeys(share for both in zip(by_score, by_met, strict=True) for share in both)
        in_turn = zip_longest(*(ordered[share] for share in turns))
        chosen = [candidate for turn in in_turn for candidate in turn if candidate is not None][:width]
        return sorted(chosen, key=lambda candidate: -candidate.score)

    def follow(self, chosen: Sequence[_Candidate], width: int) -> None:
        """Continue with the chosen ones; rows without one are as at the beginning, and impossible."""
        self.progress = [candidate.progress for candidate in chosen]
        self.progress += [self.required.begin()] * (width - len(chosen))


def _restrict(
    log_probabilities: Tensor, scores: Tensor, sentences: Sequence[_Rows], only: Tensor, joins: Tensor, end: int
) -> list[list[tuple[float, int, int]]]:
    """Make forbidden tokens impossible, in place; return what starts or continues a requirement: score, row, token.

    log_probabilities (sentences, width, vocabulary); scores (sentences, width); only (sentences, vocabulary), tokens
    that may occur nowhere else; joins (vocabulary,)
    """
    places = [
        (i, row, token)
        for i, each in enumerate(sentences)
        for row, progress in enumerate(each.progress)
        for token in each.required.advancing(progress)
    ]
    at = torch.tensor(places, dtype=torch.long, device=scores.device).view(-1, 3).unbind(1)
    values = log_probabilities[at]
    log_probabilities.masked_fill_(only[:, None], _NEVER)
    every = [(i, row, each.required, p) for i, each in enumerate(sentences) for row, p in enumerate(each.progress)]
    for mask, asked in (
        (joins, [(i, row) for i, row, required, p in every if required.must_not_join(p)]),
        (None, [(i, row) for i, row, required, p in every if required.only_advances(p)]),
    ):
        if asked:
            here = torch.tensor(asked, device=scores.device).unbind(1)
            log_probabilities[here] = _NEVER if mask is None else log_probabilities[here].masked_fill(mask, _NEVER)
    unmet = [(i, row) for i, row, required, p in every if not required.is_met(p)]
    if unmet:
        here = torch.tensor(unmet, device=scores.device).unbind(1)
        log_probabilities[here[0], here[1], end] = _NEVER
    log_probabilities[at] = values
    found: list[list[tuple[float, int, int]]] = [[] for _ in sentences]
    for (i, row, token), score in zip(places, (values + scores[at[0], at[1]]).tolist(), strict=True):
        found[i].append((score, row, token))
    return found


def _likeliest(scores: Tensor, log_probabilities: Tensor, count: int) -> list[list[tuple[float, int, int]]]:
    """The likeliest continuations of every row of each sentence: score, row, token.

    Those of a sentence as a whole would all come from rows that have met little.
    """
    sentences, width, vocabulary = log_probabilities.shape
    rows = log_probabilities.reshape(-1, 1, vocabulary)
    best, _, tokens = best_continuations(scores.reshape(-1, 1), rows, min(count, vocabulary))
    found = zip(best.tolist(), tokens.tolist(), strict=True)
    of_rows = [[*zip(values, here, strict=True)] for values, here in found]
    return [
        [(score, row, token) for row in range(width) for score, token in of_rows[sentence * width + row]]
        for sentence in range(sentences)
    ]


def _ended(batch: Batch[State], sentence: int, chosen: Sequence[_Candidate]) -> list[Hypothesis]:
    if not chosen:
        return []
    parents = torch.tensor([each.parent for each in chosen], device=batch.tokens.device)
    tokens = torch.tensor([each.token for each in chosen], device=batch.tokens.device)
    scores = torch.tensor([each.score for each in chosen], device=batch.tokens.device)
    return batch.ended(torch.full_like(parents, sentence), parents, tokens, scores)


def _filled(
    going: Sequence[Sequence[_Candidate]], width: int, end: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Parents, tokens and scores, (sentences, width) each."""
    gap = (0, end, _NEVER)
    rows = [
        [*((each.parent, each.token, each.score) for each in chosen), *[gap] * (width - len(chosen))]
        for chosen in going
    ]
    parents, tokens, scores = ([[each[part] for each in row] for row in rows] for part in range(3))
    return (
        torch.tensor(parents, device=device),
        torch.tensor(tokens, device=device),
        torch.tensor(scores, dtype=torch.float32, device=device),
    )


def _closed(
    finished: Finished,
    going: Sequence[_Candidate],
    required: Requirements,
    length: int,
    source: int,
    config: DecodingConfig,
) -> bool:
    """Whether running hypotheses can be given up: enough are finished, and none can become better.

    A hypothesis that still lacks something is likelier than all complete ones, and would be followed for ever: it
    counts only up to the usual length of a translation.
    """
    if len(finished.hypotheses) < config.n_best:
        return False
    late = length > source + source // 4 + _PATIENCE
    hopeful = [each.score for each in going if not late or required.is_met(each.progress)]
    reachable: float = max(hopeful, default=_NEVER) / length**config.length_penalty
    return reachable <= finished.hypotheses[config.n_best - 1].score


def _longest(source: Sequence[int], required: Requirements) -> int:
    tokens = sum(each.times * max(map(len, each.sequences)) for each in required.required)
    return 2 * len(source) + tokens + _SLACK
