"""Tokens per pass with drafts from neighbours, beside drafts from n-grams that are looked up in the segments.

    python benchmarks/drafting_lookup.py STORE=DOMAIN ... [--segments 64] [--lines 100] [--pairs 0]

Development lines are translated greedily, one at a time. Each translation is then followed again with drafts from its
segments: the longest n-gram at its end, of at most 4 and at least `n` tokens, is looked up in the targets of the
segments, in the order in which they were chosen, and what follows its first occurrence is the draft. Nothing is timed.
The last rows have drafts that follow the neighbours of the last token: 3 or 7 tokens in every pass, as in steps on a
GPU, and as many as are probable enough, as on a CPU. A store that does not exist is built first. Text comes from
KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

import harm
from knnmt import spread
from knnmt.decoding import recorded_drafts
from knnmt.decoding.search import search
from knnmt.engine.fixed_state import RecordingEngine
from knnmt.retrieval.open_store import Snapshot
from knnmt.retrieval.retriever import BatchRetrieval, Retrieval
from knnmt.retrieval.statistics import Statistics
from knnmt.translator.translator import Translator
from knnmt_lab.scripts import argument_parser, print_header, print_row, read_domain

_LONGEST = 4  # n-grams that are looked up
_TOGETHER = 16  # sentences of a batch


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


def of_every_step(
    translator: Translator, sources: Sequence[Sequence[int]], retrieval: Retrieval, most: int
) -> Statistics:
    """Counts if every step computes so many drafted tokens; without compiled code, so that this also runs on a CPU."""
    counted = Statistics()
    config = replace(translator.engine.generation, beam=1, n_best=1)
    vars(recorded_drafts)["turns_for"] = lambda *_: most + 1
    for first in range(0, len(sources), _TOGETHER):
        some = sources[first : first + _TOGETHER]
        batch = BatchRetrieval([retrieval] * len(some), counted)
        recorded = batch.recorded()
        assert recorded is not None
        assert isinstance(translator.engine, RecordingEngine)
        recorded_drafts.recorded_drafts(translator.engine, some, config, batch, recorded)
    return counted


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--segments", type=int, default=64)
    parser.add_argument("--lines", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=0)
    given = parser.parse_args()
    translator = Translator(device="cpu", threads=1)
    config = replace(translator.engine.generation, beam=1, n_best=1)
    print_header("domain", "drafts", "tokens per pass", "drafted for each token", "accepted")
    for named in given.stores:
        place, _, domain = named.partition("=")
        if not Path(place).exists():
            harm.build(Path(place), domain, given.pairs, translator)
        retrieval = translator.retrieval(datastore=place, segments=given.segments)
        assert retrieval is not None
        texts = [pair.source for pair in spread(read_domain(domain, "dev"), given.lines)]
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
        for most in (3, 7):
            each_step = of_every_step(translator, sources, retrieval, most)
            name = f"neighbours, {most} in every pass"
            rows.append((name, each_step.rows - each_step.accepted, each_step.drafted))
        rows.append(("neighbours, while probable", counted.rows - counted.accepted, counted.drafted))
        for name, passes, drafted in rows:
            accepted = (tokens - passes) / max(drafted, 1)
            print_row(domain, name, f"{tokens / passes:.2f}", f"{drafted / tokens:.2f}", f"{accepted:.0%}")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
