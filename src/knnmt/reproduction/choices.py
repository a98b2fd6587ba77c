"""What each choice changes: differences of BLEU between rows that differ in one thing, for the discussion."""

from __future__ import annotations

import statistics

from knnmt.reproduction.plan import ALPHAS, TOLD_APART
from knnmt.reproduction.results import Results
from knnmt.reproduction.tables import NOT_RUN, Lines
from knnmt.retrieval.settings import TRAINED_COMBINERS

# What is asked, the row with it, the row without it.
_ASKED = (
    ("a memory, as published", "A/knn", "base"),
    ("a memory, ours", "B/knn", "base"),
    ("our search instead of IVFPQ, both with fixed λ", "B/knn-fixed", "A/knn"),
    ("λ that fades instead of fixed λ, both with our search", "B/knn", "B/knn-fixed"),
    ("Fast kNN-MT, c = 512, instead of kNN-MT as published", "fast-512", "A/knn"),
    ("search by segment instead of the whole store, ours", "segments", "B/knn"),
    *((f"{method} instead of λ that fades", f"B/{method}", "B/knn") for method in TRAINED_COMBINERS),
    ("entries that the model knows left out (PLAC), ours", "B/plac", "B/knn"),
    ("SK-MT's choice and λ instead of ours by segment", "sk-mt", "segments"),
    ("PCA to 256 dimensions, as published", "A/pca-256", "A/knn"),
    ("PCA to 256 dimensions, ours", "B/pca-256", "B/knn"),
    ("pruning with k = 2, as published", "A/pruning-2", "A/knn"),
    ("pruning with k = 2, ours", "B/pruning-2", "B/knn"),
    *(
        (asked, f"A/cache-{tau}{kind}", "A/knn")
        for tau in TOLD_APART
        for asked, kind in (
            (f"the cache τ = {tau}, as published", ""),
            ("the same, hits not stored", "-misses"),
            ("the same, one for each sentence, hits stored", "-sentence-hits"),
            ("the same, one for each sentence, hits not stored", "-sentence"),
        )
    ),
    ("the cache τ = 4, ours", "B/cache-4", "B/knn"),
    *(
        (
            f"a gate, α = {alpha}, instead of as many steps by chance{told}",
            f"{block}/adaptive-{alpha}",
            f"{block}/random-{alpha}",
        )
        for block, told in (("A", ", as published"), ("B", ", ours"))
        for alpha in ALPHAS
    ),
    ("all three methods together, as published", "A/pca+cache+pruning", "A/knn"),
    ("all three methods together, ours", "B/pca+cache+pruning", "B/knn"),
)


def choices(results: Results) -> Lines:
    """BLEU of the one minus BLEU of the other, in each domain and on average; what was run nowhere is left out."""
    lines = [["choice", *results.domains, "average"]]
    for asked, one, other in _ASKED:
        pairs = [(results.bleu(domain, one), results.bleu(domain, other)) for domain in results.domains]
        differences = [None if a is None or b is None else a - b for a, b in pairs]
        there = [each for each in differences if each is not None]
        if there:
            average = f"{statistics.mean(there):+.2f}" if len(there) == len(differences) else NOT_RUN
            lines.append([asked, *(NOT_RUN if each is None else f"{each:+.2f}" for each in differences), average])
    return lines
