"""DeepL's dialect: texts, languages, usage. Its own client takes the address of another server (`server_url`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from knnmt.corpus.glossary import Glossary
from knnmt.corpus.language_guess import guess_of
from knnmt.corpus.languages import normalise
from knnmt.service.access import Caller
from knnmt.service.dialects import directions
from knnmt.service.dialects.directions import Direction, name_of, short
from knnmt.service.dialects.speaking import (
    BAD_REQUEST,
    FORM,
    JSON,
    Names,
    Parameters,
    SettingsParameters,
    Texts,
    errors_as,
    read,
    route_with_errors,
    with_body,
    with_query,
)
from knnmt.service.dialects.texts import NEVER_TRANSLATED, TextWork, translated
from knnmt.service.domains import Domain
from knnmt.service.glossaries import terms_of
from knnmt.service.http.requests import TheService, authenticate, bearer, requested_domain
from knnmt.service.problems import Problem
from knnmt.service.service import Service
from knnmt.translator.settings import TranslationSettings

ERRORS = errors_as({401: 403, 422: 400, 409: 400, 507: 500})
UNLIMITED = 1_000_000_000_000  # characters, as in DeepL's plans without a limit
_MEMORY_IDS = uuid.UUID("5a5b0b4e-3c55-4f0e-9c7b-5d7a3b0f2d11")  # the names of domains become UUIDs in this name space
_PROBE = (["test"], "en", "de")  # Weblate sends this before it saves its settings, whatever its languages
_NO_STYLES = "there are no style rules"


async def _caller(request: Request, service: TheService) -> Caller:
    return authenticate(request, service, bearer(request, "DeepL-Auth-Key"))


TheDeepLCaller = Annotated[Caller, Depends(_caller)]
router = APIRouter(tags=["DeepL"], route_class=route_with_errors(ERRORS), responses=BAD_REQUEST)


class LanguagesOfTexts(SettingsParameters):
    """What requests for texts and for documents have in common."""

    source_lang: str | None = Field(default=None, max_length=35)
    target_lang: str = Field(max_length=35, examples=["EN-GB"])
    formality: str = Field(
        default="default", max_length=20, description="Not supported: `more` and `less` fail with an error."
    )
    glossary_id: str | None = Field(default=None, max_length=80)
    glossary_ids: Names = Field(default=[], max_length=5)
    translation_memory_id: str | None = Field(default=None, max_length=80, description="The domain.")
    translation_memory_threshold: int | None = Field(
        default=None, ge=0, le=100, description="The lowest score of matches that are repaired."
    )
    style_id: str | None = Field(default=None, max_length=80, description="Not supported: fails with an error.")

    def settings(self) -> TranslationSettings:
        """The given settings."""
        threshold = self.translation_memory_threshold
        by_deepls_name = TranslationSettings(match_threshold=None if threshold is None else max(1, threshold))
        return by_deepls_name.over(super().settings())


class TranslateParameters(LanguagesOfTexts):
    """Texts to translate. Other parameters are accepted and have no effect."""

    others = frozenset({"split_sentences"})

    text: Texts = Field(min_length=1, examples=[["Die Datei wurde gelöscht."]])
    split_sentences: Literal["0", "1", "nonewlines"] | int | bool | None = None
    tag_handling: Literal["xml", "html"] | None = None
    ignore_tags: Names = Field(default=[], max_length=100)
    model_type: Literal["quality_optimized", "prefer_quality_optimized", "latency_optimized"] | None = None
    show_billed_characters: bool = False


class TranslationAnswer(BaseModel):
    """A translation."""

    detected_source_language: str
    text: str
    billed_characters: int | None = None
    model_type_used: str | None = None


class TranslateAnswer(BaseModel):
    """Translations in the order of the texts."""

    translations: list[TranslationAnswer]


@router.post(
    "/v2/translate",
    response_model=TranslateAnswer,
    response_model_exclude_none=True,
    openapi_extra=with_body(TranslateParameters, JSON, FORM),
)
async def translate(request: Request, service: TheService, caller: TheDeepLCaller) -> Response:
    """Translate texts."""
    form = await read(request, TranslateParameters)
    domain = domain_of(request, service, caller, form)
    split = _split(form)
    if _is_probe(form) and directions.direction(service, domain, form.source_lang, form.target_lang) is None:
        return JSONResponse({"translations": [{"detected_source_language": "EN", "text": "test"}]})
    direction = required_languages(service, domain, form)
    work = TextWork(
        direction=direction,
        settings=TranslationSettings(split_sentences=False if split == "0" else None).over(form.settings()),
        glossary=await glossary_of(service, caller, form, direction),
        markup=form.tag_handling is not None,
        ignored=(*form.ignore_tags, *(NEVER_TRANSLATED if form.tag_handling == "html" else ())),
        one_line=split == "nonewlines",
    )
    made = await translated(request, service, caller, domain, form.text, work)
    answers: list[dict[str, Any]] = []
    languages = await service.text_threads.each(caller.client, form.text, lambda text: _detected(direction, text), len)
    for text, done, language in zip(form.text, made, languages, strict=True):
        service.usage.count(caller.name, len(text))
        answer: dict[str, Any] = {"detected_source_language": language, "text": done.text}
        if form.show_billed_characters:
            answer["billed_characters"] = len(text)
        if form.model_type is not None:
            answer["model_type_used"] = form.model_type.removeprefix("prefer_")
        answers.append(answer)
    return JSONResponse({"translations": answers})


class LanguagesParameters(Parameters):
    """The kind of languages that is requested."""

    type: Literal["source", "target"] = "source"


class LanguageAnswer(BaseModel):
    """A language."""

    language: str
    name: str
    supports_formality: bool | None = None


@router.get(
    "/v2/languages",
    response_model=list[LanguageAnswer],
    response_model_exclude_none=True,
    openapi_extra=with_query(LanguagesParameters),
)
async def languages(request: Request, service: TheService, caller: TheDeepLCaller) -> Response:
    """The languages of the domain."""
    form = await read(request, LanguagesParameters)
    domain = requested_domain(request, service, caller, None)
    pairs = list(directions.pairs(service, domain))
    if form.type == "source":
        return JSONResponse([{"language": tag.upper(), "name": name_of(tag)} for tag in _each(one for one, _ in pairs)])
    return JSONResponse(
        [
            {"language": tag, "name": name, "supports_formality": False}
            for each in _each(other for _, other in pairs)
            for tag, name in _variants(each)
        ]
    )


class UsageAnswer(BaseModel):
    """The use of the service by the key."""

    character_count: int
    character_limit: int


@router.get("/v2/usage", response_model=UsageAnswer)
async def usage(service: TheService, caller: TheDeepLCaller) -> Response:
    """Characters that were translated for the key. There is no limit."""
    caller.require("translate")
    return JSONResponse({"character_count": service.usage.of(caller.name), "character_limit": UNLIMITED})


class StylesAnswer(BaseModel):
    """Style rules: there are none."""

    style_rules: list[str]


@router.get("/v3/style_rules", response_model=StylesAnswer)
async def styles(caller: TheDeepLCaller) -> Response:
    """The style rules: none."""
    caller.require("translate")
    return JSONResponse({"style_rules": []})


@router.post("/v3/style_rules", include_in_schema=False)
@router.api_route(
    "/v3/style_rules/{_rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False
)
async def no_style(caller: TheDeepLCaller) -> Response:
    """Requests for a style rule: there are none."""
    caller.require("translate")
    raise Problem(404, "unknown_style", _NO_STYLES)


@router.post("/v2/write/{_rest:path}", include_in_schema=False)
async def not_written(caller: TheDeepLCaller) -> Response:
    """Requests for a better text in the same language."""
    caller.require("translate")
    raise Problem(404, "not_offered", "the service translates; it does not rephrase or correct texts")


# What documents ask for, too ------------------------------------------------------------------------------------------


def domain_of(request: Request, service: Service, caller: Caller, form: LanguagesOfTexts) -> Domain:
    """The domain: by the id of a memory, by the path, or by the languages."""
    memory = form.translation_memory_id
    named = None if memory is None else domain_numbered(service, caller, memory).name
    languages = form.source_lang or None, form.target_lang
    return requested_domain(request, service, caller, named, languages=languages)


def memory_id(domain: Domain) -> str:
    """The id of a domain: a UUID made from its name, so it is the same on every server."""
    return str(uuid.uuid5(_MEMORY_IDS, domain.name))


def domain_numbered(service: Service, caller: Caller, number: str) -> Domain:
    """The domain whose memory has this id, among those that the caller may use."""
    for each in service.domains:
        if each.store is not None and memory_id(each) == number.lower() and caller.sees(each.name):
            return each
    raise Problem(404, "unknown_memory", f"there is no translation memory {number[:80]!r}")


def required_languages(service: Service, domain: Domain, form: LanguagesOfTexts) -> Direction:
    """The languages to translate between; if they are not supported, raise a problem in DeepL's words."""
    target, source = form.target_lang, form.source_lang or None
    if directions.direction(service, domain, None, target) is None:
        raise Problem(422, "unsupported_languages", f"Value for 'target_lang' not supported: {_known(service, domain)}")
    direction = directions.direction(service, domain, source, target)
    if direction is None:
        raise Problem(422, "unsupported_languages", f"Value for 'source_lang' not supported: {_known(service, domain)}")
    formality = form.formality.lower() or "default"  # Weblate sends an empty text for none
    if formality not in ("default", "more", "less", "prefer_more", "prefer_less"):
        raise Problem(422, "invalid_request", "Value for 'formality' not supported")
    if formality in ("more", "less"):
        raise Problem(422, "invalid_request", f"Target language {target.upper()!r} does not support formality")
    if form.style_id is not None:
        raise Problem(404, "unknown_style", _NO_STYLES)
    return direction


