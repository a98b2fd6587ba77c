"""`knnmt tune`: settings of a store that fit development text."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.cli.change import Store
from knnmt.cli.interrupt import ends_with
from knnmt.cli.progress import counter, track
from knnmt.cli.start import heavy_imports
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_memories
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.splitting import halves
from knnmt.errors import InputError, KnnmtWarning, SettingError

if TYPE_CHECKING:
    from knnmt.config import RetrievalConfig
    from knnmt.datastore.store import Datastore
    from knnmt.evaluation.tuning import Scored
    from knnmt.retrieval.cache_tuning import CacheTradeOff
    from knnmt.retrieval.development import Development
    from knnmt.retrieval.store_tuning import DimensionTradeOff, SearchTradeOff
    from knnmt.retrieval.tuning import Tuned
    from knnmt.translator.memories import Memory
    from knnmt.translator.translator import Translator

METHODS = ("likelihood", "bleu")
_CACHE_PAIRS = 40  # whose beams show what a cache does
_CONFIRMED = 3  # of the settings that are best by likelihood, beside the present ones


def tune(
    store: Store,
    development: Annotated[Path, typer.Option("--dev", help="Pairs like the text to come, in any memory format.")],
    pairs: Annotated[int, typer.Option(min=1, help="Most pairs to tune on, and to report, from all over DEV.")] = 1000,
    all_dev: Annotated[
        bool,
        typer.Option("--all-dev", help="Tune on all of DEV and report on it, too: where a test set is elsewhere."),
    ] = False,
    keep_known: Annotated[
        bool, typer.Option("--keep-known", help="Use pairs whose source the store holds as well.")
    ] = False,
    profile: Annotated[
        str, typer.Option(help="Save under this name; NAME-fixed and NAME-cache beside it (for knn: cache).")
    ] = "knn",
    save: Annotated[bool, typer.Option(help="Save the profiles, and make the first the store's default.")] = True,
    method: Annotated[
        str, typer.Option(help="likelihood, or bleu: the paper's search over k and fixed λ, slowly.")
    ] = "likelihood",
    temperature: Annotated[
        float | None,
        typer.Option(help="T for --method bleu.  [default: the best by likelihood]", show_default=False),
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Let BLEU decide among the best, confirm τ, and report BLEU.")
    ] = False,
    sample: Annotated[int, typer.Option(min=1, help="Pairs translated for each BLEU.")] = 200,
    cache_loss: Annotated[
        float, typer.Option(min=0, help="Most nats a token that the cache, shorter keys or a faster search may lose.")
    ] = 0.01,
    bleu_loss: Annotated[float, typer.Option(min=0, help="Most BLEU that the cache may lose, with --confirm.")] = 0.1,
    dims: Annotated[bool, typer.Option("--dims", help="Say how short keys may be (knnmt reduce).")] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Say how faithful the search must be (knnmt index).")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="STEM", help="Draw STEM.png and STEM.svg.", show_default=False)
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Search every key, whatever index there is.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model the store was built with, if it has moved.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default=False)] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.", show_default=False)] = None,
) -> None:
    """Choose k, the temperature and the weight of a store's memory on development text, and save them with the store.

    One pass over the pairs gives the model's probability of every token and the 64 nearest entries; the likelihood of
    thousands of settings follows from these. Losses are nats a token; perplexity is their exponential. τ of the cache
    is chosen over the states that beam search goes through: the largest that loses no more than --cache-loss.

    DEV is divided by a hash of its sources: one half tunes, the other is reported. Pairs whose source the store holds
    are left out. `knnmt translate -d STORE` uses the default profile, `--profile NAME` another, and `--profile
    estimated` what was estimated from the store alone.

    Examples:

        knnmt tune projekt.store --dev probe.tsv

        knnmt tune projekt.store --dev probe.tsv --confirm --plot tuning

        knnmt tune projekt.store --dev probe.tsv --dims --search --no-save

        knnmt tune projekt.store --dev probe.tsv --method bleu --temperature 10      (the paper's)
    """
    from knnmt.datastore.store import Datastore
    from knnmt.retrieval.profiles import check_name

    if method not in METHODS:
        raise SettingError(f"--method must be {' or '.join(METHODS)}, got {method!r}")
    check_name(profile)
    opened = Datastore.open(store)
    text = _read(opened, development, pairs, all_dev, keep_known)
    with heavy_imports():
        from knnmt.evaluation.plotting import new_figure
        from knnmt.evaluation.tuning import load_sacrebleu
        from knnmt.translator.translator import Translator
    if confirm or method == "bleu":
        load_sacrebleu()
    if plot is not None:
        new_figure()  # what is missing shows before the work
    with ends_with("the store keeps the profiles it had"):
        translator = Translator(model or opened.manifest.model_name, device=device, threads=threads, exact=exact)
        tuning = _Tuning(translator, translator.memories.open(opened), text, sample)
        tuned = tuning.by_likelihood()
        if method == "bleu":
            main = tuning.by_bleu(tuned.fixed.fixed.temperature if temperature is None else temperature)
        else:
            main = tuning.confirm(tuned) if confirm else tuned.fading.fading
        fixed = tuned.fixed.fixed if method == "likelihood" else None
        caches, cache = tuning.cache(main, cache_loss, bleu_loss if confirm else None)
        of_dims = tuning.dims(main, cache_loss) if dims else []
        of_search = tuning.search(main, cache_loss) if search else []
        names = profile, f"{profile}-fixed", "cache" if profile == "knn" else f"{profile}-cache"
        found = {name: config for name, config in zip(names, (main, fixed, cache), strict=True) if config}
        tuning.report(found, with_bleu=confirm)
        if plot is not None:
            from knnmt.evaluation.tuning_figures import draw_tuning

            written = draw_tuning(plot, tuned, caches, of_dims, of_search, cache_loss)
            typer.echo(f"drawn       {', '.join(map(str, written))}")
        if save:
            tuning.save(found, names, method)


@dataclass(frozen=True, slots=True)
class _Text:
    """Pairs to tune on, and to report."""

    tuning: Sequence[SegmentPair]
    reported: Sequence[SegmentPair]


def _read(store: Datastore, path: Path, most: int, all_dev: bool, keep_known: bool) -> _Text:
    """The development text, divided, and a word about it."""
    from knnmt.datastore.overlap import overlap

    manifest = store.manifest
    reading = ReadingConfig(source_language=manifest.source_language, target_language=manifest.target_language)
    pairs = list(read_memories([path], reading, ReadingReport()))
    found = overlap(store, pairs)
    if found.known:
        fate = "kept" if keep_known else "left out"
        typer.echo(
            f"known       {len(found.known):,} of {len(pairs):,} pairs have a source that the store holds, "
            f"{found.whole:,} with the same target: {fate}"
        )
    usable = pairs if keep_known else list(found.new)
    tuning, reported = (usable, usable) if all_dev else halves(usable)
    if not tuning or not reported:
        raise InputError(f"{path}: {len(usable)} pairs are too few to tune and report on; give more, or --all-dev")
    text = _Text(_spread(tuning, most), _spread(reported, most))
    other = "the same are reported" if all_dev else f"{len(text.reported):,} others are reported"
    typer.echo(f"development {len(text.tuning):,} pairs of {path} tune; {other}")
    return text


def _spread(pairs: Sequence[SegmentPair], most: int) -> Sequence[SegmentPair]:
    """At most so many, from all over them."""
    count = min(most, len(pairs))
    return [pairs[place * len(pairs) // count] for place in range(count)]


class _Tuning:
    """The steps of a tuning, each with what it prints."""

    def __init__(self, translator: Translator, memory: Memory, text: _Text, sample: int) -> None:
        from knnmt.translator.memories import resolve

        self._translator, self._memory, self._text, self._sample = translator, memory, text, sample
        self._store = memory.opened.store.path
        if memory.opened.index.hint:
            print(f"knnmt: {self._store}: {memory.opened.index.hint}", file=sys.stderr)
        self._before: RetrievalConfig | None
        try:
            self._before = resolve(memory, {})
        except SettingError:  # a reduced store that nothing is known of
            self._before = None
        self._development = self._develop(text.tuning, "tuning")

    def _develop(self, pairs: Sequence[SegmentPair], name: str) -> Development:
        from knnmt.retrieval.development import develop

        with counter(name, lambda: 2 * len(pairs), "pairs passed") as progress:
            return develop(self._translator.engine, self._memory.opened, pairs, progress=progress)

    def by_likelihood(self) -> Tuned:
        """Print the best of each k."""
        from knnmt.retrieval.tuning import tune as tune_settings

        positions = self._development.positions()
        typer.echo(
            f"positions   {len(positions):,}, searched by {self._memory.opened.index.description}; "
            f"the model alone loses {positions.loss(None):.4f}"
        )
        typer.echo(f"\n{'k':>3} {'T':>8} {'fixed λ':>8} {'loss':>8}   {'T':>8} {'λ to':>6} {'fading loss':>12}")
        tuned = tune_settings(
            positions,
            hear=lambda each: typer.echo(
                f"{each.k:>3} {each.fixed.temperature:8.4g} {each.fixed.interpolation_weight:8.2f} "
                f"{each.fixed_loss:8.4f}   {each.fading.temperature:8.4g} {each.fading.interpolation_weight:6.2f} "
                f"{each.fading_loss:12.4f}"
            ),
        )
        typer.echo(f"chosen      k {tuned.fading.k} with fading λ, k {tuned.fixed.k} with fixed λ\n")
        return tuned

    def _score(self, pairs: Sequence[SegmentPair], configs: Sequence[RetrievalConfig | None]) -> list[Scored]:
        """Translate a sample with each, and print BLEU as it comes."""
        from knnmt.evaluation.tuning import score

        some = _spread(pairs, self._sample)
        scored = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KnnmtWarning)  # of single lines, that the score counts anyway
            for each in track(score(self._translator, self._store, some, configs), "BLEU", len(configs), "settings"):
                name = each.config.signature() if each.config else "the model alone"
                typer.echo(f"BLEU        {each.bleu:6.2f}  {each.saved:4.0%} saved  {name}")
                scored.append(each)
        return scored

    def _best(self, configs: Sequence[RetrievalConfig]) -> RetrievalConfig:
        typer.echo(f"confirming  on {min(self._sample, len(self._text.tuning)):,} of the pairs that tune")
        best = max(self._score(self._text.tuning, configs), key=lambda each: each.bleu).config
        assert best is not None  # noqa: S101 - each of these has settings
        typer.echo(f"chosen      {best.signature()}\n")
        return best

    def confirm(self, tuned: Tuned) -> RetrievalConfig:
        """Let BLEU choose among the best few. Those with fixed λ have no part in it: they harm text of other kinds."""
        few = [each.fading for each in sorted(tuned.tried, key=lambda each: each.fading_loss)[:_CONFIRMED]]
        present = [replace(self._before, cache=None)] if self._before and self._before.fading else []
        return self._best(list(dict.fromkeys([tuned.fading.fading, *few, *present])))

    def by_bleu(self, temperature: float) -> RetrievalConfig:
        """The paper's way: every k and λ by BLEU."""
        from knnmt.evaluation.tuning import paper_grid

        return self._best(paper_grid(temperature))

    def cache(
        self, config: RetrievalConfig, most_lost: float, most_bleu: float | None
    ) -> tuple[list[CacheTradeOff], RetrievalConfig | None]:
        """Print what ever larger τ do, and choose one."""
        from knnmt.config import CacheConfig
        from knnmt.evaluation.tuning import beam_states, confirmed_cache
        from knnmt.retrieval.cache_tuning import cache_trade_offs, largest_threshold

        opened, engine = self._memory.opened, self._translator.engine
        some = _spread(self._text.tuning, _CACHE_PAIRS)
        sources = track([pair.source for pair in some], "beams", len(some), "pairs")
        offs = cache_trade_offs(engine, opened, beam_states(self._translator, opened, config, sources), config)
        typer.echo(f"{'τ':>8} {'entries within':>15} {'searches saved':>15} {'nats lost':>10}")
        for each in offs:
            typer.echo(f"{each.threshold:8.3f} {each.quantile:15.1%} {each.saved:15.1%} {each.loss:10.4f}")
        chosen = largest_threshold(offs, most_lost)
        if chosen is not None and most_bleu is not None:
            within = [each for each in offs if each.threshold <= chosen.threshold]
            chosen = confirmed_cache(
                lambda settings: self._score(self._text.tuning, [settings])[0], config, within, most_bleu
            )
        if chosen is None:
            typer.echo(f"cache       no τ saves anything for {most_lost:g} nats: no profile with a cache\n")
            return offs, None
        typer.echo(
            f"cache       τ {chosen.threshold:.4g} saves {chosen.saved:.0%} of the searches of {len(some)} pairs "
            f"for {chosen.loss:.4f} nats, of {most_lost:g} allowed\n"
        )
        return offs, replace(config, cache=CacheConfig(chosen.threshold))

    def dims(self, config: RetrievalConfig, most_lost: float) -> list[DimensionTradeOff]:
        """Print what shorter keys lose, and propose a number of dimensions."""
        from knnmt.retrieval.store_tuning import SAMPLED_ENTRIES, SAMPLED_POSITIONS, dimension_trade_offs

        entries = self._memory.opened.index.entries
        typer.echo(f"{'dims':>8} {'variance kept':>15} {'nats lost':>10}")
        offs: list[DimensionTradeOff] = []
        for each in dimension_trade_offs(entries, self._development, config.k):
            typer.echo(f"{each.dim:>8} {each.variance:15.1%} {each.loss:10.4f}")
            offs.append(each)
        sampled = min(SAMPLED_ENTRIES, entries.entries), min(SAMPLED_POSITIONS, len(self._development))
        proposed = next((each.dim for each in offs if each.loss <= most_lost), None)
        advice = f"`knnmt reduce --dim {proposed}`" if proposed else f"keep all {entries.dim}"
        typer.echo(f"dimensions  {advice}; by {sampled[1]:,} positions and {sampled[0]:,} sampled entries\n")
        return offs

    def search(self, config: RetrievalConfig, most_lost: float) -> list[SearchTradeOff]:
        """Print what the index loses at several settings, and propose a target."""
        from knnmt.retrieval.store_tuning import search_trade_offs

        offs: list[SearchTradeOff] = []
        for each in search_trade_offs(self._memory.opened, self._development, config):
            if not offs:
                typer.echo(f"{'probes':>8} {'recall':>7} {'variation':>10} {'nats lost':>10} {'ms/40':>8}")
            typer.echo(
                f"{each.settings.probes:>8} {each.fidelity.recall:7.3f} {each.fidelity.variation:10.4f} "
                f"{each.loss:10.4f} {each.milliseconds:8.2f}"
            )
            offs.append(each)
        proposed = next((each.fidelity for each in offs if each.loss <= most_lost), None)
        if not offs:
            typer.echo("search      exact: nothing is lost\n")
        elif proposed is None:
            typer.echo("search      every setting loses more than allowed; `knnmt index --kind exact` loses nothing\n")
        else:
            recall, variation = math.floor(100 * proposed.recall) / 100, math.ceil(1000 * proposed.variation) / 1000
            typer.echo(f"search      enough: `knnmt index --recall {recall:g} --variation {variation:g}`\n")
        return offs

    def report(self, found: dict[str, RetrievalConfig], with_bleu: bool) -> None:
        """Losses of pairs that had no part in the choice, and BLEU where it is asked for."""
        positions = self._develop(self._text.reported, "reporting").positions()
        typer.echo(f"{'reported':<12}{'loss':>8} {'perplexity':>11}  settings")
        rows: dict[str, RetrievalConfig | None] = {"alone": None, "before": self._before, **found}
        rows = {name: config for name, config in rows.items() if config or name == "alone"}
        for name, config in rows.items():
            loss = positions.loss(config)
            cached = " (loss without its cache)" if config and config.cache else ""
            signature = config.signature() if config else "the model alone"
            typer.echo(f"{name:<12}{loss:8.4f} {math.exp(loss):11.3f}  {signature}{cached}")
        if with_bleu:
            typer.echo(f"translating {min(self._sample, len(self._text.reported)):,} of the reported pairs")
            self._score(self._text.reported, list(rows.values()))

    def save(self, found: dict[str, RetrievalConfig], names: Sequence[str], method: str) -> None:
        """Keep the profiles with the store; those of an earlier tuning that have no successor go."""
        from knnmt.retrieval.profiles import Profile, write_profiles

        positions = self._development.positions()
        profiles = {
            name: Profile(found[name], method, self._development.pairs, positions.loss(found[name]))
            if name in found
            else None
            for name in names
        }
        write_profiles(self._store, profiles, default=names[0])
        typer.echo(f"saved       profiles {', '.join(found)} with {self._store}; {names[0]} is its default")
