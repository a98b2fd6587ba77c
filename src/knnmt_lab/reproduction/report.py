"""The report: one Markdown file with every table of the paper, with plots, and without any sentence of the texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from knnmt import write_output
from knnmt.errors import MissingDependencyError
from knnmt_lab.comet import Comet
from knnmt_lab.reproduction.choices import choices
from knnmt_lab.reproduction.choosing import COMPARED, PAIRS, gate_table, other_half_table
from knnmt_lab.reproduction.faithful import probes_table
from knnmt_lab.reproduction.harm import harm_table
from knnmt_lab.reproduction.later import later_table
from knnmt_lab.reproduction.paper import CACHE_SAVES_PERCENT, DIM
from knnmt_lab.reproduction.plan import all_rows
from knnmt_lab.reproduction.plots import save_plots
from knnmt_lab.reproduction.results import Results, read_results
from knnmt_lab.reproduction.tables import NOT_RUN, Lines, Tables, is_main, markdown
from knnmt_lab.reproduction.validating import validation_table

REPORT = "report.md"
_ALL_SEARCHES = "steps that search (%)"
_SEARCHES = f"{_ALL_SEARCHES}: all steps · without each batch's first step, as in the paper"
_INTERVALS = (
    "Each difference is followed by half of its 95 % interval, from a paired bootstrap with 1,000 samples of the "
    "sentences. A star means that p is below 0.05. A row with several seeds counts with the mean of their scores, and "
    "its seeds are sampled together with the sentences."
)
_BLOCKS = """\
Rows are in blocks, so that methods are not confused with indexes.

- **A, as published**: every search is IVFPQ (4096 lists if the store has 39 entries for each, otherwise
  fewer; 64 codes of 8 bits; 32 probes) with FAISS's approximate distances and no re-ranking. λ is fixed; k and λ come
  from the paper's grid. Batches have 8 sentences. One cache serves the whole batch, keeps hits, and compares the
  decoder's states before a PCA. After pruning, an entry counts once, even if others were merged into it.
- **A20**: the same with 20 codes, so that a code covers 16 of 320 dimensions, as in the paper (64 codes for 1,024); its
  centres are trained on 256 keys a list in 10 rounds, as FAISS does by default.
- **B, ours**: {search}.
  λ fades with distance, except in rows marked 'fixed', whose λ and k come from the paper's grid. Each sentence has its
  own cache, which keeps only searched steps. An entry counts as many times as entries were merged into it.
- The base model has no index, and Fast kNN-MT has none of these: they appear once, before both blocks.

All rows differ from the paper in this:

- Settings, including T, are chosen by the likelihood of text that is not reported, because T depends on a model's keys.
  Of the k with at least 95 % of the best gain, the smallest is taken. The row "by BLEU" chooses k and λ from the grid
  by BLEU of 100 pairs, as published.
- PCA is applied to the store's keys, not within the index, and without the random rotation that follows it in the
  published index.
- Pruned stores are made once for both blocks: their neighbours are found by B's search, or by A's if B was not
  requested.
- A step is searched if the gate's λ is *above* α, as the paper's text says. In the paper's table, searches increase
  with α, which contradicts the text, so its numbers are in separate lines, with their shares of searches. Gates as
  published see the decoder state, the model's confidence and entropy, the frequency of the last tokens in the memory,
  and the number of tokens that follow them; inputs are not normalised, and no term keeps λ small. Inputs and L1 term
  of our gate are chosen on text that is not reported; in B it sees the state and the confidence, and the term is 0.1.
  Thresholds for a share of the steps are chosen on held-out text. A random choice is one draw for all rows of a step
  in A, as in the authors' code, and one for each row in B.
- The centres of IVFPQ in A are trained on 39 keys per list in 4 rounds, which takes a minute or two for a store; pruned
  stores reuse the training from before pruning. If probed lists are short, missing neighbours have no weight.
