"""Chooses the shipped model by the languages of what is to be translated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from knnmt.corpus.language_guess import looks_of, recognise
from knnmt.corpus.languages import is_tag, normalise
from knnmt.engine.shipped import DEFAULT_MODEL, shipped_model, shipped_models
from knnmt.errors import LanguagesRequiredError, SettingError


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A shipped model that was chosen by languages. reason: why these languages"""

    name: str
    source: str
    target: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}, from {self.source} to {self.target}: {self.reason}"


def choose_model(source: str | None, target: str | None, subject: str, reason: str) -> ModelChoice:
    """The shipped model for two languages, of which one may be unknown; an error says what to type if there is none.

    subject: what is translated, for errors
    """
    if source is None and target is None:
        options = " or ".join(f"--source-lang {own}" for own, _ in shipped_models().values())
        raise LanguagesRequiredError(
            f"{subject}: the source language is not clear. Add {options} (source_lang in Python, source_language in a "
            "request)"
        )
    name = shipped_model(source, target)
    if name is None:
        pairs = " and ".join(f"{own} to {other}" for own, other in shipped_models().values())
        wanted = f"from {source or 'another language'} to {target or 'another language'}"
        if reason:
            wanted += f" ({reason})"
        raise SettingError(
            f"{subject}: no shipped model translates {wanted}; there are {pairs}. If these languages are wrong, give "
            f"--source-lang and --target-lang; otherwise name another model: --model {_usual_name(source, target)}"
        )
    own = shipped_models()[name]
    return ModelChoice(name, source or own[0], target or own[1], reason)


def model_for_texts(texts: Iterable[str], subject: str) -> ModelChoice:
    """The shipped model for the language that texts together look like.

    Texts without a letter need no model, so they get the default one.
    """
    text = "\n".join(texts)
    if not any(map(str.isalpha, text)):
        return ModelChoice(DEFAULT_MODEL, *shipped_models()[DEFAULT_MODEL], f"{subject} has no letter")
    source = recognise(text)
    reason = "" if source is None else f"{subject} looks {looks_of(source)}"
    return choose_model(source, None, subject, reason)


def _usual_name(source: str | None, target: str | None) -> str:
    """The name of a model on the Hugging Face hub that is likely to translate between two languages, or else NAME."""
    if not all(tag is None or is_tag(tag) for tag in (source, target)):
        return "NAME"  # a document's words are nothing to paste into a shell
    first, second = (None if tag is None else normalise(tag).split("-")[0] for tag in (source, target))
    first, second = first or "en", second or ("de" if first == "en" else "en")
    return "NAME" if first == second else f"Helsinki-NLP/opus-mt-{first}-{second}"
