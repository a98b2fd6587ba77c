"""Whether a document goes the way that a model translates."""

from __future__ import annotations

from knnmt.corpus.language_guess import LanguageGuess, looks_of
from knnmt.documents.document import Document
from knnmt.documents.elements import plain
from knnmt.engine.language_codes import Languages, same_language
from knnmt.errors import SettingError


def direction_of(document: Document, name: str, model: Languages, model_name: str) -> str:
    """A line on the languages that a document is translated between; an error where the model goes another way."""
    source, target = document.languages
    if _differ(source, model.source) or _differ(target, model.target):
        way = f"{source or 'another language'} to {target or 'another language'}"
        if source is None and target is not None and not _differ(target, model.source):
            way = f"{model.target} to {target}"
        stated = f"{name}: goes from {way}, as it states, and the model {model_name} translates {model}"
        raise SettingError(f"{stated}. {_advice(model, way)}")
    guess = LanguageGuess()
    for unit in document.units:
        if unit.translatable:
            guess.see(plain(unit.source))
    looks = guess.other_than(model.source) if model.source else None
    if looks and model.target and looks == looks_of(model.target):
        raise SettingError(
            f"{name}: its texts to translate look {looks}, and the model {model_name} translates {model}. "
            f"{_advice(model, f'{model.target} to {model.source}')}"
        )
    stated = " and ".join(each for each in (source and f"from {source}", target and f"to {target}") if each)
    states = f"as it states ({stated})" if stated else "as the model does; it states no languages"
    return f"{name}: {model}, {states}" + (f". Its texts look {looks}" if looks else "")


def _differ(stated: str | None, own: str | None) -> bool:
    return stated is not None and own is not None and same_language(stated, own) is False


def _advice(model: Languages, way: str) -> str:
    if model.codes:
        return f"To translate {way}, give --source-lang and --target-lang"
    return f"To translate {way}, name a model that does with --model; `knnmt models` lists those that are there"
