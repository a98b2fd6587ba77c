"""Systems of an evaluation as tasks of a cluster: one worker runs each, as `run_systems` does.

If a worker dies, its system runs again. With a directory, which all machines must see, finished systems are kept, and
neither a new driver nor another worker repeats them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from knnmt.config import check
from knnmt.distributed.cluster import Cluster
from knnmt.distributed.tasks import gpus_for, model_for_all, run_tasks
from knnmt.errors import KnnmtWarning, StorageError
from knnmt.evaluation.running import Run, machine, run_systems
from knnmt.evaluation.systems import System
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.translator import Translator


@dataclass(frozen=True, slots=True)
class SystemTask:
    """What a worker needs: the text, how to translate it, and how to load the model.

    model: its name or directory
    fingerprint: of its weights, because another machine may have other weights under that name
    """

    sources: tuple[str, ...]
    settings: TranslationSettings
    directory: Path | None
    model: str
    fingerprint: str
    device: str
    dtype: str
    threads: int
    languages: tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class SystemDone:
    """A system's run, the worker's machine, and the warnings."""

    run: Run
    machine: str
    warnings: tuple[KnnmtWarning, ...]


def run_system(task: SystemTask, system: System) -> SystemDone:
    """Run a system in a worker."""
    if task.directory is not None and not task.directory.is_dir():
        raise StorageError(
            f"{task.directory}: a worker does not see this directory, which the evaluation made. Put --output on a "
            f"file system that all machines share, or leave it out."
        )
    translator = _translator(task.model, task.device, task.dtype, task.threads, *task.languages)
    found = translator.engine.fingerprint.model
    check(
        found == task.fingerprint,
        f"{task.model}: a worker has another model there ({found[:12]}, expected {task.fingerprint[:12]})",
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KnnmtWarning)
        [run] = run_systems(translator, [system], task.sources, task.settings, task.directory)
    heard = [each.message for each in caught if isinstance(each.message, KnnmtWarning)]
    return SystemDone(run, machine(translator), tuple(heard))


@lru_cache(maxsize=1)
def _translator(
    model: str, device: str, dtype: str, threads: int, source_lang: str | None, target_lang: str | None
) -> Translator:
    """The model, loaded once per process."""
    return Translator(
        model, device=device, dtype=dtype, threads=threads, source_lang=source_lang, target_lang=target_lang
    )


def run_systems_on(
    cluster: Cluster,
    translator: Translator,
    systems: Sequence[System],
    sources: Sequence[str],
    settings: TranslationSettings,
    directory: Path | None,
    languages: tuple[str | None, str | None],
    of_text: tuple[str, str],
    tell: Callable[[str], None],
) -> tuple[list[Run], str]:
    """As `run_systems`, by workers of a cluster; also returns the machines of the workers.

    translator: the driver's; all workers have its model and number format
    languages: those it was given, if any; of_text: those of the text, for large language models, which the driver asks
    tell: is called for each finished system
    """
    engine, gpus = translator.engine, gpus_for(cluster, translator.engine)
    task = SystemTask(
        tuple(sources),
        settings,
        directory and directory.absolute(),
        model_for_all(engine),
        engine.fingerprint.model,
        "cuda" if gpus else "cpu",
        engine.computes_in,
        cluster.threads,
        languages,
    )
    seen = [replace(each, datastore=each.datastore and each.datastore.absolute()) for each in systems]
    found: dict[str, SystemDone] = {}
    calls = {each.name: (task, each) for each in seen if each.other is None}
    for name, done in run_tasks(cluster, gpus, run_system, calls):
        found[name] = done
        for warning in done.warnings:
            warnings.warn(warning, stacklevel=2)
        tell(f"{name}: {'was done before' if done.run.reused else 'done'}, {len(found)} of {len(systems)} systems")
    for each in seen:
        if each.other is not None:
            [run] = run_systems(translator, [each], sources, settings, directory, languages=of_text)
            found[each.name] = SystemDone(run, machine(translator), ())
    machines = dict.fromkeys(found[each.name].machine for each in systems)
    return [found[each.name].run for each in systems], f"{'; '.join(machines)}; several systems at a time"
