"""Adapting to a memory in one step: a store is built, tuned and measured on a held-out part, which is then added.

Everything happens in `STORE.adapting-DIGEST/`; only a finished store is put in its place. If interrupted, the same call
resumes: finished work in the unfinished store is not repeated.
"""

from __future__ import annotations

import glob
import hashlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from knnmt.config import check
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import AnyPair, SegmentPair, as_pairs
from knnmt.corpus.reading import read_memories
from knnmt.datastore.building import BuildConfig, build, require_free
from knnmt.datastore.lock import writer_lock
from knnmt.datastore.manifest import MANIFEST
from knnmt.datastore.overlap import overlap, unseen
from knnmt.datastore.publication import storage_errors, sync_directory
from knnmt.datastore.settings import read_settings, write_settings
from knnmt.decoding.tokenizer_check import require_own_tokens
from knnmt.distributed.building import encode_on
from knnmt.distributed.cluster import Cluster
from knnmt.documents.memory_languages import model_for
from knnmt.documents.memory_reading import MemoriesOrPairs, MemoryReading, files_or_pairs
from knnmt.errors import InputError, MissingDependencyError, SettingError
from knnmt.evaluation.gain import Gain, measure_gain
from knnmt.evaluation.holding_out import MAX_HELD_OUT, MIN_HELD_OUT, Plan, plan
from knnmt.evaluation.loading import Model, text_languages, translator_of
from knnmt.evaluation.scoring import require_sacrebleu
from knnmt.evaluation.tuning_steps import StoreTuning
from knnmt.fitting.calibration import estimate_settings
from knnmt.fitting.certainty import Certainty
from knnmt.fitting.development_text import DevelopmentText
from knnmt.fitting.likelihood import Positions
from knnmt.fitting.ready_store import Datastore
from knnmt.fitting.tuning import Compared
from knnmt.fitting.tuning_config import SAMPLE
from knnmt.index.progress import Bars, no_bars
from knnmt.records import as_record
from knnmt.retrieval.profiles import SEGMENTS, default_profile, read_profiles
from knnmt.translator.translator import Translator

_GAIN, _COMPARED = "gain", "compared"  # the sections of a store's settings for the measurements


@dataclass(frozen=True, slots=True)
class Adapted:
    """The result of adapting. gain: None if there was too little text to measure it."""

    store: Datastore
    gain: Gain | None

    def __str__(self) -> str:
        manifest = self.store.manifest
        made = f"adapted    {self.store.path}: {manifest.sentences:,} sentences, {manifest.entries:,} entries"
        return "\n".join([made, *(self.gain.in_words() if self.gain else ["gain       not measured"])])


def adapt(
    memories: MemoriesOrPairs | Plan,
    store: str | Path,
    config: BuildConfig | None = None,
    *,
    dev: str | Path | Iterable[AnyPair] | None = None,
    sample: int = SAMPLE,
    model: Model | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    cluster: Cluster | None = None,
    tell: Callable[[str], None] = lambda _: None,
    bars: Bars = no_bars,
) -> Adapted:
    """Make a store from memories, as `knnmt adapt` does.

    It is built, tuned, and its gain is measured on held-out text, which is added at the end. If the call is killed, the
    same call resumes.

    memories: files in any memory format, documents, folders, pairs (`read_memories` reads with your own settings), or a
        plan of what to hold out, which has its development text
    store: a directory that does not exist yet
    config: how to build it
    dev: a file or pairs to tune and report on; then nothing is held out. They do not become part of the store
    sample: at most this many pairs are translated and scored; 0 for none
    model: a shipped model, a checkpoint directory, a Hugging Face name, or a loaded `Translator`; by default the
        shipped model for the languages of the memories
    source_lang, target_lang: languages of the memories; by default the model's
    cluster: where Ray runs the model over the text; by default this process runs it. Tuning and measuring always run in
        this process
    tell: is called with a line after each step; `print` shows what the command shows
    bars: makes progress bars: given a description and a unit, it returns a function to call with the amount done and
        the total
    """
    store = Path(store)
    if model is None:
        if isinstance(memories, Plan):
            choice, _ = model_for(memories.memory(), source_lang, target_lang)
        else:
            choice, memories = model_for(memories, source_lang, target_lang)
        tell(f"model      {choice}")
        model, source_lang, target_lang = choice.name, choice.source, choice.target
    languages = text_languages(model, source_lang, target_lang)
    if isinstance(memories, Plan):
        check(dev is None, "a plan includes its development text: give dev to the plan")
    else:
        require_free(store)  # before reading anything
        memories = _planned(memories, dev, ReadingConfig(*languages), tell)
    config = config or BuildConfig()
    config = replace(
        config,
        source_language=config.source_language or languages[0],
        target_language=config.target_language or languages[1],
    )
    translator = translator_of(model, device=device, threads=threads, source_lang=source_lang, target_lang=target_lang)
    return _adapt(memories, store, translator, config, sample, cluster, tell, bars)


