"""The report: one Markdown file with every table of the paper, plots beside it, and no sentence of any text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from knnmt.datastore.publication import publish_file
from knnmt.errors import MissingDependencyError
from knnmt.evaluation.comet import Comet
from knnmt.reproduction.choices import choices
from knnmt.reproduction.later import later_table
from knnmt.reproduction.paper import CACHE_SAVES_PERCENT, DIM
from knnmt.reproduction.plan import all_rows
from knnmt.reproduction.plots import save_plots
from knnmt.reproduction.results import Results, read_results
from knnmt.reproduction.tables import Lines, Tables, is_main, markdown

REPORT = "report.md"
_ALL_SEARCHES = "steps that search (%)"
_SEARCHES = f"{_ALL_SEARCHES}: all counted · without each batch's first, which the paper leaves out"
_INTERVALS = (
    "Behind each difference stands half of its 95 % interval, by a paired bootstrap of 1,000 samples of the sentences. "
    "A star says that p is below 0.05. A row with several seeds counts by the mean of their scores."
)
_BLOCKS = """\
Rows stand in blocks, so that methods are not confused with indexes.

- **A, as published**: every search is IVFPQ on the CPU (4096 lists where the store has 39 entries for each, else fewer;
  64 codes of 8 bits; 32 probes) with FAISS's approximate distances and no second look. λ is fixed; k and λ come from
  the paper's grid. Batches have 8 sentences. The cache is one for the whole batch, keeps hits, and compares states as
  the decoder gives them, before a PCA. After pruning, an entry counts once, whatever was merged into it.
- **A20**: the same with 20 codes, so that a code stands for 16 of 320 dimensions, as 64 do for the paper's 1,024; its
  centres are trained on 256 keys a list in 10 rounds, as FAISS does by default.
- **B, ours**: {search}.
  λ fades with distance, but for rows that say fixed, whose λ and k are of the paper's grid. The cache is one for each
  sentence and keeps only what was searched. An entry counts as many as were merged into it.
- The base model has no index, and Fast kNN-MT none of these: they stand once, before both.

What differs from the paper in all of them:

- Settings are chosen by the likelihood of text that is not reported, and T with them, because T belongs to a model's
  keys. Of the k that have 95 % of the best one's gain, the smallest is taken. The row "by BLEU" chooses k and λ from
  the grid by BLEU of 100 pairs, as published.
- PCA is applied to the store's keys, not within the index, and without the random rotation that the published index
  has behind it.
- Pruned stores are made once for both blocks: their neighbours are found by B's search, or by A's where B was not
  asked for.
- A step is searched where the gate's λ is *above* α, as the paper's text says. Its table searches more as α grows,
  which contradicts that, so that its numbers stand in lines of their own, with their shares of searches. Gates as
  published see the decoder state, the model's confidence and entropy, how frequent the last tokens are in the memory,
  and by how many tokens they are followed; nothing is normalised, and nothing keeps λ small. Our gate sees the state
  and the confidence, and is trained with an L1 term of 0.1. Thresholds for a share of the steps are chosen on held-out
  text. A choice by chance in A is one draw for all rows of a step, as in the authors' code, in B one for each row.
- The centres of IVFPQ in A are trained on 39 keys a list in 4 rounds, which keeps a store's training to a minute or
  two; pruned stores take over what was trained before pruning. Where probed lists are short, missing neighbours weigh
  nothing.
