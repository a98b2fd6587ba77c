"""The languages that a document is translated between, and whether a model has this direction."""

from __future__ import annotations

from itertools import islice
from pathlib import PurePath

from knnmt.corpus.language_guess import LanguageGuess, looks_of, recognise
from knnmt.documents.document import Document
from knnmt.documents.elements import plain
from knnmt.documents.naming import stated_language
from knnmt.engine.language_codes import Languages, best_code, same_language
from knnmt.engine.model_choice import ModelChoice, choose_model, model_for_texts
from knnmt.engine.shipped import shipped_model
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
    name, source, target = str(path), None, None
    if not document.ignores_languages:
        source, target = document.languages
    text = "\n".join(islice((plain(unit.source) for unit in document.units if unit.translatable), _FIRST_UNITS))
    looks = recognise(text)
    if source is None and target is not None and looks and same_language(looks, target):
        raise SettingError(
            f"{name}: states that it is to be translated into {target}, but its texts look {looks_of(looks)} already. "
            f"To translate them from {looks}, add --ignore-stated-languages; if they are in another language, give "
            "--source-lang"
        )
    if (source, target) != (None, None):
        return choose_model(source or looks, target, name, f"as it states ({_stated(source, target)})")
    if looks is None and (looks := stated_language(path)):
        return choose_model(looks, None, name, "as its name says")
    if not any(map(str.isalpha, text)):
        return model_for_texts((), name)
    return choose_model(looks, None, name, f"its text looks {looks_of(looks)}" if looks else "")


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


def direction_of(document: Document, name: str, model: Languages, subject: str, instead: str = "") -> str:
    """A line about the languages of a translation; an error if what translates has another direction.

    subject: what translates, such as "the store x.store"
    instead: what to use for other languages; without it, another model
    """
    source, target = document.languages
    stated = _stated(source, target)
    if document.ignores_languages:
        return f"{name}: {model}" + (f", whatever it states ({stated})" if stated else "")
    if _differ(source, model.source) or _differ(target, model.target):
        if source is None and target is not None and not _differ(target, model.source):
            source = model.target
        otherwise = f"{name}: states that it goes from {source or 'another language'} to {target or 'another language'}"
        raise SettingError(f"{otherwise}, but {subject} translates {model}. {_advice(model, source, target, instead)}")
    looks = _guess(document).other_than(model.source) if model.source else None
    if looks and model.target and looks == looks_of(model.target):
        raise SettingError(
            f"{name}: its texts to translate look {looks}, but {subject} translates {model}. "
            f"{_advice(model, model.target, model.source, instead, ' --ignore-stated-languages')}"
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


def _advice(model: Languages, source: str | None, target: str | None, instead: str, more: str = "") -> str:
    """What to type for other languages than the model's. more: what a shipped model needs as well"""
    way = f"To translate {source or 'another language'} to {target or 'another language'}"
    if model.codes and not instead:
        return f"{way}, give --source-lang and --target-lang"
    if name := shipped_model(source, target):
        instead = instead or f"use --model {name}{more}"
    instead = instead or "name another model with --model; `knnmt models` lists the installed ones"
    ignoring = "--ignore-stated-languages (ignore_stated_languages=true in a request)"
    return f"{way}, {instead}. If the document is wrong, add {ignoring}"


def _stated(source: str | None, target: str | None) -> str:
    return " and ".join(each for each in (source and f"from {source}", target and f"to {target}") if each)