def _planned(
    memories: MemoriesOrPairs,
    dev: str | Path | Iterable[AnyPair] | None,
    reading: ReadingConfig,
    tell: Callable[[str], None],
) -> Plan:
    languages = reading.source_language, reading.target_language
    development: Iterable[SegmentPair] | None = None
    if dev is not None:
        development = read_memories(dev, reading) if isinstance(dev, str | Path) else as_pairs(dev, languages)
    given = files_or_pairs(memories, reading)
    if not isinstance(given, MemoryReading):
        pairs = list(given)  # they are read several times
        return plan(lambda: pairs, development)
    given.require_files()
    planned = plan(given.pairs, development)
    for line in given.summary():
        tell(line)
    return planned


def _adapt(
    planned: Plan,
    place: Path,
    translator: Translator,
    config: BuildConfig,
    sample: int,
    cluster: Cluster | None,
    tell: Callable[[str], None],
    bars: Bars,
) -> Adapted:
    work = place.with_name(f"{place.name}.adapting-{_digest(planned, translator, config, sample)}")
    if place.exists() and work.is_dir() and {path.name for path in work.iterdir()} <= {"lock"}:
        shutil.rmtree(work, ignore_errors=True)  # left by a run that was killed after its store was in place
    require_free(place)
    if not planned.count:
        raise InputError(f"{place}: not made, because no usable pair was read")
    for other in sorted(place.parent.glob(f"{glob.escape(place.name)}.adapting-*")):
        abandoned = (
            f"noted      {other} is left from another text or other settings; remove it unless you want to "
            f"resume that work"
        )
        tell(f"continued  {other}" if other == work else abandoned)
    if not (work / "store" / MANIFEST).exists():
        some = planned.held_out or list(islice(planned.memory(), MAX_HELD_OUT))
        require_own_tokens(translator.engine, some)
    with storage_errors(work):
        work.mkdir(parents=True, exist_ok=True)
    with writer_lock(work):
        require_free(place)
        making = _Making(work / "store", place, planned, translator, tell, bars)
        try:
            making.build(config, cluster)
            gain = making.measure(sample) if making.tune() else None
            making.put_in()
        finally:
            translator.memories.close(making.path)
        with storage_errors(place):
            making.path.rename(place)
            sync_directory(place.parent)
    shutil.rmtree(work, ignore_errors=True)  # only now: Windows would keep an open lock
    return Adapted(Datastore.open(place), gain)


def _digest(planned: Plan, translator: Translator, config: BuildConfig, sample: int) -> str:
    """The name of the work of one call: another text, model or setting gives another name."""
    engine = translator.engine
    parts = [planned.digest, engine.fingerprint.model, engine.fingerprint.tokenizer, engine.computes_in, config, sample]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:8]


