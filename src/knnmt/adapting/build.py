"""`Datastore` and `build` as `knnmt` exports them:

the stores that they build are ready for use, as with `knnmt build`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from knnmt.config import check
from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.pairs import AnyPair
from knnmt.datastore import store
from knnmt.datastore.building import BuildConfig, EntryProgress, no_progress
from knnmt.datastore.building import build as build_store
from knnmt.datastore.manifest import sizes
from knnmt.distributed.building import encode_on
from knnmt.distributed.cluster import Cluster
from knnmt.documents.memory_languages import model_for
from knnmt.documents.memory_reading import MemoriesOrPairs, MemoryReading, files_or_pairs
from knnmt.engine.base import Engine, State
from knnmt.engine.languages import languages_of_text


class Datastore(store.Datastore):
    """A datastore on disk, open at one generation."""

    @classmethod
    def build(
        cls,
        path: str | Path,
        pairs: Iterable[AnyPair],
        engine: Engine[State],
        config: BuildConfig | None = None,
        progress: EntryProgress = no_progress,
        estimate: bool = True,
    ) -> Self:
        """Build a new store from pairs and open it (`knnmt.datastore.building`).

        estimate: estimate settings that fit the store, as `knnmt build` does
        """
        made = super().build(path, pairs, engine, config, progress)
        if estimate:
            from knnmt.calibration.estimates import estimate_settings  # which brings PyTorch

            estimate_settings(made, engine)
        return made


@dataclass(frozen=True, slots=True)
class Built:
    """The result of building.

    dropped: pairs that the model cannot take, by reason
    reused: parts that an interrupted build had already finished
    read: lines that say what happened to the memories' units; none if pairs were given
    """

    store: Datastore
    dropped: Counter[str] = field(default_factory=Counter)
    reused: int = 0
    read: tuple[str, ...] = ()

    def __str__(self) -> str:
        manifest = self.store.manifest
        made = (
            f"built      {self.store.path}: {sizes(manifest.sentences, manifest.entries)} of {manifest.dim} dimensions"
        )
        return "\n".join([*self.read, made])


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
    progress: EntryProgress = no_progress,
) -> Built:
    """Build a datastore from translation memories, as `knnmt build` does. If it is killed, the same call resumes.

    memories: files in any memory format, documents, folders, or pairs (`read_memories` reads with your own settings)
    path: a directory that does not exist yet
    estimate: estimate settings that fit the store
    restart: discard an interrupted build instead of continuing it
    model: a shipped model, a checkpoint directory, a Hugging Face name, or a loaded engine, such as a translator's; by
        default the shipped model for the languages of the memories
    source_lang, target_lang: languages of the memories; by default the model's
    cluster: where Ray runs the model over the text; by default this process runs it
    progress: is called with pairs and entries done
    """
    import torch

    from knnmt.calibration.estimates import estimate_settings
    from knnmt.engine.loading import load_engine

    if model is None:
        choice, memories = model_for(memories, source_lang, target_lang)
        model, source_lang, target_lang = choice.name, choice.source, choice.target
    if isinstance(model, str | Path):
        languages = languages_of_text(model, source_lang, target_lang)
        if threads is not None:
            torch.set_num_threads(threads)
        engine = load_engine(model, device, None, source_lang, target_lang)
    else:
        check(device is None and threads is None, "device, threads: a loaded engine has its own")
        engine, own = model, model.languages
        languages = source_lang or own.source or "de", target_lang or own.target or "en"
    config = config or BuildConfig()
    config = replace(
        config,
        source_language=config.source_language or languages[0],
        target_language=config.target_language or languages[1],
    )
    given = files_or_pairs(memories, ReadingConfig(*languages))
    read = given.pairs() if isinstance(given, MemoryReading) else given
    encode = None if cluster is None else encode_on(cluster)
    made = build_store(Path(path), read, engine, config, progress, restart, encode)
    opened = Datastore.open(path)
    if estimate:
        estimate_settings(opened, engine)
    lines = tuple(given.summary(made.dropped)) if isinstance(given, MemoryReading) else ()
    return Built(opened, made.dropped, made.reused, lines)
