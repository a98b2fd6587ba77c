"""Runs systems over a text: one model, store after store, each timed and counted separately, and saved when it is done.

With a directory, a system's hypotheses are in NAME.txt, and NAME.run.json describes how they were made and their cost.
A later run with the same model, store, settings, text and machine reuses them. Otherwise the system runs again. It also
runs again if a hypothesis failed, so that it is reported again, and if a gate or a combiner has no signature.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from knnmt.corpus.lines import read_lines
from knnmt.datastore.publication import publish_file, storage_errors
from knnmt.engine.precision import cpu_name
from knnmt.errors import InputError
from knnmt.evaluation.systems import OtherSystem, System, check_names, run_settings
from knnmt.retrieval.retriever import Retrieval
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.retrieval.statistics import Statistics
from knnmt.translator.memories import Memories
from knnmt.translator.settings import Preset, TranslationSettings, translation_settings
from knnmt.translator.translation import Translation
from knnmt.translator.translator import CallKeywords, Translator

OnTranslation = Callable[[Iterator[Translation], str, int], Iterable[Translation]]


@dataclass(frozen=True, slots=True)
class Figures:
    """The cost of a system.

    seconds: of translation, without loading and one warm-up segment
    tokens: of the hypotheses, including ends of sentences
    rows, searches, hits, saved: as in `Statistics`; saved_after_first leaves out each batch's first step
    """

    seconds: float
    tokens: int
    rows: int
    searches: int
    hits: int
    saved: float
    saved_after_first: float

    @property
    def tokens_per_second(self) -> float:
        """Speed of generation."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """A system's hypotheses, one for each source, without line ends; `reused` if an earlier run made them."""

    name: str
    signature: str
    hypotheses: list[str]
    figures: Figures
    reused: bool = False


def machine(translator: Translator) -> str:
    """The machine of the translator, as published figures must name it."""
    device = translator.engine.device
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{cpu_name()}, {threads} thread{'s' * (threads != 1)}"


def run_systems(
    translator: Translator,
    systems: Sequence[System],
    sources: Sequence[str],
    settings: RetrievalSettings | Preset | None = None,
    directory: Path | None = None,
    on_translation: OnTranslation = lambda translations, _name, _total: translations,
    languages: tuple[str, str] = ("de", "en"),
) -> list[Run]:
    """Translate the sources with every system. `on_translation` gets the translations of a system one by one.

    settings: of all systems, before "raw" and batches of 32
    languages: of the text, for other systems
    """
    shared = run_settings(settings)
    if directory is not None:
        check_names(systems)
        with storage_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
    return [_run(translator, system, sources, shared, directory, on_translation, languages) for system in systems]


def _run(
    translator: Translator,
    system: System,
    sources: Sequence[str],
    settings: TranslationSettings,
    directory: Path | None,
    on_translation: OnTranslation,
    languages: tuple[str, str],
) -> Run:
    if system.other is not None:
        return _run_other(translator, system, system.other, sources, directory, languages)
    memory: Retrieval | None = None
    complete = translation_settings(system.settings).over(settings)
    call: CallKeywords = {"settings": complete.without_retrieval, "datastore": None}
    if system.datastore is not None:  # opened for this system alone, and closed with it
        memories = Memories(translator.engine, system.exact)
        memory = memories.retrieval(system.datastore, complete.over(translator.settings).retrieval)
        call = {"settings": complete.without_retrieval, "retrieval": memory}
    signature = translator.signature(**call)
    if memory and memory.config.cache and memory.config.cache.scope == "batch":
        signature += f"|batch:{complete.batch_size}"  # sentences share results, so the batch size matters
    made_from: dict[str, object] = {
        "signature": signature,
        "batch_size": complete.batch_size,
        "machine": machine(translator),
        "torch": torch.__version__,
        "model": asdict(translator.engine.fingerprint),
        "decoding": _digest(repr((translator.decoding(**complete.decoding), complete.without_retrieval))),
        "memory": memory and _content(memory),
        "sources": _digest(json.dumps(list(sources))),
    }
    reusable = memory is None or memory.signed
    if directory is not None and reusable and (done := _earlier(directory, system.name, made_from)):
        return Run(system.name, signature, *done, reused=True)
    translations, figures = _translate(translator, system.name, sources, call, on_translation)
    hypotheses = [each.text.replace("\r", " ").replace("\n", " ") for each in translations]
    if directory is not None:
        reusable = reusable and all(each.error is None for each in translations)
        _keep(directory, system.name, made_from if reusable else {}, hypotheses, figures)
    return Run(system.name, signature, hypotheses, figures)


