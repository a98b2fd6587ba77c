"""The paper's tables from our results, with its numbers in brackets after ours."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from knnmt_lab.reproduction import paper
from knnmt_lab.reproduction.plan import ALPHAS, BY_SEGMENT, CANDIDATES, PRUNING_KS, SHARES, SUREST, Row
from knnmt_lab.reproduction.results import Results, RowResult

NOT_RUN = "not run"
BLOCK_TITLES = {
    "A": "A, as published",
    "A20": "A20, as published, with a code for 16 of 320 dimensions",
    "B": "B, ours",
}
_WITHOUT_INDEX = (*(f"fast-{c}" for c in CANDIDATES), *(row.name for row in BY_SEGMENT))
_FIRST = ("base", *_WITHOUT_INDEX)
COMBINATIONS = ("pca+cache", "pca+pruning", "pca+cache+pruning")
Lines = list[list[str]]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table whose first line is its head."""
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    head, *others = (f"| {' | '.join(line)} |" for line in escaped)
    return "\n".join([head, "|---" + "|---:" * (len(lines[0]) - 1) + "|", *others])


def is_main(name: str) -> bool:
    """Whether a row is in the table of main results."""
    block, _, plain = name.rpartition("/")
    return plain in _main_names(block) if block else name in _FIRST


def _main_names(block: str) -> list[str]:
    of_block = ("knn-fading", "knn-bleu", "cache-6") if block == "A" else ("knn-fixed", "cache-4")
    return ["knn", *of_block, *COMBINATIONS]


def _gates(block: str) -> list[str]:
    """Rows of adaptive retrieval: at thresholds, and at equal shares of the steps."""
    if block == "B":
        return [f"{kind}-{alpha}" for alpha in ALPHAS for kind in ("adaptive", "random")]
    at_shares = [f"{kind}-{share}" for share in SHARES for kind in ("gate", "chance", "own-gate")]
    return [*(f"adaptive-{alpha}" for alpha in ALPHAS), *at_shares]


def _shares(percents: Sequence[float | None]) -> str:
    there = [f"{each:.0f}" for each in percents if each is not None]
    return " · ".join(there) if len(there) == len(percents) else NOT_RUN