- The combinations have d = 256 if keys are longer, pruning with k = 2, and τ = 6 in A, as published, or τ = 4 in B."""
_PLAIN = "kNN-MT"  # the label of the row that most tables compare with
_SEARCH = {
    "index": "two-stage search: four-bit codes propose candidates, and the keys themselves decide",
    "exact": "exact search, which compares every key",
}


def write_report(output: Path, tell: Callable[[str], None] = lambda _: None, comet: Comet | None = None) -> Path:
    """Score the results and write OUTPUT/report.md, with plots if matplotlib is installed.

    comet: also score the main results with COMET
    """
    results = read_results(output, tell, comet, is_main)
    dims = [store["dim"] for store in results.stores.values() if "dim" in store]
    tables = Tables(results, all_rows(dims[0] if dims else DIM))
    try:
        plots, without = save_plots(results, tables, output), ""
    except MissingDependencyError as error:
        plots, without = [], f"No plots: {error}"
    text = "\n\n".join([*_parts(output, results, tables, plots), *([without] if without else [])]) + "\n"
    write_output(output / REPORT, text.encode())
    return output / REPORT


def _parts(output: Path, results: Results, tables: Tables, plots: list[str]) -> Iterator[str]:
    yield "# The paper's tables and figures, reproduced"
    yield _conditions(results)
    yield _BLOCKS.format(search=_SEARCH[results.plan["block B searches"]])
    yield (
        "The paper's numbers are in brackets. Averages are over the domains shown. 'Not run' means that the row "
        "was not produced; rows that the paper does not have either are left out."
    )
    for title, lines in (
        ("Main results, BLEU", tables.main()),
        ("Main results, chrF", tables.main_chrf()),
        ("Main results, COMET (the paper's values are from wmt20-comet-da, on another scale)", tables.main_comet()),
    ):
        yield from _table(title, lines)
    if len(compared := choices(results)) > 1:
        yield "## The effect of each choice, BLEU"
        yield _INTERVALS
        yield markdown(compared)
    yield from _chosen(results)
    if (validated := validation_table(results, tables)) is not None:
        yield "## Trained combiners on the half that is not reported, BLEU"
        yield (
            "Differences to B/knn on the fifth of the pairs for tuning that says when a training stops, with intervals "
            "as above. Choices between forms of a combiner are made here."
        )
        yield markdown(validated)
    for title, lines in (
        ("Pruning, BLEU", tables.pruning()),
        ("Pruning, entries and the share that is kept", tables.sizes()),
    ):
        yield from _table(title, lines, _PLAIN)
    yield from _plot("pruning", plots)
    if (later := later_table(results, tables)) is not None:
        yield "## Later methods, BLEU, and gains over plain kNN-MT"
        yield (
            "Our gains are those of block B over the row with fixed λ. Published gains are means of the four domains "
            "in the named software, over its plain kNN-MT. Combiners are trained on the half of the text that is used "
            "for tuning; scores are means of all seeds that were run."
        )
        yield markdown(later)
    if (harm := harm_table(output, results, tables)) is not None:
        yield "## Harm: BLEU of other domains' text with a store, minus that of the model alone"
        yield "Means over the other domains and all seeds that were run, with intervals as above."
        yield markdown(harm)
        if (more := harm_table(output, results, tables, COMPARED)) is not None:
            yield "The same minus that of B/knn, whose λ fades: below 0 it does more harm."
            yield markdown(more)
    for title, lines in (
        ("PCA, BLEU", tables.reduction()),
        ("Adaptive retrieval, BLEU", tables.adaptive()),
        (f"Adaptive retrieval, {_ALL_SEARCHES}", tables.adaptive_searches()),
        ("Cache, BLEU", tables.cache()),
        (f"Cache, {_SEARCHES}", tables.cache_searches()),
        ("Cache, translations that ran to the limit of 200 tokens", tables.cache_cut()),
        ("Cache, distance between a hit and the state whose search it uses", tables.borrowed()),
    ):
        yield from _table(title, lines, _PLAIN)
    yield from _plot("searches", plots)
    if results.rows:
        yield "## Hyper-parameters: k / λ / T"
        yield "T applies to squared distances, for Fast kNN-MT to cosine distances. If λ fades, its maximum is given."
        yield markdown(tables.settings())
    if results.timed:
        yield from _speed(results, tables, plots)
    yield "## Signatures"
    yield "\n".join(_signatures(results))


def _chosen(results: Results) -> Iterator[str]:
    """What was chosen on the half of the text that is not reported, and by what."""
    if (other := other_half_table(results)) is not None:
        yield "## Choices on the half that is not reported, BLEU"
        yield (
            f"Differences to {COMPARED} on at most {PAIRS} pairs for tuning that no k, T or λ was tuned on, with "
            "intervals as above."
        )
        yield markdown(other)
    if (gates := gate_table(results)) is not None:
        yield "## The choice of our gate, nats per token on the half that is not reported"
        yield (
            "Each gate is trained on three fifths of the pairs for tuning, with one seed; another fifth decides when "
            "to stop, and the last one is shown here: if the half of its positions with the largest λ is searched, in "
            "each domain and on average, and on average if every position or a half by chance is searched. Each domain "
            "takes the variant that loses least."
        )
        yield markdown(gates)
    if results.probes:
        yield "## Probes of IVFPQ: total variation of p_kNN against exact search (recall)"
        yield markdown(probes_table(results))


def _table(title: str, lines: Lines | None, compared: str | None = None) -> Iterator[str]:
    """A table with its title; nothing if all its numbers are the paper's or those of the row that it compares with."""
    if lines is not None and any(_is_ours(line) and line[0] != compared for line in lines[1:]):
        yield f"## {title}"
        yield markdown(lines)


