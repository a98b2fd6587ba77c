"""`build`: memories in, a store with settings that fit it out."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from knnmt.calibration.estimates import Calibration, estimate_settings
from knnmt.config import check
from knnmt.corpus.options import ReadingConfig
from knnmt.datastore.building import BuildConfig, EntryProgress, write_store
from knnmt.datastore.manifest import in_bytes, sizes
from knnmt.datastore.store import Datastore
from knnmt.distributed.building import encode_on
from knnmt.distributed.cluster import Cluster
from knnmt.documents.memory_languages import model_for
from knnmt.documents.memory_reading import MemoriesOrPairs, MemoryReading, files_or_pairs
from knnmt.engine.base import Engine
from knnmt.engine.loading import load_engine
from knnmt.evaluation.loading import text_languages
from knnmt.progress import ignore


@dataclass(frozen=True, slots=True)
class Built:
    """The result of building.

    dropped: pairs that the model cannot take, by reason
    reused: parts that an interrupted build had already finished
    read: lines that say what happened to the memories' units; none if pairs were given
    seconds: the time that it took
    settings: estimated ones; None if they were not estimated
    """

    store: Datastore
    dropped: Counter[str] = field(default_factory=Counter)
    reused: int = 0
    read: tuple[str, ...] = ()
    seconds: float = 0.0
    settings: Calibration | None = None

    def __str__(self) -> str:
        manifest, lines = self.store.manifest, list(self.read)
        if self.reused:
            lines.append(f"continued  {self.reused} of {len(manifest.segments)} parts were already done")
        size, content = sum(stored.bytes for stored in manifest.files()), sizes(manifest.sentences, manifest.entries)
        lines.append(
            f"built      {self.store.path}: {content} of {manifest.dim} dimensions, {in_bytes(size)}, in "
            f"{self.seconds:.1f} s"
        )
        return "\n".join(lines if self.settings is None else [*lines, f"settings   {self.settings.in_words}"])


def build(
    memories: MemoriesOrPairs,
    path: str | Path,
    config: BuildConfig | None = None,
    *,
    estimate: bool = True,
    restart: bool = False,
    model: str | Path | Engine[Any] | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    cluster: Cluster | None = None,
    progress: EntryProgress = ignore,
) -> Built:
    """Build a datastore from translation memories, as `knnmt build` does. If it is killed, the same call resumes.

    memories: files in any memory format, documents, folders, or pairs (`read_memories` reads with your own settings)
    path: a directory that does not exist yet
    estimate: estimate settings that fit the store; otherwise they are estimated whenever it is opened
    restart: discard an interrupted build instead of continuing it
    model: a shipped model, a checkpoint directory, a Hugging Face name, or a loaded engine, such as a translator's; by
        default the shipped model for the languages of the memories
    source_lang, target_lang: languages of the memories; by default the model's
    cluster: where Ray runs the model over the text; by default this process runs it
    progress: is called with pairs and entries done
    """
    if model is None:
        choice, memories = model_for(memories, source_lang, target_lang)
        model, source_lang, target_lang = choice.name, choice.source, choice.target
    languages = text_languages(model, source_lang, target_lang)
    if isinstance(model, str | Path):
        if threads is not None:
            torch.set_num_threads(threads)
        engine = load_engine(model, device, None, source_lang, target_lang)
    else:
        check(device is None and threads is None, "device, threads: a loaded engine has its own")
        engine = model
    config = (config or BuildConfig()).between(*languages)
    given = files_or_pairs(memories, ReadingConfig(*languages))
    read = given.pairs() if isinstance(given, MemoryReading) else given
    encode, started = None if cluster is None else encode_on(cluster), time.perf_counter()
    written = write_store(Path(path), read, engine, config, progress, restart, encode)
    store, seconds = Datastore.open(path), time.perf_counter() - started
    settings = estimate_settings(store, engine) if estimate else None
    lines = tuple(given.summary(written.dropped)) if isinstance(given, MemoryReading) else ()
    return Built(store, written.dropped, written.reused, lines, seconds, settings)