class Tables:
    """Tables of some results. rows: all possible rows, for their labels and their order"""

    def __init__(self, results: Results, rows: Sequence[Row]) -> None:
        self._results = results
        self._labels = {row.name: row.label for row in rows}
        self._names = [row.name for row in rows]
        self._blocks = [block for block in BLOCK_TITLES if any(name.startswith(f"{block}/") for name in results.names)]

    # Scores -----------------------------------------------------------------------------------------------------------

    def main(self) -> Lines:
        """Table 1: BLEU."""
        return self._of_blocks(_FIRST, _main_names, self._bleu)

    def main_chrf(self) -> Lines:
        """Table 1 by chrF, which the paper does not give."""
        return self._of_blocks(
            _FIRST, _main_names, lambda name: self._line(name, lambda each: each.scores.chrf.value, {}, 2)
        )

    def main_comet(self) -> Lines | None:
        """Table 1 by COMET; None if no row was scored."""
        if not any(each.comet for each in self._results.rows.values()):
            return None

        def line(name: str) -> list[str]:
            theirs = {} if name.startswith("B/") else paper.COMET
            return self._line(name, lambda each: None if each.comet is None else each.comet.value, theirs, 4)

        return self._of_blocks(_FIRST, _main_names, line)

    def pruning(self) -> Lines:
        """BLEU with fewer entries; ours also with merged entries that count once."""
        names = ["knn", *(f"pruning-{k}{end}" for k in PRUNING_KS for end in ("", "-uncounted")), "plac", *SUREST]
        return self._of_blocks([], lambda _: names, self._bleu)

    def borrowed(self) -> Lines:
        """The distance between a hit and the state whose search it uses: median and 95th percentile, over domains."""
        lines = [["", "hits", "median", "95 %", "beyond τ"]]
        for name in self._names:
            counts: Counter[int] = Counter()
            for domain in self._results.domains:
                if (found := self._results.of(domain, name)) is not None:
                    counts.update({int(each): count for each, count in found.record.get("borrowed", {}).items()})
            if counts:
                tau = float(name.split("-")[1])
                beyond = sum(count for each, count in counts.items() if each >= tau) / counts.total()
                places = [_quantile(counts, part) for part in (0.5, 0.95)]
                lines.append([self.titled(name), f"{counts.total():,}", *map(str, places), f"{beyond:.0%}"])
        return lines

    def sizes(self) -> Lines:
        """Entries, and the share that is kept; the paper's in brackets."""
        lines = [["", *self._results.domains]]
        for name in ("knn", *(f"pruning-{k}" for k in PRUNING_KS), "plac", *SUREST):
            cells = [self._size(domain, name) for domain in self._results.domains]
            label = self._label(f"A/{name}") if name in paper.ENTRIES else self._label(f"B/{name}")
            if set(cells) != {NOT_RUN}:
                lines.append([label, *cells])
        return lines

    def _size(self, domain: str, name: str) -> str:
        place = paper.place_of(domain)
        known = place is not None and name in paper.ENTRIES
        theirs = (
            ""
            if place is None or not known
            else f" ({paper.ENTRIES[name][place]:,}: {paper.kept_percent(name, place):.0f} %)"
        )
        there = [found for block in self._blocks if (found := self._results.of(domain, f"{block}/{name}"))]
        whole = self._results.stores[domain].get("entries")
        if not there or not whole:
            return NOT_RUN + theirs
        entries = there[0].record["entries"]
        return f"{entries:,}: {100 * entries / whole:.0f} %{theirs}"

    def reduction(self) -> Lines:
        """BLEU with shorter keys; the paper's own dimensions are in separate lines, because its keys are longer."""
        names = [name.removeprefix("B/") for name in self._names if name.startswith("B/pca-")]
        lines = self._of_blocks(
            [], lambda _: ["knn", *names], lambda name: self._line(name, _bleu_of, {}), ("A", "A20", "B")
        )
        for name in (paper.KNN, *(each for each in paper.BLEU if each.startswith("pca-"))):
            label = "kNN-MT" if name == paper.KNN else f"PCA d = {name.removeprefix('pca-')}"
            lines += self._papers(f"of {paper.DIM:,} dimensions: {label}", paper.BLEU[name])
        return lines

    def _papers(self, label: str, values: Sequence[float], digits: int = 2) -> Lines:
        """A line of the paper's own, with its values of each domain and their mean; none if no domain is the paper's.

        values: may have their mean as a fifth
        """
        places = [paper.place_of(domain) for domain in self._results.domains]
        if all(place is None for place in places):
            return []
        mean = values[-1] if len(values) > len(paper.DOMAINS) else statistics.mean(values)
        cells = ["" if place is None else f"{values[place]:.{digits}f}" for place in places]
        return [[f"paper, {label}", *cells, f"{mean:.{digits}f}" if self._papers_domains else ""]]

    def adaptive(self) -> Lines:
        """BLEU of adaptive retrieval, and of as many random steps; the paper's α are in separate lines.

        In its table, searches increase with α, so its lines cannot be compared with ours of the same name.
        """
        lines = self._of_blocks([], lambda block: ["knn", *_gates(block)], lambda name: self._line(name, _bleu_of, {}))
        for alpha in ALPHAS:
            shares = paper.SEARCHED[f"adaptive-{alpha}"]
            label = f"α = {alpha}: {min(shares)} to {max(shares)} % of steps"
            lines += self._papers(label, paper.BLEU[f"adaptive-{alpha}"])
        return lines

    def cache(self) -> Lines:
        """BLEU with caches, as published and without each of its two differences from ours."""
        return self._of_blocks([], lambda block: ["knn", *self._caches(block)], self._bleu)

    def cache_cut(self) -> Lines:
        """How many translations found no end."""

        def line(name: str) -> list[str]:
            return self._line(name, lambda each: each.record["cut"], {}, 1)

        return self._of_blocks([], lambda block: ["knn", *self._caches(block)], line)

    def _caches(self, block: str) -> list[str]:
        all_caches = [name.partition("/")[2] for name in self._names if name.startswith(f"{block}/cache-")]
        return sorted(all_caches, key=lambda name: (float(name.split("-")[1]), len(name)))

    def bleu(self, name: str) -> list[str]:
        """BLEU of a row in each domain and on average."""
        return self._line(name, _bleu_of, {})

    # Searches ---------------------------------------------------------------------------------------------------------

    def adaptive_searches(self) -> Lines:
        """Percent of steps that search; the paper's α are in separate lines, as in `adaptive`."""
        lines = self._of_blocks([], _gates, self._searched)
        for alpha in ALPHAS:
            lines += self._papers(f"α = {alpha}", paper.SEARCHED[f"adaptive-{alpha}"], 0)
        return lines

    def cache_searches(self) -> Lines:
        """Percent of steps that search."""
        return self._of_blocks([], self._caches, self._searched)

    def _searched(self, name: str) -> list[str]:
        """All steps; for caches also without first steps, which the paper leaves out, and the paper's numbers."""
        cells = []
        plain = name.partition("/")[2]
        counts: list[Callable[[RowResult], float]] = [lambda each: each.searched()]
        if plain.startswith("cache"):
            counts.append(lambda each: each.searched(with_first_step=False))
        theirs = paper.SEARCHED.get(plain) if name.startswith("A/cache") else None
        for domain in self._results.domains:
            place = paper.place_of(domain)
            ours = _shares([self._results.measured(domain, name, each) for each in counts])
            cells.append(ours + ("" if theirs is None or place is None else f" ({theirs[place]})"))
        ours = _shares([self._results.average(each, name) for each in counts])
        whole = theirs is not None and self._papers_domains
        return [*cells, ours + (f" ({statistics.mean(theirs):.0f})" if whole and theirs else "")]

    # Settings ---------------------------------------------------------------------------------------------------------

    def settings(self) -> Lines:
        """k, λ, T of the main rows; for λ that fades, its maximum."""
        lines = self._of_blocks(_WITHOUT_INDEX, _main_names, self._settings)
        return [line[:-1] for line in lines]

    def _settings(self, name: str) -> list[str]:
        cells = []
        theirs = paper.SETTINGS.get(name.removeprefix("A/"))
        for domain in self._results.domains:
            found, place = self._results.of(domain, name), paper.place_of(domain)
            settings = found and found.record["settings"]
            ours = (
                NOT_RUN
                if not settings
                else _three(settings["k"], settings["interpolation_weight"], settings["temperature"])
            )
            cells.append(ours + ("" if theirs is None or place is None else f" ({_three(*theirs[place])})"))
        return [*cells, ""]

    # Speed ------------------------------------------------------------------------------------------------------------

    def speed(self, domain: str) -> Lines:
        """Tokens per second, and the ratio to the reference in the same round: median, smallest and largest."""
        results = self._results
        lines = [["system", *(f"batch {size}" for size in results.batch_sizes)]]
        for name in results.timed:
            cells = []
            for size in results.batch_sizes:
                speeds, first = results.speed(domain, size, name), results.speed(domain, size, self.reference)
                if not speeds or not first:
                    cells.append(NOT_RUN)
                    continue
                ratios = [one / other for one, other in zip(speeds, first, strict=True)]
                told = [_spread(speeds, 0), "1" if name == self.reference else _spread(ratios, 2)]
                cells.append(", ".join(told))
            if set(cells) != {NOT_RUN}:
                lines.append([self.titled(name), *cells])
        return lines

    def ablation(self) -> Lines:
        """Tokens per second averaged over domains, the ratio to the first kNN-MT, and the time of searching."""
        results = self._results
        sizes = results.batch_sizes
        lines = [["system", *(f"batch {size}" for size in sizes), *(f"search, batch {size}" for size in sizes)]]
        for name in results.timed:
            cells, shares = [], []
            for size in sizes:
                speed, first = results.average_speed(size, name), results.average_speed(size, self.reference)
                cells.append(NOT_RUN if speed is None or not first else f"{speed:,.0f}, {speed / first:.2f}")
                share = self._search_share(size, name)
                shares.append(NOT_RUN if share is None else f"{share:.0f} %")
            lines.append([self.titled(name), *cells, *shares])
        return lines

    def _search_share(self, size: int, name: str) -> float | None:
        """The percentage of the time that searching took."""
        rounds = [
            each
            for domain in self._results.domains
            for each in self._results.speeds.get((domain, size), {"systems": {}})["systems"].get(name, {"rounds": []})[
                "rounds"
            ]
        ]
        total = sum(each["seconds"] for each in rounds)
        return 100 * sum(each["stage_seconds"].get("search", 0.0) for each in rounds) / total if total else None

    @property
    def reference(self) -> str:
        """The reference for speeds: kNN-MT as published, or ours if that was not run, or the first system."""
        timed = self._results.timed
        return next(name for name in ("A/knn", "A/knn-k", "B/knn", "base", *timed) if name in timed)

    # Parts ------------------------------------------------------------------------------------------------------------

    def _of_blocks(
        self,
        first: Iterable[str],
        names: Callable[[str], Sequence[str]],
        line: Callable[[str], list[str]],
        blocks: Sequence[str] = ("A", "B"),
    ) -> Lines:
        """Lines without a number of ours or of the paper are left out."""
        lines = [["", *self._results.domains, "average"], *self._told(first, line)]
        for block in [each for each in self._blocks if each in blocks]:
            told = self._told([f"{block}/{name}" for name in names(block)], line)
            title = [f"**{BLOCK_TITLES[block]}**", *[""] * (len(self._results.domains) + 1)]
            lines += [title, *told] if told else []
        return lines

    def _told(self, names: Iterable[str], line: Callable[[str], list[str]]) -> Lines:
        told = [[self._label(name), *line(name)] for name in names]
        return [each for each in told if not set(each[1:]) <= {NOT_RUN, ""}]

    def _bleu(self, name: str) -> list[str]:
        theirs = {} if name.startswith("B/") else paper.BLEU
        return self._line(name, _bleu_of, theirs)

    def _line(
        self,
        name: str,
        measure: Callable[[RowResult], float | None],
        theirs: dict[str, tuple[float, ...]],
        digits: int = 2,
    ) -> list[str]:
        """The values of every domain and their average, with the paper's after ours."""
        printed = theirs.get(name.removeprefix("A/"))
        ours = [self._results.measured(domain, name, measure) for domain in self._results.domains]
        there = [each for each in ours if each is not None]
        average = statistics.mean(there) if len(there) == len(ours) else None
        places = [*map(paper.place_of, self._results.domains), -1 if self._papers_domains else None]
        return [
            (NOT_RUN if value is None else f"{value:.{digits}f}")
            + ("" if printed is None or place is None else f" ({printed[place]:.{digits}f})")
            for value, place in zip([*ours, average], places, strict=True)
        ]

    @property
    def _papers_domains(self) -> bool:
        return {each.lower() for each in self._results.domains} == set(paper.DOMAINS)

    def _label(self, name: str) -> str:
        return self._labels.get(name, name)

    def titled(self, name: str) -> str:
        """A row's label with its block."""
        return f"{name[0]}: {self._label(name)}" if "/" in name else self._label(name)


def _quantile(counts: Counter[int], part: float) -> int:
    """The smallest number that at least this share of all do not exceed."""
    seen = 0
    for each in sorted(counts):
        seen += counts[each]
        if seen >= part * counts.total():
            return each
    return 0


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def _bleu_of(result: RowResult) -> float:
    return result.scores.bleu.value


def _three(k: int, weight: float, temperature: float) -> str:
    return f"{k} / {weight:.2g} / {temperature:.3g}"
