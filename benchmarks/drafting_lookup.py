"""Tokens per pass with drafts from neighbours, beside drafts from n-grams that are looked up in the segments.

    python benchmarks/drafting_lookup.py STORE=DOMAIN ... [--segments 64] [--lines 100] [--pairs 0]

Development lines are translated greedily, one at a time. Each translation is then followed again with drafts from its
segments: the longest n-gram at its end, of at most 4 and at least `n` tokens, is looked up in the targets of the
segments, in the order in which they were chosen, and what follows its first occurrence is the draft. Nothing is timed.
The last row has the drafts that knnmt makes on a CPU, from the neighbours of the last token. A store that does not
exist is built first. Text comes from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

import harm
from knnmt.decoding.search import search
from knnmt.retrieval.open_store import Snapshot
from knnmt.retrieval.retriever import BatchRetrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.translator.translator import Translator

_LONGEST = 4  # n-grams that are looked up


def targets(store: Snapshot, source: Sequence[int], segments: int) -> list[list[int]]:
    """The target tokens of the segments chosen for a source, best first."""
    chosen = store.source_index.choose([source[:-1]], segments).sentences[0]
    entries = store.source_index.entries_of(chosen[:, None])
    return [store.index.entries.values_of(torch.from_numpy(ids)).tolist() for ids in entries]


def looked_up(so_far: Sequence[int], segments: Sequence[Sequence[int]], least: int, most: int) -> list[int]:
    """What follows the longest n-gram at the end of a translation so far."""
    for n in range(min(_LONGEST, len(so_far)), least - 1, -1):
        gram = list(so_far[-n:])
        for tokens in segments:
            for place in range(len(tokens) - n):
                if tokens[place : place + n] == gram:
                    return list(tokens[place + n : place + n + most])
    return []


def followed(translation: Sequence[int], segments: Sequence[Sequence[int]], least: int, most: int) -> tuple[int, int]:
    """The number of passes that a translation takes, and that of drafted tokens."""
    place = passes = drafted = 0
    while place < len(translation):
        draft = looked_up(translation[:place], segments, least, min(most, len(translation) - place - 1))
        right = 0
        while right < len(draft) and draft[right] == translation[place + right]:
            right += 1
        place, passes, drafted = place + right + 1, passes + 1, drafted + len(draft)
    return passes, drafted


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--segments", type=int, default=64)
    parser.add_argument("--lines", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=0)
    given = parser.parse_args()
    translator = Translator(device="cpu", threads=1)
    config = replace(translator.engine.generation, beam=1, n_best=1)
    print(
        "| domain | drafts | tokens per pass | drafted for each token | accepted |\n|---|---|---|---|---|", flush=True
    )
    for named in given.stores:
        place, _, domain = named.partition("=")
        if not Path(place).exists():
            harm.build(Path(place), domain, given.pairs, translator)
        retrieval = translator.retrieval(datastore=place, segments=given.segments)
        assert retrieval is not None
        texts = [pair.source for pair in harm.spread(harm.read(domain, "dev"), given.lines)]
        sources = translator.engine.tokenizer.encode_sources(texts)
        counted = Statistics()
        found = [search(translator.engine, [each], config, BatchRetrieval([retrieval], counted))[0] for each in sources]
        translations = [best[0].tokens for best in found]
        memories = [targets(retrieval.store.snapshot, each, given.segments) for each in sources]
        tokens = sum(map(len, translations))
        rows: list[tuple[str, int, int]] = []
        for least in (1, 2, 3):
            for most in (3, 7, 15):
                each = [followed(*pair, least, most) for pair in zip(translations, memories, strict=True)]
                passes, drafted = map(sum, zip(*each, strict=True))
                rows.append((f"n-grams, n ≥ {least}, at most {most}", passes, drafted))
        rows.append(("neighbours", counted.rows - counted.accepted, counted.drafted))
        for name, passes, drafted in rows:
            accepted = (tokens - passes) / max(drafted, 1)
            print(
                f"| {domain} | {name} | {tokens / passes:.2f} | {drafted / tokens:.2f} | {accepted:.0%} |", flush=True
            )


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
