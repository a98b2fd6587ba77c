"""Adapting to a memory in one step: a store is built, tuned and measured on a held-out part, which is then added.

The store is built in `STORE.adapting-DIGEST/` and put in its place as soon as it can be used; tuned settings follow. If
interrupted, the same call resumes: finished work is not repeated.
"""

from __future__ import annotations

import glob
import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from knnmt.adapting.development_text import DevelopmentText
from knnmt.adapting.gain import Gain, measure_gain
from knnmt.adapting.holding_out import MAX_HELD_OUT, MIN_HELD_OUT, Plan, plan
from knnmt.adapting.tune import StoreTuning
from knnmt.adapting.tuning_by_likelihood import Compared
from knnmt.adapting.tuning_config import SAMPLE
from knnmt.calibration.certainty import Certainty
from knnmt.calibration.estimates import estimate_settings
from knnmt.calibration.likelihood import Positions
from knnmt.config import check
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import SegmentPair
from knnmt.datastore.building import BuildConfig, require_free, write_store
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import MANIFEST
from knnmt.datastore.overlap import overlap, unseen
from knnmt.datastore.publication import storage_errors, sync_directory
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.datastore.store import Datastore
from knnmt.datastore.unfinished import (
    is_unfinished,
    mark_finished,
    mark_unfinished,
    require_free_or_unfinished,
)
from knnmt.decoding.tokenizer_check import require_own_tokens
from knnmt.distributed.building import encode_on
from knnmt.distributed.cluster import Cluster
from knnmt.documents.memory_languages import model_for
from knnmt.documents.memory_reading import MemoriesOrPairs, MemoryReading, files_or_pairs
from knnmt.errors import InputError, MissingDependencyError, SettingError
from knnmt.evaluation.loading import Model, text_languages, translator_of
from knnmt.evaluation.scoring import require_sacrebleu
from knnmt.progress import Bars, ignore, no_bars
from knnmt.records import as_record
from knnmt.retrieval.profiles import SEGMENTS, default_profile, read_profiles
from knnmt.translator.translator import Translator

_GAIN, _COMPARED = "gain", "compared"  # sections of a store's settings: the measurements


@dataclass(frozen=True, slots=True)
class Adapted:
    """The result of adapting.

    gain: None if there was too little text to measure it
    report: lines for people
    """

    store: Datastore
    gain: Gain | None
    report: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.report)


def adapt(
    memories: MemoriesOrPairs | Plan,
    store: str | Path,
    config: BuildConfig | None = None,
    *,
    dev: MemoriesOrPairs | None = None,
    sample: int = SAMPLE,
    model: Model | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    cluster: Cluster | None = None,
    on_message: Callable[[str], None] = ignore,
    verbose: bool = False,
    progress: Bars = no_bars,
    work: Path | None = None,
    on_built: Callable[[], None] = ignore,
) -> Adapted:
    """Make a store from memories, as `knnmt adapt` does.

    It is built, and can be used from then on. Then it is tuned, and its gain is measured on held-out text, which is
    added at the end. If the call is killed, the same call resumes.

    memories: files in any memory format, documents, folders, pairs (`read_memories` reads with your own settings), or a
        plan of what to hold out, which has its development text
    store: a directory that does not exist yet
    config: how to build it
    dev: files or pairs to tune and report on; then nothing is held out. They do not become part of the store
    sample: at most this many pairs are translated and scored; 0 for none
    model: a shipped model, a checkpoint directory, a Hugging Face name, or a loaded `Translator`; by default the
        shipped model for the languages of the memories
    source_lang, target_lang: languages of the memories; by default the model's
    cluster: where Ray runs the model over the text; by default this process runs it. Tuning and measuring always run in
        this process
    on_message: is called with a line after each step; `print` shows what the command shows
    verbose: whether these lines have details of the tuning and of the measurement
    progress: makes progress bars: given a description and a unit, it returns a function to call with the amount done
        and the total
    work: the directory in which the store is built; by default one beside it
    on_built: is called when the store can be used
    """
    store, report = Path(store), _Report(on_message, verbose)
    if model is None:
        if isinstance(memories, Plan):
            choice, _ = model_for(memories.memory(), source_lang, target_lang)
        else:
            choice, memories = model_for(memories, source_lang, target_lang)
        report.add(f"model      {choice}")
        model, source_lang, target_lang = choice.name, choice.source, choice.target
    languages = text_languages(model, source_lang, target_lang)
    if isinstance(memories, Plan):
        check(dev is None, "a plan includes its development text: give dev to the plan")
    else:
        require_free_or_unfinished(store)  # before reading anything
        memories = _planned(memories, dev, ReadingConfig(*languages), report)
    config = (config or BuildConfig()).between(*languages)
    translator = translator_of(model, device=device, threads=threads, source_lang=source_lang, target_lang=target_lang)
    adapting = _Adapting(store, memories, translator, config, sample, report, progress)
    return adapting.run(work, cluster, on_built)