async def glossary_of(
    service: Service, caller: Caller, form: LanguagesOfTexts, direction: Direction
) -> Glossary | None:
    """The terms of the glossaries that a request names. Each glossary must have a dictionary for the languages."""
    numbers = [*([form.glossary_id] if form.glossary_id else []), *form.glossary_ids]
    if not numbers:
        return None
    if form.source_lang is None:
        raise Problem(422, "invalid_request", "a request with a glossary needs source_lang")
    pair = direction.source or short(form.source_lang), direction.target or short(form.target_lang)
    found = [service.glossaries.of(number, caller).of(*pair) for number in numbers]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        raise Problem(422, "invalid_request", f"the glossary has no dictionary from {pair[0]} to {pair[1]}")
    count = 10 * sum(len(each.terms) for each in known)
    return await service.text_threads.run(caller.client, count, lambda: terms_of(known, *pair))


def _known(service: Service, domain: Domain) -> str:
    known = [f"{one.upper()} to {other.upper()}" for one, other in directions.pairs(service, domain)]
    return f"the domain {domain.name!r} translates {', '.join(known[:20]) or 'no languages that are named'}"


def _split(form: TranslateParameters) -> str:
    """How texts are split: 0, 1 or nonewlines. In HTML, line ends do not end sentences."""
    if form.split_sentences is None:
        return "nonewlines" if form.tag_handling == "html" else "1"
    answer = str(form.split_sentences)
    split = {"False": "0", "True": "1"}.get(answer, answer)
    if split not in ("0", "1", "nonewlines"):
        raise Problem(422, "invalid_request", "Value for 'split_sentences' not supported")
    return split


def _detected(direction: Direction, text: str) -> str:
    """The source language of a text: the stated one, or else a guess."""
    guessed = None if direction.source else guess_of(text)
    return (direction.source or (guessed[0] if guessed else "en")).upper()


def _is_probe(form: TranslateParameters) -> bool:
    source = None if form.source_lang is None else normalise(form.source_lang)
    return (form.text, source, normalise(form.target_lang)) == _PROBE


def _variants(tag: str) -> list[tuple[str, str]]:
    """The variants of a target language. DeepL's clients do not accept EN and PT without a variant."""
    if tag == "en":
        return [("EN-GB", "English (British)"), ("EN-US", "English (American)")]
    if tag == "pt":
        return [("PT-PT", "Portuguese (European)"), ("PT-BR", "Portuguese (Brazilian)")]
    return [(tag.upper(), name_of(tag))]


def _each(tags: Iterable[str]) -> list[str]:
    return sorted(set(tags))
