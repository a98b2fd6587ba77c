"""Tuning a store on development text in one call, as `knnmt tune` does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from knnmt.adapting.development_text import MAX_PAIRS, DevelopmentText, read_development
from knnmt.adapting.tuning_config import TuningConfig
from knnmt.adapting.tuning_steps import StoreTuning, Tell, TuningResult
from knnmt.datastore.store import Datastore
from knnmt.documents.memory_reading import MemoriesOrPairs
from knnmt.evaluation.loading import Model, translator_of_store
from knnmt.evaluation.scoring import require_sacrebleu
from knnmt.index.progress import Bars, no_bars
from knnmt.retrieval.open_store import require_for_fast


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
    tell: Tell = lambda _: None,
    bars: Bars = no_bars,
) -> TuningResult:
    """Choose k, T, λ and cache of a store on development text, as `knnmt tune` does, and save them with the store.

    dev: text like that to translate: memories in any format, pairs, or text that is already divided (then `pairs`,
        `all_dev` and `keep_known` have no effect)
    config: how to choose, and what may be lost
    pairs: at most this many pairs tune, and at most this many are reported, from all over the text
    all_dev: tune and report on all of it
    keep_known: also use pairs whose source the store holds
    model: by default the model that the store was built with; a loaded `Translator` is used as it is
    tell: is called with lines after each step; `print` shows what the command shows
    bars: makes progress bars: given a description and a unit, it returns a function to call with the amount done and
        the total
    """
    config = config or TuningConfig()
    opened = store if isinstance(store, Datastore) else Datastore.open(Path(store))
    if not isinstance(dev, DevelopmentText):
        dev = read_development(opened, dev, pairs, all_dev, keep_known, tell)
    if config.fast:
        require_for_fast(opened)
    if config.scores:
        require_sacrebleu(opened.manifest.target_language)
    translator = translator_of_store(opened, model, device, threads, exact)
    memory = translator.memories.open(opened)
    tuning = StoreTuning(translator, memory, dev, config, tell, bars)
    found = tuning.choose()
    found = replace(found, losses=tuning.report(found))
    if save:
        tuning.save(found)
        if config.may_become_default:
            tuning.measure_certainty()
    return found
