"""The translator of a call: a loaded one, or one to load."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from knnmt.config import check
from knnmt.datastore.store import Datastore
from knnmt.documents.memory_languages import model_for
from knnmt.documents.memory_reading import MemoriesOrPairs
from knnmt.engine.base import Engine
from knnmt.engine.checkpoint import NamedByStore
from knnmt.engine.languages import languages_of_text
from knnmt.evaluation.systems import System
from knnmt.translator.memories import languages_of, model_of
from knnmt.translator.translator import Translator

Model = str | Path | Translator


def translator_of(
    model: Model,
    *,
    source_lang: str | None = None,
    target_lang: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
) -> Translator:
    """The given translator, or one for a model."""
    if not isinstance(model, Translator):
        return Translator(
            model, device=device, dtype=dtype, threads=threads, source_lang=source_lang, target_lang=target_lang
        )
    _refuse_idle(device=device, dtype=dtype, threads=threads)
    return model


def translator_of_store(
    store: Datastore,
    model: Model | None = None,
    device: str | None = None,
    threads: int | None = None,
    exact: bool = False,
) -> Translator:
    """The given translator, or a new one with the store's languages, for the model that the store was built with, at
    its old place or at another one.
    """
    if isinstance(model, Translator):
        _refuse_idle(device=device, threads=threads, exact=exact or None)
        return model
    manifest = store.manifest
    return Translator(
        model or NamedByStore(manifest.model_name),
        device=device,
        threads=threads,
        exact=exact,
        source_lang=manifest.source_language,
        target_lang=manifest.target_language,
    )


def text_languages(model: Model | Engine[Any], source_lang: str | None, target_lang: str | None) -> tuple[str, str]:
    """The given languages, otherwise the model's, otherwise German and English."""
    if isinstance(model, str | Path):
        return languages_of_text(model, source_lang, target_lang)
    own = model.engine.languages if isinstance(model, Translator) else model.languages
    return source_lang or own.source or "de", target_lang or own.target or "en"


def model_of_evaluation(
    model: Model | None,
    systems: Iterable[System],
    text: MemoriesOrPairs,
    source_lang: str | None,
    target_lang: str | None,
) -> tuple[Model, tuple[str, str], MemoriesOrPairs]:
    """The given model, or else that of the first store or the shipped one for the text; its languages; the text."""
    if model is None:
        stores = (each.datastore for each in systems if each.datastore is not None and each.other is None)
        if (store := next(stores, None)) is not None:
            source, target = languages_of(store)
            return model_of(store), (source_lang or source, target_lang or target), text
        choice, text = model_for(text, source_lang, target_lang)
        return choice.name, (choice.source, choice.target), text
    return model, text_languages(model, source_lang, target_lang), text


def _refuse_idle(**given: object) -> None:
    """Refuse settings that a loaded translator already has."""
    idle = [name for name, value in given.items() if value is not None]
    check(not idle, f"{', '.join(idle)}: a loaded translator has its own; give them when you load it")