class _Making:
    """An unfinished store, and the steps to finish it. Each step checks whether it is already done."""

    def __init__(
        self, path: Path, place: Path, planned: Plan, translator: Translator, tell: Callable[[str], None], bars: Bars
    ) -> None:
        """place: the final place of the store"""
        self.path, self._place = path, place
        self._plan, self._translator, self._tell, self._bars = planned, translator, tell, bars
        self._reported: Positions | None = None

    def _open(self) -> Datastore:
        return Datastore.open(self.path, self._translator.engine)

    def build(self, config: BuildConfig, cluster: Cluster | None) -> None:
        """Build the store without the held-out pairs."""
        plan = self._plan
        if plan.held_out:
            self._tell(f"held out   {plan.in_words}")
        if not (self.path / MANIFEST).exists():
            total = plan.count - len(plan.held_out)
            with self._bars("building", "pairs") as progress:
                built = build(
                    self.path,
                    plan.built_first(),
                    self._translator.engine,
                    config,
                    lambda pairs, _entries: progress(pairs, total),
                    encode=None if cluster is None else encode_on(cluster),
                )
            for reason, count in built.dropped.most_common():
                self._tell(f"left out   {count:,}  {reason}")
        manifest = self._open().manifest
        self._tell(
            f"built      {manifest.sentences:,} sentences, {manifest.entries:,} entries of {manifest.dim} dimensions"
        )

    def tune(self) -> bool:
        """Estimate settings and tune them by likelihood; False if there is too little text for tuning."""
        plan = self._plan
        if SEGMENTS not in read_profiles(self.path):
            estimate_settings(self._open(), self._translator.engine)
            pairs = overlap(self._open(), plan.tuning).new if plan.tuning else ()
            if len(pairs) < MIN_HELD_OUT // 4:
                self._tell(
                    "tuned      no; there is too little text that is new to the store. It uses its estimated settings"
                )
                return False
            self._choose(pairs)
        profiles, default = read_profiles(self.path), default_profile(self.path)
        main = profiles[default or SEGMENTS]
        fate = (
            ""
            if default
            else "not used: tuned settings are not better on both parts of the text, so the estimated ones stay: "
        )
        how = f", by the likelihood of {main.pairs:,} pairs" if default else ""
        self._tell(f"tuned      {fate}{main.config.in_words}{how}; profiles {', '.join(profiles)}")
        if compared := read_settings(self.path).get(_COMPARED):
            self._tell(f"compared   {Compared(**compared).in_words}")
        return True

    def _choose(self, pairs: Sequence[SegmentPair]) -> None:
        memory = self._translator.memories.open(self.path)
        text = DevelopmentText("what is held out", pairs, unseen(memory.opened.datastore, self._plan.reported))
        tuning = StoreTuning(self._translator, memory, text, bars=self._bars)
        found = tuning.choose()
        self._reported = tuning.reported
        if found.compared is not None:  # first, because a store with profiles counts as compared
            write_settings(self.path, **{_COMPARED: asdict(found.compared)})
        tuning.save(found)

    def measure(self, sample: int) -> Gain | None:
        """Measure the gain on the half not used for tuning; it is saved, because it cannot be measured again."""
        kept = read_settings(self.path).get(_GAIN)
        try:
            gain = as_record(Gain, kept)
        except ValueError:  # not measured yet, or not by knnmt
            gain = None
        if gain is None:
            try:
                require_sacrebleu(self._open().manifest.target_language)
            except (MissingDependencyError, SettingError) as error:
                self._tell(f"BLEU       not measured: {error}")
                sample = 0
            with self._bars("measuring", "pairs passed") as progress:
                reported = self._plan.reported
                found = measure_gain(self._translator, self.path, reported, sample, progress, self._reported)
            if found is None:
                self._tell("gain       not measured: the store holds all of the text to report, by source or target")
                return None
            gain, certainty = found
            sections = {} if certainty is None else certainty.section()
            write_settings(self.path, **{_GAIN: asdict(gain)}, **sections)
        for line in gain.in_words():
            self._tell(line)
        if (certainty := Certainty.of_store(self.path)) is not None:
            self._tell(f"certainty  measured on {certainty.pairs:,} of these pairs: translations have a certainty")
        return gain

    def put_in(self) -> None:
        """Add the held-out pairs, unless they are already in the store."""
        store = self._open()
        missing = overlap(store, self._plan.held_out).new
        with self._bars("adding", "pairs") as progress:  # if nothing is missing, it clears the rest of a killed run
            store.add(missing, self._translator.engine, lambda pairs, _entries: progress(pairs, len(missing)))
        if self._plan.held_out:
            manifest = store.manifest
            self._tell(
                f"put in     what was held out, too: {manifest.sentences:,} sentences, {manifest.entries:,} entries"
            )
