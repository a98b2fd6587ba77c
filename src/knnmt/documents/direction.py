"""The languages that a document is translated between, and whether a model has this direction."""

from __future__ import annotations

from itertools import islice
from pathlib import PurePath

from knnmt.corpus.language_guess import LanguageGuess, german_or_english, looks_of
from knnmt.documents.document import Document
from knnmt.documents.elements import plain
from knnmt.documents.naming import stated_language
from knnmt.engine.language_codes import Languages, best_code, same_language
from knnmt.engine.model_choice import ModelChoice, choose_model
from knnmt.errors import SettingError

Tags = tuple[str | None, str | None]  # of source and target, None if unknown
_FIRST_UNITS = 200  # that show the language of a document


def languages_of(document: Document, asked: Tags) -> Tags:
    """The requested languages, or else those that a document states; an unstated source is guessed from its texts."""
    stated = (None, None) if document.ignores_languages else document.languages
    source, target = (one or other for one, other in zip(asked, stated, strict=True))
    return source or _guess(document).tag(), target


def model_for_document(document: Document, path: PurePath, asked: Tags) -> ModelChoice:
    """The shipped model for a document: by the requested languages, or else by those that it states, that its text
    looks like, or that its name says.
    """
    if asked != (None, None):
        return choose_model(*asked, str(path), "as the options say")
    if not document.ignores_languages and document.languages != (None, None):
        source, target = document.languages
        stated = " and ".join(each for each in (source and f"from {source}", target and f"to {target}") if each)
        return choose_model(source, target, str(path), f"as it states ({stated})")
    texts = (plain(unit.source) for unit in document.units if unit.translatable)
    if looks := german_or_english("\n".join(islice(texts, _FIRST_UNITS))):
        return choose_model(looks, None, str(path), f"its text looks {looks_of(looks)}")
    return choose_model(stated_language(path), None, str(path), "as its name says")


def told_languages(name: str, wanted: Tags, model: Languages, default: Tags) -> Tags:
    """The languages that a multilingual model is told for a document; an error if it lacks one, or one is unknown.

    wanted: by the document
    default: what the model is told otherwise; None if nothing
    """
    told = (wanted[0] or default[0], wanted[1] or default[1])
    for side, tag in zip(("source", "target"), told, strict=True):
        names_both = model.source in model.codes  # some models are only told the target
        if tag is None and (side == "target" or names_both):
            way = "from" if side == "source" else "into"
            raise SettingError(
                f"{name}: does not state {way} which language it is to be translated. Give --{side}-lang"
            )
        if tag is not None and (side == "target" or names_both) and best_code(tag, model.codes) is None:
            raise SettingError(
                f"{name}: its {side} language is {tag}, which is not among the model's {len(model.codes)} "
                f"languages. Name another model with --model"
            )
    return told


def direction_of(document: Document, name: str, model: Languages, model_name: str) -> str:
    """A line about the languages of a translation; an error if the model has another direction."""
    source, target = document.languages
    stated = " and ".join(each for each in (source and f"from {source}", target and f"to {target}") if each)
    if document.ignores_languages:
        return f"{name}: {model}" + (f", whatever it states ({stated})" if stated else "")
    if _differ(source, model.source) or _differ(target, model.target):
        way = f"{source or 'another language'} to {target or 'another language'}"
        if source is None and target is not None and not _differ(target, model.source):
            way = f"{model.target} to {target}"
        otherwise = f"{name}: states that it goes from {way}, but the model {model_name} translates {model}"
        raise SettingError(f"{otherwise}. {_advice(model, way)}")
    looks = _guess(document).other_than(model.source) if model.source else None
    if looks and model.target and looks == looks_of(model.target):
        raise SettingError(
            f"{name}: its texts to translate look {looks}, but the model {model_name} translates {model}. "
            f"{_advice(model, f'{model.target} to {model.source}')}"
        )
    states = f"as it states ({stated})" if stated else "as the model does; the document states no languages"
    return f"{name}: {model}, {states}" + (f". Its texts look {looks}" if looks else "")


def _guess(document: Document) -> LanguageGuess:
    guess = LanguageGuess()
    for unit in document.units:
        if unit.translatable:
            guess.see(plain(unit.source))
    return guess


def _differ(stated: str | None, own: str | None) -> bool:
    return stated is not None and own is not None and same_language(stated, own) is False


def _advice(model: Languages, way: str) -> str:
    if model.codes:
        return f"To translate {way}, give --source-lang and --target-lang"
    return (
        f"To translate {way}, name another model with --model; `knnmt models` lists the installed ones. If the "
        f"document is wrong, add --ignore-stated-languages"
    )