def _run_other(
    translator: Translator,
    system: System,
    other: OtherSystem,
    sources: Sequence[str],
    directory: Path | None,
    languages: tuple[str, str],
) -> Run:
    """Run a system that is not knnmt. Its earlier results are reused if all that is known of it is the same."""
    signature = other.signature(translator, system.datastore)
    made_from: dict[str, object] = {
        "signature": signature,
        "system": repr(other),
        "languages": list(languages),
        "sources": _digest(json.dumps(list(sources))),
    }
    if directory is not None and (done := _earlier(directory, system.name, made_from)):
        return Run(system.name, signature, *done, reused=True)
    hypotheses, tokens, seconds = other.translations(translator, system.datastore, sources, languages)
    figures = Figures(seconds, tokens, rows=0, searches=0, hits=0, saved=0.0, saved_after_first=0.0)
    if directory is not None:
        _keep(directory, system.name, made_from, hypotheses, figures)
    return Run(system.name, signature, hypotheses, figures)


def _translate(
    translator: Translator,
    name: str,
    sources: Sequence[str],
    call: CallKeywords,
    on_translation: OnTranslation,
) -> tuple[list[Translation], Figures]:
    statistics = Statistics()
    warming: CallKeywords = {**call, "statistics": Statistics()}
    measured: CallKeywords = {**call, "statistics": statistics}
    translator.translate(sources[:1], **warming)  # the first search and the first products are slower
    started = time.perf_counter()
    translations = list(on_translation(translator.stream(sources, **measured), name, len(sources)))
    seconds = time.perf_counter() - started
    figures = Figures(
        seconds=seconds,
        tokens=sum(len(each.tokens) for each in translations),
        rows=statistics.rows,
        searches=statistics.searches,
        hits=statistics.hits,
        saved=statistics.saved(),
        saved_after_first=statistics.saved(with_first_step=False),
    )
    return translations, figures


def _earlier(directory: Path, name: str, made_from: dict[str, object]) -> tuple[list[str], Figures] | None:
    """The results of an earlier run, if they are complete and were made from the same inputs."""
    try:
        record = json.loads(_record_of(directory, name).read_text(encoding="utf-8"))
        hypotheses = list(read_lines(_hypotheses_of(directory, name), plain=True))
        same = record["made_from"] == made_from and record["hypotheses"] == _digest(_lines(hypotheses))
        return (hypotheses, Figures(**record["figures"])) if same else None
    except (OSError, ValueError, LookupError, TypeError, InputError):
        return None


def _keep(directory: Path, name: str, made_from: dict[str, object], hypotheses: list[str], figures: Figures) -> None:
    """Write hypotheses first and their record last: a run with a record is complete. No later run is made from {}."""
    text = _lines(hypotheses)
    publish_file(_hypotheses_of(directory, name), lambda file: file.write(text.encode()))
    record = {"made_from": made_from, "hypotheses": _digest(text), "figures": asdict(figures)}
    content = json.dumps(record, indent=1, ensure_ascii=False).encode()
    publish_file(_record_of(directory, name), lambda file: file.write(content))


def _hypotheses_of(directory: Path, name: str) -> Path:
    return directory / f"{name}.txt"


def _record_of(directory: Path, name: str) -> Path:
    return directory / f"{name}.run.json"


def _lines(hypotheses: Sequence[str]) -> str:
    return "".join(f"{each}\n" for each in hypotheses)


def _content(memory: Retrieval) -> dict[str, Any]:
    """The details of a memory that its signature shortens."""
    saved = memory.store.index.saved
    return {
        "store": memory.store.datastore.manifest.content,
        "index": saved.stored.sha256 if saved and saved.stored else None,
        "settings": _digest(repr(memory.config)),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