def _is_ours(line: Sequence[str]) -> bool:
    label, *cells = line
    return not label.startswith("paper,") and any(cell and not cell.startswith(NOT_RUN) for cell in cells)


def _speed(results: Results, tables: Tables, plots: list[str]) -> Iterator[str]:
    records = list(results.speeds.values())
    loads = [record["load_before"] for record in records if record["load_before"] is not None]
    yield "## Speed"
    sentences = "/".join(f"{count:,}" for count in sorted({record["sentences"] for record in records}))
    yield (
        f"Tokens per second on {_machines(records)}: median, slowest and fastest round; then times "
        f"{tables.titled(tables.reference)}, as median, smallest and largest ratio of a round. {sentences} sentences; "
        f"systems take turns within every round; load of the machine before: {min(loads, default=0):.1f} to "
        f"{max(loads, default=0):.1f}. The paper's figures give no numbers; its text says that the speed is about "
        f"twice that of kNN-MT and that the cache saves {CACHE_SAVES_PERCENT} % of the searches."
    )
    for domain in dict.fromkeys(domain for domain, _ in results.speeds):
        yield f"### {domain}"
        yield markdown(tables.speed(domain))
    yield from _plot("speed", plots)
    yield "## Ablation: tokens per second, mean of the domains, and the share of the time that searching takes"
    yield markdown(tables.ablation())
    yield from _plot("ablation", plots)


def _conditions(results: Results) -> str:
    records = [each.record for each in results.rows.values()]
    names = dict.fromkeys(record["signature"].partition("|")[0].removeprefix("model:") for record in records)
    languages = " to ".join(filter(None, (results.plan.get(f"{side} language") for side in ("source", "target"))))
    lines = [
        f"- model: {', '.join(names) or 'none was run'} ({results.plan['model'][:12]}), {languages}; "
        f"knnmt {results.plan['version']}",
        "- scores: translations of the reported sentences against one reference each, by sacrebleu",
        f"- machine of the scores: {_machines(records)}",
    ]
    for domain in results.domains:
        store, text = results.stores[domain], results.texts[domain]
        known = f"; train.* contains the source of {text.known:,} of them, which favours stores" if text.known else ""
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
        cut = f"; {each.record['cut']} cut off at the longest length" if each.record["cut"] else ""
        yield f"- {domain}, {name}: `{each.record['signature']}`{cut}"
