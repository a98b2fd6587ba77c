"""`tune`: settings of a store that fit development text: by likelihood, compared with the present ones, saved.

`adapt` tunes by the same steps (`StoreTuning`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from knnmt.adapting.cache_tuning import (
    CacheTradeOff,
    beam_states,
    cache_trade_offs,
    confirmed_cache,
    largest_threshold,
)
from knnmt.adapting.certainty import measure_certainty
from knnmt.adapting.development import MAX_NEIGHBOURS, Development, pass_over, searched
from knnmt.adapting.development_text import MAX_PAIRS, DevelopmentText, read_development
from knnmt.adapting.tuning_by_bleu import Scored, paper_grid, score
from knnmt.adapting.tuning_by_likelihood import Compared, Tried, Tuned, tune_positions
from knnmt.adapting.tuning_config import TuningConfig
from knnmt.calibration.certainty import MIN_PAIRS, forget_certainty
from knnmt.calibration.likelihood import Positions
from knnmt.config import DEFAULT_SEGMENTS, CacheConfig, FastConfig, RetrievalConfig, SearchScope
from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import spread
from knnmt.datastore.store import Datastore
from knnmt.documents.memory_reading import MemoriesOrPairs
from knnmt.errors import DatastoreDamagedError, KnnmtWarning, SettingError
from knnmt.evaluation.loading import Model, translator_of_store
from knnmt.evaluation.scoring import require_sacrebleu
from knnmt.progress import Bars, ignore, no_bars
from knnmt.retrieval.open_store import require_for_fast
from knnmt.retrieval.profiles import ESTIMATED, Profile, default_profile, write_profiles
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.translator.memories import Memory, warn_if_slow
from knnmt.translator.translator import Translator

CACHE_PAIRS = 40  # pairs whose beams show the effect of a cache
_MAX_CONFIRMED = 3  # of the best settings by likelihood, beside the present ones
OnMessage = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of a tuning.

    profiles: the chosen settings by profile name; the main ones come first
    default: the profile that became the store's default, or None
    tuned: the best of each k by likelihood
    compared: the main settings and the earlier ones; None if there were none, or if BLEU decided
    stays: the earlier settings are no worse, and stay
    losses: losses on the reported pairs in nats per token, by name: alone, before, and every profile
    caches: the cost of each τ
    """

    store: Path
    profiles: Mapping[str, RetrievalConfig]
    default: str | None
    tuned: Tuned
    compared: Compared | None
    stays: bool
    losses: Mapping[str, float] = field(default_factory=dict)
    caches: Sequence[CacheTradeOff] = ()

    def __str__(self) -> str:
        lines = [f"{self.store}: {f'{self.default} is its default' if self.default else 'its default stays'}"]
        for name, loss in self.losses.items():
            config = self.profiles.get(name)
            settings = f"  {config.signature()}" if config else ""
            lines.append(f"{name:<12}perplexity {math.exp(loss):.3f}{settings}")
        return "\n".join(lines)


def tune(
    store: str | Path | Datastore,
    dev: MemoriesOrPairs | DevelopmentText,
    config: TuningConfig | None = None,
    *,
    pairs: int = MAX_PAIRS,
    all_dev: bool = False,
    keep_known: bool = False,
    save: bool = True,
    model: Model | None = None,
    device: str | None = None,
    threads: int | None = None,
    exact: bool = False,
    on_message: OnMessage = ignore,
    progress: Bars = no_bars,
) -> TuningResult:
    """Choose k, T, λ and cache of a store on development text, as `knnmt tune` does, and save them with the store.

    dev: text like that to translate: memories in any format, pairs, or text that is already divided (then `pairs`,
        `all_dev` and `keep_known` have no effect)
    config: how to choose, and what may be lost
    pairs: at most this many pairs tune, and at most this many are reported, from all over the text
    all_dev: tune and report on all of it
    keep_known: also use pairs whose source the store holds
    model: by default the model that the store was built with; a loaded `Translator` is used as it is
    on_message: is called with lines after each step; `print` shows what the command shows
    progress: makes progress bars: given a description and a unit, it returns a function to call with the amount done
        and the total
    """
    config = config or TuningConfig()
    opened = store if isinstance(store, Datastore) else Datastore.open(Path(store))
    if not isinstance(dev, DevelopmentText):
        dev = read_development(opened, dev, pairs, all_dev, keep_known, on_message)
    if config.fast:
        require_for_fast(opened)
    if config.scores:
        require_sacrebleu(opened.manifest.target_language)
    translator = translator_of_store(opened, model, device, threads, exact)
    memory = translator.memories.open(opened)
    tuning = StoreTuning(translator, memory, dev, config, on_message, progress)
    result = tuning.choose()
    result = replace(result, losses=tuning.report(result))
    if save:
        tuning.save(result)
        if config.may_become_default:
            tuning.measure_certainty()
    return result


