"""How well the certainty of translations fits: the stated certainty beside the part of a translation that stays.

    python benchmarks/certainty.py DIRECTORY [--pairs 5000] [--lines 500] [--domains it koran law medical]
    python benchmarks/certainty.py DIRECTORY --repaired [--lines 50000] [--domains it] [--model en-de]

For each domain, DIRECTORY gets a store that `knnmt adapt` makes from `--pairs` training pairs; an existing store is
used as it is. It translates the first `--lines` development lines, which no store holds. The part of a translation
that stays is its similarity to the reference, scored like a match. The script prints the mean of this part and of the
stated certainty, the calibration error (lines sorted by certainty, in ten parts of the same size: the mean difference
of both means), the rank correlation, and the part that stays of the least and the most certain fifth.

--repaired: texts with numbers or placeholders from the other training pairs that have a fuzzy match of at least 50 %
in a store that is only built, which is repaired. For both halves of these texts, by the score of the match: the part of
it that stays, and the part of a translation with the memory that stays, each with half of its 95% interval. Text comes
from KNNMT_DATA (default ../shared).
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np

from knnmt import Translator, adapt, build, spread
from knnmt.calibration.certainty import Certainty
from knnmt.config import MatchConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import halves
from knnmt.errors import KnnmtWarning
from knnmt.segments.matches import likeness
from knnmt.translator.memories import Memory
from knnmt.translator.taking_over import taken_over
from knnmt_lab.scripts import DOMAINS, argument_parser, directed, read_domain

_PARTS = 10


def ranks(values: np.ndarray) -> np.ndarray:
    """(n,) ranks from 1; equal values get the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    found: np.ndarray = (last - (counts - 1) / 2)[which]
    return found


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def calibration_error(said: np.ndarray, stays: np.ndarray) -> float:
    parts = np.array_split(np.argsort(said, kind="stable"), _PARTS)
    return float(sum(abs(said[part].mean() - stays[part].mean()) * len(part) for part in parts)) / len(said)


def measure(domain: str, place: Path, translator: Translator, pairs: int, lines: int) -> None:
    if not place.exists():
        adapt(spread(text(domain, "train", translator), pairs), place, model=translator)
    known = Certainty.read(place)
    assert known is not None
    dev = text(domain, "dev", translator)[:lines]
    translations = list(translator.stream([pair.source for pair in dev], datastore=place))
    said = np.array([each.certainty for each in translations], float)
    stays = np.array([likeness(each.text, pair.target) for each, pair in zip(translations, dev, strict=True)])
    fifths = np.array_split(np.argsort(said, kind="stable"), 5)
    print(
        f"{domain:<8} fitted to {known.pairs}, {len(dev)} lines: stays {stays.mean():.1f}, said {said.mean():.1f}; "
        f"error {calibration_error(said, stays):.1f}, rank correlation {rank_correlation(said, stays):.2f}; "
        f"least sure fifth {stays[fifths[0]].mean():.1f}, surest {stays[fifths[-1]].mean():.1f}",
        flush=True,
    )


def measure_repaired(domain: str, place: Path, translator: Translator, pairs: int, lines: int) -> None:
    train = text(domain, "train", translator)
    if not place.exists():
        build(spread(train, pairs), place, model=translator.engine)
    memory = translator.memories.open(place)
    held = {pair.source for pair in memory.opened.datastore.pairs()}
    asked = spread([pair for pair in train if pair.source not in held and re.search(r"[\d%{]", pair.source)], lines)
    for name, half in zip(("choosing", "reported"), halves(asked), strict=True):
        measure_repairs(f"{domain}, {name} half", half, memory, place, translator)


def measure_repairs(name: str, asked: list[SegmentPair], memory: Memory, place: Path, translator: Translator) -> None:
    language = memory.opened.datastore.manifest.target_language
    found, fuzzy = [], MatchConfig("use", 50)
    for pair in asked:
        made = taken_over(fuzzy, pair.source, "", memory.opened.sources, memory.matcher, language)
        if made is not None and made.kind == "repaired match" and made.match is not None:
            found.append((made.match.score, likeness(made.text, pair.target), pair))
    decoded = translator.stream([pair.source for *_, pair in found], datastore=place)
    rows = [
        (score, stays, likeness(each.text, pair.target))
        for (score, stays, pair), each in zip(found, decoded, strict=True)
    ]
    print(f"{name}: {len(rows)} of {len(asked)} texts repaired", flush=True)
    for low, high in ((50, 100), (50, 70), (70, 80), (80, 90), (90, 100)):
        some = np.array([row for row in rows if low <= row[0] < high])
        if len(some):
            same = int((some[:, 1] == 100).sum())
            print(f"  {low} to {high - 1}%: {len(some):4} texts, {same} as the reference; ", end="")
            print(
                f"repaired {mean(some[:, 1])}, decoded {mean(some[:, 2])}, difference {mean(some[:, 1] - some[:, 2])}"
            )


def mean(values: np.ndarray) -> str:
    return f"{values.mean():.1f} ± {1.96 * values.std() / len(values) ** 0.5:.1f}"


def text(domain: str, part: str, translator: Translator) -> list[SegmentPair]:
    return directed(read_domain(domain, part), "de-en" if translator.engine.languages.source == "de" else "en-de")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--lines", type=int)
    parser.add_argument("--domains", nargs="+", choices=DOMAINS, default=DOMAINS)
    parser.add_argument("--model", default="de-en")
    parser.add_argument("--repaired", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore", KnnmtWarning)
    translator = Translator(given.model, device="cpu", settings="raw")
    given.directory.mkdir(parents=True, exist_ok=True)
    for domain in given.domains:
        place = given.directory / f"{domain}-{given.model}.store"
        if given.repaired:
            measure_repaired(domain, place, translator, given.pairs, given.lines or 50000)
        else:
            measure(domain, place, translator, given.pairs, given.lines or 500)


if __name__ == "__main__":
    main()