class _Report:
    """Lines for people as they come; details only on request."""

    def __init__(self, on_message: Callable[[str], None], verbose: bool) -> None:
        self.lines: list[str] = []
        self.verbose, self._on_message, self._started = verbose, on_message, time.perf_counter()

    def add(self, line: str) -> None:
        self.lines.append(line)
        self._on_message(line)

    def detail(self, line: str) -> None:
        if self.verbose:
            self.add(line)

    @property
    def seconds(self) -> float:
        """The time since the beginning."""
        return time.perf_counter() - self._started


def _planned(
    memories: MemoriesOrPairs,
    dev: MemoriesOrPairs | None,
    reading: ReadingConfig,
    report: _Report,
) -> Plan:
    development = None if dev is None else files_or_pairs(dev, reading)
    if isinstance(development, MemoryReading):
        development = development.pairs()
    given = files_or_pairs(memories, reading)
    if not isinstance(given, MemoryReading):
        pairs = list(given)  # they are read several times
        return plan(lambda: pairs, development)
    given.require_files()
    planned = plan(given.pairs, development)
    for line in given.summary() if report.verbose else [given.brief()]:
        report.add(line)
    return planned


@dataclass(slots=True)
class _Adapting:
    """The steps of adapting. Each checks whether it is already done."""

    place: Path
    plan: Plan
    translator: Translator
    config: BuildConfig
    sample: int
    report: _Report
    progress: Bars
    reported: Positions | None = None  # of the text to report, if tuning searched it

    def run(self, work: Path | None, cluster: Cluster | None, on_built: Callable[[], None]) -> Adapted:
        """Do the steps that are not done yet, in a directory that goes at the end."""
        place, plan, report = self.place, self.plan, self.report
        work = work or place.with_name(f"{place.name}.adapting-{self.digest}")
        if not is_unfinished(place, self.digest):
            if place.exists() and work.is_dir() and {path.name for path in work.iterdir()} <= {"lock"}:
                shutil.rmtree(work, ignore_errors=True)  # left by a run that was killed at its very end
            require_free_or_unfinished(place, self.digest)
            if not plan.count:
                raise InputError(f"{place}: not made, because no usable pair was read")
        for other in sorted(place.parent.glob(f"{glob.escape(place.name)}.adapting-*")):
            abandoned = (
                f"noted      {other} is left from another text or other settings; remove it unless you want to "
                f"resume that work"
            )
            report.add(f"continued  {place}" if other == work else abandoned)
        if not any((path / MANIFEST).exists() for path in (place, work / "store")):
            require_own_tokens(self.translator.engine, plan.held_out or list(islice(plan.memory(), MAX_HELD_OUT)))
        with storage_errors(work):
            work.mkdir(parents=True, exist_ok=True)
        with writer_lock(work):
            if plan.held_out:
                report.add(f"held out   {plan.in_words}")
                report.detail(f"           {plan.parts_in_words}")
            if not is_unfinished(place, self.digest):
                require_free(place)
                self.build(work / "store", cluster)
            self.report_build()
            on_built()
            try:
                gain = self.measure() if self.tune() else None
                self.add_held_out()
            finally:
                self.translator.memories.close(place)
            mark_finished(place)
        shutil.rmtree(work, ignore_errors=True)  # only now: Windows would keep an open lock
        store = Datastore.open(place)
        made = f"{place} in {report.seconds:.0f} s: {store.manifest.sentences:,} sentences"
        is_bad = gain is not None and gain.is_bad
        report.add(f"made       {made}, but it should not be used as it is" if is_bad else f"adapted    {made}")
        return Adapted(store, gain, tuple(report.lines))

    @property
    def digest(self) -> str:
        """The name of the work of one call: another text, model or setting gives another name."""
        engine = self.translator.engine
        model = engine.fingerprint.model, engine.fingerprint.tokenizer, engine.computes_in
        parts = [self.plan.digest, *model, self.config, self.sample]
        return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:8]

    def _open(self) -> Datastore:
        return Datastore.open(self.place, self.translator.engine)

    def build(self, work: Path, cluster: Cluster | None) -> None:
        """Build the store without the held-out pairs, and put it in its place, where it can be used at once.

        Args:
            work: where it is built
            cluster: where Ray runs the model; by default this process runs it
        """
        plan, engine = self.plan, self.translator.engine
        if not (work / MANIFEST).exists():
            total = plan.count - len(plan.held_out)
            with self.progress("building", "pairs") as progress:
                built = write_store(
                    work,
                    plan.built_first(),
                    engine,
                    self.config,
                    lambda pairs, _entries: progress(pairs, total),
                    encode=None if cluster is None else encode_on(cluster),
                )
            for reason, count in built.dropped.most_common():
                self.report.add(f"left out   {count:,}  {reason}")
        estimate_settings(Datastore.open(work, engine), engine)
        mark_unfinished(work, self.digest)
        with storage_errors(self.place):
            work.rename(self.place)
            sync_directory(self.place.parent)

    def report_build(self) -> None:
        """Say that the store can be used."""
        manifest, report = self._open().manifest, self.report
        report.add(f"built      {self.place} after {report.seconds:.0f} s: it can be used from now on")
        report.detail(
            f"           {manifest.sentences:,} sentences, {manifest.entries:,} entries of {manifest.dim} dimensions"
        )

    def tune(self) -> bool:
        """Choose settings by likelihood; False if there is too little text for that: then the estimated ones stay."""
        plan, report = self.plan, self.report
        if SEGMENTS not in read_profiles(self.place):
            pairs = overlap(self._open(), plan.tuning).new if plan.tuning else ()
            if len(pairs) < MIN_HELD_OUT // 4:
                why = (
                    "the store holds nearly all of the text to measure on"
                    if plan.tuning
                    else "there is too little text"
                )
                report.add(f"unmeasured {why}; 400 pairs in the memory, or 40 new ones in --dev FILE, are enough")
                return False
            self._choose(pairs)
        profiles, default = read_profiles(self.place), default_profile(self.place)
        main = profiles[default or SEGMENTS]
        fate = (
            ""
            if default
            else "not used: tuned settings are not better on both parts of the text, so the estimated ones stay: "
        )
        how = f", by the likelihood of {main.pairs:,} pairs" if default else ""
        report.detail(f"tuned      {fate}{main.config.in_words}{how}; profiles {', '.join(profiles)}")
        if compared := read_settings(self.place).get(_COMPARED):
            report.detail(f"compared   {Compared(**compared).in_words}")
        report.detail(f"           after {report.seconds:.0f} s")
        return True

    def _choose(self, pairs: Sequence[SegmentPair]) -> None:
        memory = self.translator.memories.open(self.place)
        text = DevelopmentText("what is held out", pairs, unseen(memory.opened.datastore, self.plan.reported))
        tuning = StoreTuning(self.translator, memory, text, progress=self.progress)
        result = tuning.choose()
        self.reported = tuning.reported
        if result.compared is not None:  # first, because a store with profiles counts as compared
            write_settings(self.place, **{_COMPARED: asdict(result.compared)})
        tuning.save(result)

    def measure(self) -> Gain | None:
        """Measure the gain on the half not used for tuning; it is saved, because it cannot be measured again."""
        report, sample = self.report, self.sample
        try:
            gain = as_record(Gain, read_settings(self.place).get(_GAIN))
        except ValueError:  # not measured yet, or not by knnmt
            gain = None
        if gain is None:
            try:
                require_sacrebleu(self._open().manifest.target_language)
            except (MissingDependencyError, SettingError) as error:
                report.add(f"BLEU       not measured: {error}")
                sample = 0
            with self.progress("measuring", "pairs passed") as progress:
                reported = self.plan.reported
                measured = measure_gain(self.translator, self.place, reported, sample, progress, self.reported)
            if measured is None:
                report.add("unmeasured the store holds all of the text to report, by source or target")
                return None
            gain, certainty = measured
            sections = {} if certainty is None else certainty.section()
            write_settings(self.place, **{_GAIN: asdict(gain)}, **sections)
        for line in gain.verdict:
            report.add(line)
        for line in gain.details:
            report.detail(line)
        if (certainty := Certainty.read(self.place)) is not None:
            report.detail(f"certainty  measured on {certainty.pairs:,} of these pairs: translations have a certainty")
        report.detail(f"           after {report.seconds:.0f} s")
        return gain

    def add_held_out(self) -> None:
        """Add the held-out pairs, unless they are already in the store."""
        store = self._open()
        missing = overlap(store, self.plan.held_out).new
        with self.progress("adding", "pairs") as progress:  # if nothing is missing, it clears the rest of a killed run
            store.add(missing, self.translator.engine, lambda pairs, _entries: progress(pairs, len(missing)))
        if self.plan.held_out:
            self.report.detail(f"added      what was held out: {len(missing):,} pairs")