class StoreTuning:
    """The steps from a store and development text to profiles."""

    def __init__(
        self,
        translator: Translator,
        memory: Memory,
        text: DevelopmentText,
        config: TuningConfig | None = None,
        on_message: OnMessage = ignore,
        progress: Bars = no_bars,
    ) -> None:
        self._translator, self._memory, self._text = translator, memory, text
        self._config, self._say, self._progress = config or TuningConfig(), on_message, progress
        self._store = memory.opened.datastore.path
        passed = self._pass(text.tuning, "tuning")
        self._scope: SearchScope = self._config.fast or self._config.segments
        if isinstance(self._scope, FastConfig):
            present = RetrievalSettings(fast=self._scope.candidates)
        elif self._config.searches_whole:
            present = RetrievalSettings(search="whole")
            warn_if_slow(memory.opened)
        else:
            self._scope = self._scope or DEFAULT_SEGMENTS
            present = RetrievalSettings(segments=self._scope)

        def known(settings: RetrievalSettings) -> RetrievalConfig | None:
            try:
                config = memory.resolve(settings)
            except (SettingError, DatastoreDamagedError):  # a reduced store that nothing is known of, a damaged profile
                return None
            # There are no losses here for a gate's λ, or for the results of another search.
            return config if config.gate is None and self._searches(config) else None

        self._before = known(present)
        self._default_compares = known(RetrievalSettings()) is not None  # otherwise it has no loss to compare with
        self._development = self._search(passed, MAX_NEIGHBOURS)
        self._positions = self._development.positions()
        self._reported: Positions | None = None
        self._reported_k = MAX_NEIGHBOURS

    @property
    def reported(self) -> Positions | None:
        """The positions of the reported pairs; None if there are no pairs to report."""
        if self._reported is None and self._text.reported:
            text = self._development
            if self._text.reported != self._text.tuning:
                text = self._search(self._pass(self._text.reported, "reporting"), self._reported_k)
            self._reported = text.positions()
        return self._reported

    def _pass(self, pairs: Sequence[SegmentPair], name: str) -> Development:
        engine = self._translator.engine
        with self._progress(name, "pairs passed") as progress:
            passed = pass_over(engine, self._memory.opened, pairs, lambda done, _rows: progress(done, len(pairs)))
        if missing := len(pairs) - passed.pairs:
            self._say(
                f"too long    {missing:,} of {len(pairs):,} pairs, for the model's {engine.max_positions} positions: "
                "left out"
            )
        return passed

    def _search(self, passed: Development, k: int) -> Development:
        engine, opened = self._translator.engine, self._memory.opened
        with self._progress("searching", "positions") as progress:
            return searched(engine, opened, passed, self._scope, k, lambda rows: progress(rows, len(passed)))

    def choose(self) -> TuningResult:
        """The settings that fit best, according to the configuration; nothing is saved yet."""
        config, compared = self._config, None
        tuned = self._by_likelihood()
        if not config.scores:  # BLEU may choose a larger k than these
            candidates = [tuned.fading.fading, tuned.fixed.fixed, *self._present()]
            self._reported_k = max(each.k for each in candidates)
        if config.method == "bleu":
            temperature = tuned.fixed.fixed.temperature if config.temperature is None else config.temperature
            # The paper's method. The present settings take part if they could be replaced.
            present = self._present() if config.may_become_default else []
            main, stays = self._by_bleu([*paper_grid(temperature), *present])
        elif config.confirm:
            # Settings with fixed λ take no part: they harm text of other kinds.
            few = [each.fading for each in sorted(tuned.tried, key=lambda each: each.fading_loss)[:_MAX_CONFIRMED]]
            main, stays = self._by_bleu(list(dict.fromkeys([tuned.fading.fading, *few, *self._present()])))
        else:
            main, compared = self._unless_worse(tuned.fading.fading)
            stays = compared is not None and not compared.improves
        fixed = tuned.fixed.fixed if config.method == "likelihood" else None
        # The loss by a cache is computed with the weights of knnmt's own combiner.
        caches, cached = ([], None) if self._scope is not None or config.plugins else self._cache(main)
        named = {name: each for name, each in zip(config.names, (main, fixed, cached), strict=True) if each}
        becomes = config.may_become_default and not (stays and self._default_compares)
        return TuningResult(
            self._store,
            named,
            config.names[0] if becomes else None,
            tuned,
            compared,
            stays,
            caches=caches,
        )

    def _by_likelihood(self) -> Tuned:
        """The best settings for each k."""
        scope, positions = self._scope, self._positions
        how = f"by {self._memory.opened.index.description}"
        if isinstance(scope, FastConfig):
            how = f"in stores of {scope.candidates} occurrences of each source token"
        elif scope is not None:
            how = f"in the {scope} segments that cover each source best"
        self._say(f"positions   {len(positions):,}, searched {how}; the model alone loses {positions.loss(None):.4f}")
        self._say(f"\n{'k':>3} {'T':>8} {'fixed λ':>8} {'loss':>8}   {'T':>8} {'λ to':>6} {'fading loss':>12}")

        def show(each: Tried) -> None:
            self._say(
                f"{each.k:>3} {each.fixed.temperature:8.4g} {each.fixed.interpolation_weight:8.2f} "
                f"{each.fixed_loss:8.4f}   {each.fading.temperature:8.4g} {each.fading.interpolation_weight:6.2f} "
                f"{each.fading_loss:12.4f}"
            )

        config = self._config
        tuned = tune_positions(
            positions, ks=config.ks, weights=config.weights, on_tried=show, scope=scope, before=self._before
        )
        self._say(f"chosen      k {tuned.fading.k} with fading λ, k {tuned.fixed.k} with fixed λ\n")
        return tuned

    def _unless_worse(self, tuned: RetrievalConfig) -> tuple[RetrievalConfig, Compared | None]:
        """The tuned settings, or the earlier ones if these lose no more; and the losses of both."""
        if self._before is None:
            return tuned, None
        compared = Compared.of(self._before, tuned, self._positions, self.reported)
        fate = "tuned settings are better" if compared.improves else "the present settings are no worse and stay"
        self._say(f"compared    {fate}: {compared.in_words}\n")
        return tuned if compared.improves else replace(self._before, cache=None), compared

    def _present(self) -> list[RetrievalConfig]:
        return [] if self._before is None else [replace(self._before, cache=None)]

    def _by_bleu(self, configs: Sequence[RetrievalConfig]) -> tuple[RetrievalConfig, bool]:
        """The settings with the best BLEU, and whether they are the earlier ones."""
        scored = min(self._config.scored_pairs, len(self._text.tuning))
        self._say(f"confirming  on {scored:,} of the tuning pairs")
        scores = [each.bleu for each in self._score(self._text.tuning, configs)]
        best = configs[scores.index(max(scores))]
        stays = best in self._present()
        self._say(f"chosen      {best.signature()}{', the present settings' if stays else ''}\n")
        return best, stays

    def _score(self, pairs: Sequence[SegmentPair], configs: Sequence[RetrievalConfig | None]) -> list[Scored]:
        """Translate a sample with each of the settings, and score it."""
        some = spread(pairs, self._config.scored_pairs)
        scored: list[Scored] = []
        with self._progress("BLEU", "settings") as progress, warnings.catch_warnings():
            warnings.simplefilter("ignore", KnnmtWarning)  # of single lines, which the score counts anyway
            progress(0, len(configs))
            for each in score(self._translator, self._store, some, configs, self._config.plugins):
                name = each.config.signature() if each.config else "the model alone"
                self._say(f"BLEU        {each.bleu:6.2f}  {each.saved:4.0%} saved  {name}")
                scored.append(each)
                progress(len(scored), len(configs))
        return scored

    def _cache(self, config: RetrievalConfig) -> tuple[list[CacheTradeOff], RetrievalConfig | None]:
        """The effect of larger and larger τ, and the settings with the chosen τ, if one is worth it."""
        opened, engine = self._memory.opened, self._translator.engine
        most_lost, most_bleu = self._config.cache_loss, self._config.most_bleu_lost
        some = spread(self._text.tuning, CACHE_PAIRS)
        with self._progress("beams", "pairs") as progress:

            def sources() -> Iterator[str]:
                for done, pair in enumerate(some):
                    progress(done, len(some))
                    yield pair.source

            decoded = beam_states(self._translator, opened, config, sources())
        offs = cache_trade_offs(engine, opened, decoded, config)
        self._say(f"{'τ':>8} {'entries within':>15} {'searches saved':>15} {'nats lost':>10}")
        for each in offs:
            self._say(f"{each.threshold:8.3f} {each.quantile:15.1%} {each.saved:15.1%} {each.loss:10.4f}")
        chosen = largest_threshold(offs, most_lost)
        if chosen is not None and most_bleu is not None:
            within = [each for each in offs if each.threshold <= chosen.threshold]
            chosen = confirmed_cache(
                lambda settings: self._score(self._text.tuning, [settings])[0].bleu, config, within, most_bleu
            )
        if chosen is None:
            limits = f"{most_lost:g} nats" + ("" if most_bleu is None else f" and {most_bleu:g} BLEU")
            self._say(f"cache       no τ saves searches and keeps {limits}: no profile with a cache\n")
            return offs, None
        self._say(
            f"cache       τ {chosen.threshold:.4g} saves {chosen.saved:.0%} of the searches of {len(some)} pairs "
            f"for {chosen.loss:.4f} nats, of {most_lost:g} allowed\n"
        )
        return offs, replace(config, cache=CacheConfig(chosen.threshold))

    def report(self, result: TuningResult) -> dict[str, float]:
        """The losses on pairs that had no part in the choice; also BLEU, on request.

        There are no losses with your own parts, because losses are computed with the weights of knnmt's own combiner.
        """
        if self.reported is None:
            return {}
        rows: dict[str, RetrievalConfig | None] = {"alone": None, "before": self._before, **result.profiles}
        # There are no losses for another kind of search: its neighbours were not searched.
        rows = {name: config for name, config in rows.items() if name == "alone" or (config and self._searches(config))}
        losses: dict[str, float] = {}
        if not self._config.plugins:
            self._say(f"{'reported':<12}{'loss':>8} {'perplexity':>11}  settings")
            losses = {name: self.reported.loss(config) for name, config in rows.items()}
        for name in losses:
            config = rows[name]
            cached = " (loss without its cache)" if config and config.cache else ""
            signature = config.signature() if config else "the model alone"
            self._say(f"{name:<12}{losses[name]:8.4f} {math.exp(losses[name]):11.3f}  {signature}{cached}")
        if self._config.confirm:
            translated = min(self._config.scored_pairs, len(self._text.reported))
            self._say(f"translating {translated:,} of the reported pairs")
            self._score(self._text.reported, list(rows.values()))
        return losses

    def _searches(self, config: RetrievalConfig) -> bool:
        """Whether settings use the same search as the positions."""
        fast = isinstance(self._scope, FastConfig)
        return isinstance(config.scope, FastConfig) if fast else config.scope == self._scope

    def save(self, result: TuningResult) -> None:
        """Save the profiles with the store. Profiles of an earlier tuning without a successor are removed. Earlier
        settings that are no worse stay the default.
        """
        self._memory.opened.datastore.require_unchanged()
        names = self._config.names
        profiles: dict[str, Profile | None] = dict.fromkeys(names)
        main = next(iter(result.profiles))
        for name, config in result.profiles.items():
            by_bleu = self._config.scores and name != names[1]  # BLEU never decides the profile with the fixed λ
            scored = min(self._config.scored_pairs, len(self._text.tuning))
            method, pairs = ("bleu", scored) if by_bleu else ("likelihood", self._development.pairs)
            # A cache does not affect forced text, and other weights have other losses, so there is no loss for these.
            loss = None if config.cache or self._config.plugins else self._positions.loss(config)
            profiles[name] = Profile(config, method, pairs, loss)
        if result.default:
            fate = f"{result.default} is its default"
        elif self._config.may_become_default:
            default = default_profile(self._store) or ESTIMATED
            if default == main:
                del profiles[default]  # with its cache, if any
            fate = f"{default} stays its default"
        elif self._config.plugins:
            plugins = "".join(f" --{part} {name}" for part, name in self._config.plugins.items())
            fate = f"to be used with --profile {names[0]}{plugins}"
        else:
            fate = f"{names[0]} is not its default: `--profile {names[0]}` would make it the default"
        write_profiles(self._store, profiles, result.default)
        saved = [name for name in result.profiles if name in profiles]
        self._say(f"saved       profiles {', '.join(saved)} with {self._store}; {fate}")

    def measure_certainty(self) -> None:
        """Translate some of the reported pairs with the store's present default, and save the certainty of such
        translations.
        """
        pairs = spread(self._text.reported or self._text.tuning, self._config.scored_pairs)
        forget_certainty(self._store)  # it may be damaged
        with self._progress("certainty", "pairs translated") as progress:
            certainty = measure_certainty(self._translator, self._store, pairs, lambda done: progress(done, len(pairs)))
        if certainty is None:
            self._say(
                f"certainty   not measured: it needs {MIN_PAIRS} pairs that the store does not hold, and rapidfuzz"
            )
            return
        certainty.save(self._store)
        self._say(f"certainty   measured on {certainty.pairs:,} pairs: translations have a certainty")
