"""The steps of `knnmt tune`, each with what it prints."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from knnmt.cli.progress import counter, track
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.reading import read_memories
from knnmt.corpus.report import ReadingReport
from knnmt.corpus.splitting import halves, spread
from knnmt.corpus.visible import visible
from knnmt.engine.checkpoint import NamedByStore
from knnmt.errors import DatastoreDamagedError, InputError, KnnmtWarning, SettingError

if TYPE_CHECKING:
    from knnmt.config import FastConfig, RetrievalConfig
    from knnmt.datastore.store import Datastore
    from knnmt.evaluation.tuning import Scored
    from knnmt.fitting.cache_tuning import CacheTradeOff
    from knnmt.fitting.development import Development
    from knnmt.fitting.likelihood import Positions
    from knnmt.fitting.store_tuning import DimensionTradeOff, SearchTradeOff
    from knnmt.fitting.tuning import Tuned
    from knnmt.translator.memories import Memory
    from knnmt.translator.translator import Translator

_CONFIRMED = 3  # of the settings that are best by likelihood, beside the present ones


@dataclass(frozen=True, slots=True)
class Text:
    """Pairs to tune on, and to report, and the file that they come from."""

    path: Path
    tuning: Sequence[SegmentPair]
    reported: Sequence[SegmentPair]


def load_for(store: Datastore, model: str | None, device: str | None, threads: int | None, exact: bool) -> Translator:
    """The model that a store was built with, where it was or in another place, told the store's languages."""
    from knnmt.translator.translator import Translator

    manifest = store.manifest
    return Translator(
        model or NamedByStore(manifest.model_name),
        device=device,
        threads=threads,
        exact=exact,
        source_lang=manifest.source_language,
        target_lang=manifest.target_language,
    )


def read_text(store: Datastore, path: Path, most: int, all_dev: bool, keep_known: bool) -> Text:
    """The development text, divided, and a word about it."""
    from knnmt.datastore.overlap import overlap

    manifest = store.manifest
    reading = ReadingConfig(source_language=manifest.source_language, target_language=manifest.target_language)
    report = ReadingReport()
    pairs = list(read_memories([path], reading, report))
    for reason, count in report.skipped.most_common():
        typer.echo(f"left out    {count:,} of {path}: {visible(reason)}")
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
    text = Text(path, spread(tuning, most), spread(reported, most))
    other = "the same are reported" if all_dev else f"{len(text.reported):,} others are reported"
    typer.echo(f"development {len(text.tuning):,} pairs of {path} tune; {other}")
    return text


