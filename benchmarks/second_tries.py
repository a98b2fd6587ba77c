"""Counts how often guarded translations need other searches, and which of them gives the translation.

    python benchmarks/second_tries.py DIRECTORY [--units 40] [--pairs 2000] [--terms]

The documents and the memory are those of `packages.py`, which keeps them in DIRECTORY. They are translated with a
datastore of the memory. Each search that the guard asks for is counted by its kind, with the texts that it is for, and
with the texts of which it gave the best translation. --terms gives a glossary, too: the messages of the memory that are
one word in both languages.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from knnmt import Datastore, Glossary, Request, SegmentPair, Translator
from knnmt.decoding.requirements import Requirements
from knnmt.documents.opening import open_document
from knnmt.errors import InPiecesWarning, SourceKeptWarning
from knnmt.translator.assembly import Part
from knnmt.translator.attempts import Search
from knnmt.translator.guarded_search import GuardedSearch
from knnmt.translator.segments import Job
from knnmt_lab.scripts import argument_parser, print_header, print_row
from packages import PACKAGES, document_of, memory_of

FIRST, STAND_INS, PIECES = "free", "free, with stand-ins", "pieces, or the source"
_WORD = re.compile(r"[^\W\d_]{4,}")


SEARCHED, BEST = Counter[str](), Counter[str]()  # texts that each kind of search was for, and whose translation it gave


class Counting(GuardedSearch):
    """Counts the searches of guarded translations."""

    def guarded(
        self, jobs: Sequence[Job], found: Sequence[Sequence[Part]], search: Search, n_best: int = 1
    ) -> list[list[Part]]:
        """As that of a `GuardedSearch`."""
        origins: dict[int, dict[tuple[int, ...], str]] = {id(job.segment): {} for job in jobs}

        def remember(job: Job, parts: Sequence[Part], kind: str) -> None:
            SEARCHED[kind] += 1
            for part in parts:
                origins.get(id(job.segment), {}).setdefault(part.hypothesis.tokens, kind)

        def counted(jobs: Sequence[Job], required: Sequence[Requirements] | None) -> list[list[Part]]:
            results = search(jobs, required)
            for job, parts in zip(jobs, results, strict=True):
                if id(job.segment) in origins:  # and not a piece of one
                    remember(job, parts, _kind(job, required))
            return results

        for job, parts in zip(jobs, found, strict=True):
            remember(job, parts, FIRST)
        results = super().guarded(jobs, found, counted, n_best)
        for job, parts in zip(jobs, results, strict=True):
            if parts and any(each.kind in (InPiecesWarning, SourceKeptWarning) for each in parts[0].cautions):
                BEST[PIECES] += 1
            elif parts:  # the tokens of a text with stand-ins change when placeholders take their places
                BEST[origins[id(job.segment)].get(parts[0].hypothesis.tokens, STAND_INS)] += 1
        return results


def _kind(job: Job, required: Sequence[Requirements] | None) -> str:
    if required is None:
        return STAND_INS
    return "constrained" if job.retrieval is not None else "constrained, by the model alone"


def requests_of(source: str, place: Path, glossary: Glossary | None) -> list[Request]:
    """The untranslated texts of all documents in a language."""
    found: list[Request] = []
    for package in PACKAGES:
        if package.source == source:
            units = open_document(document_of(package, place, 0)).units
            found += [
                Request(each.source, glossary=glossary, text_kinds=each.text_kinds)
                for each in units
                if each.translatable
            ]
    return found


def main() -> None:
    options = argument_parser(__doc__)
    options.add_argument("place", metavar="DIRECTORY", type=Path)
    options.add_argument("--units", type=int, default=40)
    options.add_argument("--pairs", type=int, default=2_000)
    options.add_argument("--terms", action="store_true")
    asked = options.parse_args()
    warnings.simplefilter("ignore")
    for package in PACKAGES:
        document_of(package, asked.place, asked.units)
    lines = memory_of(asked.place, asked.pairs).read_text(encoding="utf-8").splitlines()
    pairs = [(german, english) for german, _, english in (line.partition("\t") for line in lines)]
    count = 0
    for source, target in (("de", "en"), ("en", "de")):
        translator = Translator(f"{source}-{target}", device="cpu")
        sides = pairs if source == "de" else [(english, german) for german, english in pairs]
        store = asked.place / f"second-tries-{source}.store"
        if not store.exists():
            Datastore.build(store, [SegmentPair(*pair, "memory.tsv") for pair in sides], translator.engine)
        words = [pair for pair in sides if all(map(_WORD.fullmatch, pair))]
        requests = requests_of(source, asked.place, Glossary(words) if asked.terms else None)
        with patch("knnmt.translator.stages.GuardedSearch", Counting):
            count += sum(1 for _ in translator.stream(requests, datastore=store))
    print(f"{count:,} texts\n")
    print_header("search", "texts", "gave the translation of")
    for name in dict.fromkeys([FIRST, STAND_INS, *sorted(SEARCHED), PIECES]):
        print_row(name, f"{SEARCHED[name]:,}", f"{BEST[name]:,}")


if __name__ == "__main__":
    main()