- The combinations have d = 256 where keys are longer, pruning with k = 2, and τ = 6 in A, as published, τ = 4 in B."""
_SEARCH = {
    "index": "two-stage search, in which four-bit codes propose and the keys themselves decide",
    "exact": "exact search, which measures every key",
}


def write_report(output: Path, tell: Callable[[str], None] = lambda _: None, comet: Comet | None = None) -> Path:
    """Score what was produced and write OUTPUT/report.md, with the plots where matplotlib is there.

    comet: scores the main results, too
    """
    results = read_results(output, tell, comet, is_main)
    dims = [store["dim"] for store in results.stores.values() if "dim" in store]
    tables = Tables(results, all_rows(dims[0] if dims else DIM))
    try:
        plots, without = save_plots(results, tables, output), ""
    except MissingDependencyError as error:
        plots, without = [], f"No plots: {error}"
    text = "\n\n".join([*_parts(results, tables, plots), *([without] if without else [])]) + "\n"
    publish_file(output / REPORT, lambda file: file.write(text.encode()))
    return output / REPORT


def _parts(results: Results, tables: Tables, plots: list[str]) -> Iterator[str]:
    yield "# The paper's tables and figures, reproduced"
    yield _conditions(results)
    yield _BLOCKS.format(search=_SEARCH[results.plan["block B searches"]])
    yield (
        "In brackets: the paper's number. Averages are over the domains shown. Not run: nothing was produced for it; "
        "rows that the paper does not have, either, are left out."
    )
    for title, lines in (
        ("Main results, BLEU", tables.main()),
        ("Main results, chrF", tables.main_chrf()),
        ("Main results, COMET (the paper's: of wmt20-comet-da, on another scale)", tables.main_comet()),
    ):
        yield from _table(title, lines)
    yield "## What each choice changes, BLEU"
    yield _INTERVALS
    yield markdown(choices(results))
    for title, lines in (
        ("Pruning, BLEU", tables.pruning()),
        ("Pruning, entries and the part of all that is kept", tables.sizes()),
    ):
        yield from _table(title, lines)
    yield from _plot("pruning", plots)
    if (later := later_table(results, tables)) is not None:
        yield "## Methods that came after, BLEU, and gains over plain kNN-MT"
        yield (
            "Ours: block B, over the row with fixed λ. Published: means of the four domains in the software named, "
            "over plain kNN-MT there. Trained combiners learn from the half of the text that tunes; the first of five "
            "seeds is shown, whichever is best."
        )
        yield markdown(later)
    for title, lines in (
        ("PCA, BLEU", tables.reduction()),
        ("Adaptive retrieval, BLEU", tables.adaptive()),
        (f"Adaptive retrieval, {_ALL_SEARCHES}", tables.adaptive_searches()),
        ("Cache, BLEU", tables.cache()),
        (f"Cache, {_SEARCHES}", tables.cache_searches()),
        ("Cache, distance of a hit to the state whose search it uses", tables.borrowed()),
    ):
        yield from _table(title, lines)
    yield from _plot("searches", plots)
    yield "## Hyper-parameters: k / λ / T"
    yield "T is of squared distances, of Fast kNN-MT of cosine distances; where λ fades, its most is given."
    yield markdown(tables.settings())
    if results.timed:
        yield from _speed(results, tables, plots)
    yield "## Signatures"
    yield "\n".join(_signatures(results))


def _table(title: str, lines: Lines | None) -> Iterator[str]:
    """A table with its title, unless it has no line below its head."""
    if lines is not None and len(lines) > 1:
        yield f"## {title}"
        yield markdown(lines)


def _speed(results: Results, tables: Tables, plots: list[str]) -> Iterator[str]:
    records = list(results.speeds.values())
    loads = [record["load_before"] for record in records if record["load_before"] is not None]
    yield "## Speed"
    sentences = "/".join(f"{count:,}" for count in sorted({record["sentences"] for record in records}))
    yield (
        f"Tokens a second on {_machines(records)}: median, slowest and fastest round, and times "
        f"{tables.titled(tables.reference)}. {sentences} sentences, systems in turns within every round; load of the "
        f"machine before: {min(loads, default=0):.1f} to {max(loads, default=0):.1f}. The paper's figures give no "
        f"numbers; its text says about twice kNN-MT's speed, and {CACHE_SAVES_PERCENT} % of the searches saved by the "
        "cache."
    )
    for domain in dict.fromkeys(domain for domain, _ in results.speeds):
        yield f"### {domain}"
        yield markdown(tables.speed(domain))
    yield from _plot("speed", plots)
    yield "## Ablation: tokens a second, mean of the domains, and the part of the time that searching takes"
    yield markdown(tables.ablation())
    yield from _plot("ablation", plots)


def _conditions(results: Results) -> str:
    records = [each.record for each in results.rows.values()]
    names = dict.fromkeys(record["signature"].partition("|")[0].removeprefix("model:") for record in records)
    languages = " to ".join(filter(None, (results.plan.get(f"{side} language") for side in ("source", "target"))))
    lines = [
        f"- model: {', '.join(names) or 'none was run'} ({results.plan['model'][:12]}), {languages}; "
        f"knnmt {results.plan['version']}",
        "- scores: of what each system makes of the reported sentences against their one reference each, by sacrebleu",
        f"- machine of the scores: {_machines(records)}",
    ]
    for domain in results.domains:
        store, text = results.stores[domain], results.texts[domain]
        known = f"; train.* has the source of {text.known:,} of them, which flatters stores" if text.known else ""
        lines.append(
            f"- {domain}: {store.get('pairs', 0):,} training pairs, {store.get('entries', 0):,} entries; "
            f"{len(text.reported):,} sentences reported ({text.reported_from}), {len(text.tuning):,} to tune on{known}"
        )
    return "\n".join(lines)


def _machines(records: Sequence[dict[str, Any]]) -> str:
    return "; ".join(dict.fromkeys(record["machine"] for record in records)) or "none: nothing was run"


def _plot(name: str, plots: list[str]) -> Iterator[str]:
    if name in plots:
        yield f"![{name}]({name}.png)"


def _signatures(results: Results) -> Iterator[str]:
    scored = next(iter(results.rows.values()), None)
    if scored is not None:
        yield f"- BLEU: `{scored.scores.bleu.signature}`"
        yield f"- chrF: `{scored.scores.chrf.signature}`"
    for signature in {each.comet.signature for each in results.rows.values() if each.comet}:
        yield f"- COMET: `{signature}`"
    for (domain, name), each in results.rows.items():
        cut = f"; {each.record['cut']} cut at the most tokens" if each.record["cut"] else ""
        yield f"- {domain}, {name}: `{each.record['signature']}`{cut}"