class TuningSteps:
    """What a tuning does with a store and a text."""

    def __init__(
        self, translator: Translator, memory: Memory, text: Text, sample: int, fast: FastConfig | None = None
    ) -> None:
        from knnmt.retrieval.settings import RetrievalSettings
        from knnmt.translator.memories import warn_if_slow

        self._fast = fast
        self._translator, self._memory, self._text, self._sample = translator, memory, text, sample
        self._store = memory.opened.store.path
        self._scored_pairs = min(sample, len(text.tuning))
        if fast is None:
            warn_if_slow(memory.opened)

        def known(settings: RetrievalSettings) -> RetrievalConfig | None:
            try:
                config = memory.resolve(settings)
            except (SettingError, DatastoreDamagedError):  # a reduced store that nothing is known of, a damaged profile
                return None
            # Of a gate's λ, and of distances of the other kind, there are no losses here.
            return config if config.gate is None and bool(config.fast) == bool(fast) else None

        self._before = known(RetrievalSettings(fast=fast.candidates if fast else None))
        self._replaces_default = known(RetrievalSettings()) is None  # whatever it is, it has no loss to compare with
        self._stays = False  # whether what was there is no worse than what was found
        self._development = self._develop(text.tuning, "tuning")
        self._reported: Positions | None = None

    def _develop(self, pairs: Sequence[SegmentPair], name: str) -> Development:
        from knnmt.fitting.development import develop

        with counter(name, lambda: 2 * len(pairs), "pairs passed") as progress:
            found = develop(self._translator.engine, self._memory.opened, pairs, progress=progress, fast=self._fast)
        if missing := len(pairs) - found.pairs:
            positions = self._translator.engine.max_positions
            typer.echo(
                f"too long    {missing:,} of {len(pairs):,} pairs, for the model's {positions} positions: left out"
            )
        return found

    def by_likelihood(self) -> Tuned:
        """Print the best of each k."""
        from knnmt.fitting.tuning import tune as tune_settings

        positions = self._development.positions()
        how = f"by {self._memory.opened.index.description}"
        if self._fast is not None:
            how = f"in stores of {self._fast.candidates} occurrences of each source token"
        typer.echo(f"positions   {len(positions):,}, searched {how}; the model alone loses {positions.loss(None):.4f}")
        typer.echo(f"\n{'k':>3} {'T':>8} {'fixed λ':>8} {'loss':>8}   {'T':>8} {'λ to':>6} {'fading loss':>12}")
        tuned = tune_settings(
            positions,
            hear=lambda each: typer.echo(
                f"{each.k:>3} {each.fixed.temperature:8.4g} {each.fixed.interpolation_weight:8.2f} "
                f"{each.fixed_loss:8.4f}   {each.fading.temperature:8.4g} {each.fading.interpolation_weight:6.2f} "
                f"{each.fading_loss:12.4f}"
            ),
            fast=self._fast,
            before=self._before,
        )
        typer.echo(f"chosen      k {tuned.fading.k} with fading λ, k {tuned.fixed.k} with fixed λ\n")
        return tuned

    def unless_worse(self, tuned: RetrievalConfig) -> RetrievalConfig:
        """Tuned settings, or those that were there if these lose no more; says what both lose."""
        from knnmt.fitting.tuning import Compared

        if self._before is None:
            return tuned
        compared = Compared.of(self._before, tuned, self._development.positions(), self._reported_positions())
        self._stays = not compared.improves
        fate = "what was there is no worse and stays" if self._stays else "tuned settings are better"
        typer.echo(f"compared    {fate}: {compared.in_words}\n")
        return replace(self._before, cache=None) if self._stays else tuned

    def _reported_positions(self) -> Positions:
        if self._reported is None:
            same = self._text.reported == self._text.tuning
            found = self._development if same else self._develop(self._text.reported, "reporting")
            self._reported = found.positions()
        return self._reported

    def _score(self, pairs: Sequence[SegmentPair], configs: Sequence[RetrievalConfig | None]) -> list[Scored]:
        """Translate a sample with each, and print BLEU as it comes."""
        from knnmt.evaluation.tuning import score

        some = spread(pairs, self._sample)
        scored = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KnnmtWarning)  # of single lines, that the score counts anyway
            for each in track(score(self._translator, self._store, some, configs), "BLEU", len(configs), "settings"):
                name = each.config.signature() if each.config else "the model alone"
                typer.echo(f"BLEU        {each.bleu:6.2f}  {each.saved:4.0%} saved  {name}")
                scored.append(each)
        return scored

    def _best(self, configs: Sequence[RetrievalConfig]) -> RetrievalConfig:
        typer.echo(f"confirming  on {self._scored_pairs:,} of the pairs that tune")
        scores = [each.bleu for each in self._score(self._text.tuning, configs)]
        best = configs[scores.index(max(scores))]
        self._stays = self._before is not None and best == replace(self._before, cache=None)
        typer.echo(f"chosen      {best.signature()}{', which was there and stays' if self._stays else ''}\n")
        return best

    def confirm(self, tuned: Tuned) -> RetrievalConfig:
        """Let BLEU choose among the best few and what was there. Those that were found with fixed λ have no part in
        it: they harm text of other kinds.
        """
        few = [each.fading for each in sorted(tuned.tried, key=lambda each: each.fading_loss)[:_CONFIRMED]]
        return self._best(list(dict.fromkeys([tuned.fading.fading, *few, *self._present()])))

    def by_bleu(self, temperature: float, with_present: bool) -> RetrievalConfig:
        """The paper's way: every k and λ by BLEU, where it is asked for beside what was there."""
        from knnmt.evaluation.tuning import paper_grid

        return self._best([*paper_grid(temperature), *(self._present() if with_present else [])])

    def _present(self) -> list[RetrievalConfig]:
        return [] if self._before is None else [replace(self._before, cache=None)]

    def cache(
        self, config: RetrievalConfig, most_lost: float, most_bleu: float | None
    ) -> tuple[list[CacheTradeOff], RetrievalConfig | None]:
        """Print what ever larger τ do, and choose one."""
        from knnmt.config import CacheConfig
        from knnmt.evaluation.tuning import CACHE_PAIRS, beam_states, confirmed_cache
        from knnmt.fitting.cache_tuning import cache_trade_offs, largest_threshold

        opened, engine = self._memory.opened, self._translator.engine
        some = spread(self._text.tuning, CACHE_PAIRS)
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
            limits = f"{most_lost:g} nats" + ("" if most_bleu is None else f" and {most_bleu:g} BLEU")
            typer.echo(f"cache       no τ saves searches and holds {limits}: no profile with a cache\n")
            return offs, None
        typer.echo(
            f"cache       τ {chosen.threshold:.4g} saves {chosen.saved:.0%} of the searches of {len(some)} pairs "
            f"for {chosen.loss:.4f} nats, of {most_lost:g} allowed\n"
        )
        return offs, replace(config, cache=CacheConfig(chosen.threshold))

    def dims(self, config: RetrievalConfig, most_lost: float) -> list[DimensionTradeOff]:
        """Print what shorter keys lose, and propose a number of dimensions."""
        from knnmt.fitting.store_tuning import SAMPLED_ENTRIES, SAMPLED_POSITIONS, dimension_trade_offs

        entries = self._memory.opened.index.entries
        typer.echo(f"{'dims':>8} {'variance kept':>15} {'nats lost':>10}")
        offs: list[DimensionTradeOff] = []
        for each in dimension_trade_offs(entries, self._development, config.k):
            typer.echo(f"{each.dim:>8} {each.variance:15.1%} {each.loss:10.4f}")
            offs.append(each)
        sampled = min(SAMPLED_ENTRIES, entries.entries), len(self._development.spread(SAMPLED_POSITIONS))
        proposed = next((each.dim for each in offs if each.loss <= most_lost), None)
        store = shlex.quote(str(self._store))
        advice = f"`knnmt reduce {store} -o NEW --dim {proposed}`" if proposed else f"keep all {entries.dim}"
        typer.echo(f"dimensions  {advice}; by {sampled[1]:,} positions and {sampled[0]:,} sampled entries\n")
        return offs

    def search(self, config: RetrievalConfig, most_lost: float) -> list[SearchTradeOff]:
        """Print what the index loses at several settings, and propose a target."""
        from knnmt.fitting.store_tuning import search_trade_offs

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
        index = f"knnmt index {shlex.quote(str(self._store))}"
        if not offs:
            typer.echo("search      exact: nothing is lost\n")
        elif proposed is None:
            typer.echo(f"search      every setting loses more than allowed; `{index} --kind exact` loses nothing\n")
        else:
            recall, variation = math.floor(100 * proposed.recall) / 100, math.ceil(1000 * proposed.variation) / 1000
            target = f"--recall {recall:g} --variation {variation:g}"
            typer.echo(f"search      enough: `{index} --dev {shlex.quote(str(self._text.path))} {target}`\n")
        return offs

    def report(self, found: dict[str, RetrievalConfig], with_bleu: bool) -> None:
        """Losses of pairs that had no part in the choice, and BLEU where it is asked for."""
        positions = self._reported_positions()
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

    def save(
        self, found: dict[str, RetrievalConfig], names: tuple[str, str, str], by_bleu: bool, as_default: bool
    ) -> None:
        """Keep the profiles with the store; those of an earlier tuning that have no successor go. What was there and is
        no worse stays the default.

        by_bleu: that it had the last word, which it never has on the fixed λ beside the others
        """
        from knnmt.retrieval.profiles import Profile, default_profile, write_profiles

        positions = self._development.positions()
        profiles: dict[str, Profile | None] = dict.fromkeys(names)
        for name, config in found.items():
            scored = by_bleu and name != names[1]
            method, pairs = ("bleu", self._scored_pairs) if scored else ("likelihood", self._development.pairs)
            loss = None if config.cache else positions.loss(config)  # what a cache loses does not show in forced text
            profiles[name] = Profile(config, method, pairs, loss)
        fate = f"{names[0]} is its default" if as_default else _not_default(names[0])
        if as_default and self._stays and not self._replaces_default:
            default = default_profile(self._store) or "estimated"
            if default == names[0]:
                del profiles[default]  # with the cache that it may have
            fate = f"{default} stays its default"
            as_default = False
        write_profiles(self._store, profiles, names[0] if as_default else None)
        saved = [name for name in found if name in profiles]
        typer.echo(f"saved       profiles {', '.join(saved)} with {self._store}; {fate}")


def _not_default(name: str) -> str:
    return f"{name} is not its default: `--profile {name}` would make it that"
