"""OPUS-CAT's dialect, for its plug-ins for Trados, memoQ, Wordfast and OmegaT, on the same port as everything else.

`modelTag` names the domain, and `tokenCode` may be a key. memoQ's plug-in sends plain text, and puts tags back by the
alignment of words. The domain learns what translators confirm (`StoreTranslation`).
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from knnmt.service.access import Caller
from knnmt.service.dialects import directions
from knnmt.service.dialects.directions import Direction, required_direction
from knnmt.service.dialects.speaking import (
    BAD_REQUEST,
    FORM,
    JSON,
    Parameters,
    SettingsParameters,
    Texts,
    caller_with,
    errors_as,
    read,
    route_with_errors,
    with_body,
    with_query,
)
from knnmt.service.dialects.texts import TextWork, learn, order, translated
from knnmt.service.domains import Domain
from knnmt.service.http.requests import TheService, requested_domain
from knnmt.service.problems import Problem
from knnmt.service.service import Service
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.word_alignment import aligned_words

_ERRORS = errors_as({422: 400}, Message="message")
router = APIRouter(tags=["OPUS-CAT"], route_class=route_with_errors(_ERRORS), responses=BAD_REQUEST)
_SENTENCE_PIECE = 1  # OPUS-CAT's numbers for methods of word segmentation
_WORD = "\u2581"  # the mark before a word there
_OF_ONE_SENTENCE = TranslationSettings(split_sentences=False)
# Plug-ins spell the path in two ways; OPUS-CAT itself accepts any case.
_PATHS = ("/MTRestService", "/MtRestService")


class TokenParameters(Parameters):
    """The parameters of every request."""

    tokenCode: str = Field(default="", max_length=200, description="A key, if the service has keys.")  # noqa: N815


class PairParameters(TokenParameters):
    """The languages and the domain of a request."""

    srcLangCode: str = Field(max_length=35, examples=["de"])  # noqa: N815
    trgLangCode: str = Field(max_length=35, examples=["en"])  # noqa: N815
    modelTag: str = Field(default="", max_length=64, description="The domain.")  # noqa: N815


class TranslateParameters(PairParameters, SettingsParameters):
    """A text."""

    input: str = Field(default="", examples=["Die Datei wurde gelöscht."])
    inputIsSingleSentence: bool = True  # noqa: N815


class BatchParameters(PairParameters, SettingsParameters):
    """Texts."""

    input: Texts = Field(min_length=1)


class StoreParameters(PairParameters):
    """A text and its translation."""

    source: str = Field(min_length=1)
    target: str = Field(min_length=1)


class StoreBatchParameters(PairParameters):
    """Texts and their translations, in the same order."""

    sources: Texts = Field(min_length=1)
    targets: Texts = Field(min_length=1)


class TranslationPair(BaseModel):
    """A translation, with its words aligned to those of the text."""

    model_config = ConfigDict(extra="allow")

    translation: str
    Translation: str
    SegmentedSourceSentence: list[str]
    SegmentedTranslation: list[str]
    SegmentedAlignmentSourceToTarget: dict[str, list[int]]
    SegmentedAlignmentTargetToSource: dict[str, list[int]]
    AlignmentString: str


async def _one(request: Request, service: Service) -> tuple[str, str, Direction, Caller]:
    """A text, its translation, their languages, and who asks."""
    form = await read(request, TranslateParameters)
    caller, domain, direction = _requested(request, service, form)
    settings = _OF_ONE_SENTENCE if form.inputIsSingleSentence else TranslationSettings(split_sentences=True)
    work = TextWork(direction=direction, settings=settings.over(form.settings()))
    [made] = await translated(request, service, caller, domain, [form.input], work)
    return form.input, made.text, direction, caller


async def translate(request: Request, service: TheService) -> Response:
    """Translate a text."""
    return JSONResponse((await _one(request, service))[1])


async def translate_stream(request: Request, service: TheService) -> Response:
    """Translate a text. The answer is only the translation."""
    return PlainTextResponse((await _one(request, service))[1])


async def translate_json(request: Request, service: TheService) -> Response:
    """Translate a text, with the alignment of its words."""
    text, made, direction, caller = await _one(request, service)
    engine = service.translator.between(direction.model_languages).engine
    words = await service.text_threads.run(caller.client, len(text), lambda: aligned_words(engine, text, made))
    forth: dict[str, list[int]] = {}
    back: dict[str, list[int]] = {}
    for source, target in words.links:
        forth.setdefault(str(source), []).append(target)
        back.setdefault(str(target), []).append(source)
    return JSONResponse(
        {
            "translation": made,
            "Translation": made,
            "SegmentedSourceSentence": [_WORD + word for word in words.source],
            "SegmentedTranslation": [_WORD + word for word in words.target],
            "SegmentedAlignmentSourceToTarget": forth,
            "SegmentedAlignmentTargetToSource": back,
            "AlignmentString": " ".join(f"{source}-{target}" for source, target in words.links),
            "RawTranslation": made,
            "Segmentation": _SENTENCE_PIECE,
        }
    )


async def translate_batch(request: Request, service: TheService) -> Response:
    """Translate texts."""
    form = await read(request, BatchParameters)
    caller, domain, direction = _requested(request, service, form)
    made = await translated(
        request,
        service,
        caller,
        domain,
        form.input,
        TextWork(direction=direction, settings=form.settings()),
    )
    return JSONResponse([each.text for each in made])


async def order_batch(request: Request, service: TheService) -> Response:
    """Translate texts that Trados will ask for next. The body may be a list of them."""
    form = await read(request, BatchParameters, listed="input")
    caller, domain, direction = _requested(request, service, form)
    work = TextWork(direction=direction, settings=_OF_ONE_SENTENCE.over(form.settings()))
    await order(service, caller, domain, form.input, work)
    return JSONResponse(None)


async def language_pairs(request: Request, service: TheService) -> Response:
    """The language pairs of all domains that the caller may use."""
    caller = caller_with(service, request, _key(await read(request, TokenParameters)))
    caller.require("translate")
    visible = [each for each in service.domains if caller.sees(each.name)]
    pairs = {pair for domain in visible for pair in directions.pairs(service, domain)}
    return JSONResponse(sorted(f"{source}-{target}" for source, target in pairs))


async def model_tags(request: Request, service: TheService) -> Response:
    """The domains that translate between two languages."""
    form = await read(request, PairParameters)
    caller = caller_with(service, request, _key(form))
    caller.require("translate")
    wanted = form.srcLangCode, form.trgLangCode
    visible = [each for each in service.domains if caller.sees(each.name)]
    return JSONResponse([each.name for each in visible if directions.direction(service, each, *wanted) is not None])


async def model_status(request: Request, service: TheService) -> Response:
    """Whether a domain translates between two languages, as a sentence."""
    form = await read(request, PairParameters)
    _, domain, direction = _requested(request, service, form)
    return JSONResponse(f"The domain {domain.name} for {direction.source}-{direction.target} is available.")


async def login(request: Request, service: TheService) -> Response:
    """Get a token. There are no passwords: if the service has keys, the key is the token."""
    await read(request, TokenParameters)
    return JSONResponse("0" if service.access.is_open else None)


async def store(request: Request, service: TheService) -> Response:
    """Learn a translation; the next request uses it."""
    form = await read(request, StoreParameters)
    caller, domain, _ = _requested(request, service, form)
    await learn(service, caller, domain, [(form.source, form.target)])
    return JSONResponse(None)


async def store_batch(request: Request, service: TheService) -> Response:
    """Learn translations. The answer has the positions of those that were stored."""
    form = await read(request, StoreBatchParameters)
    caller, domain, _ = _requested(request, service, form)
    if len(form.sources) != len(form.targets):
        raise Problem(422, "invalid_request", "expected as many targets as sources")
    await learn(service, caller, domain, list(zip(form.sources, form.targets, strict=True)))
    return JSONResponse(list(range(len(form.sources))))


def _requested(request: Request, service: Service, form: PairParameters) -> tuple[Caller, Domain, Direction]:
    """The caller, the domain and the languages of a request."""
    caller = caller_with(service, request, _key(form))
    tag = form.modelTag.strip('"')  # memoQ's plug-in sends two quotes for none
    domain = requested_domain(request, service, caller, tag or None, languages=(form.srcLangCode, form.trgLangCode))
    return caller, domain, required_direction(service, domain, form.srcLangCode, form.trgLangCode)


def _key(form: TokenParameters) -> str | None:
    return form.tokenCode or None


def _add(name: str, method: str, answers: Any, route: Any, shape: type[Parameters]) -> None:
    plain: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    for path in _PATHS:
        router.add_api_route(
            f"{path}/{name}",
            route,
            methods=[method],
            response_model=answers,
            response_class=Response if answers is None else JSONResponse,
            responses=plain if answers is None else None,
            openapi_extra=with_query(shape) if method == "GET" else with_body(shape, FORM, JSON),
            name=f"{name} {method} {path}",
            include_in_schema=path == _PATHS[0],
        )


for _name, _method, _answers, _route, _shape in (
    ("Translate", "GET", str, translate, TranslateParameters),
    ("TranslateStream", "GET", None, translate_stream, TranslateParameters),
    ("TranslateJson", "GET", TranslationPair, translate_json, TranslateParameters),
    ("TranslatePost", "POST", TranslationPair, translate_json, TranslateParameters),
    ("BatchTranslate", "GET", list[str], translate_batch, BatchParameters),
    ("BatchTranslate", "POST", list[str], translate_batch, BatchParameters),
    ("PreOrderBatch", "POST", type(None), order_batch, BatchParameters),
    ("ListSupportedLanguagePairs", "GET", list[str], language_pairs, TokenParameters),
    ("GetLanguagePairModelTags", "GET", list[str], model_tags, PairParameters),
    ("CheckModelStatus", "GET", str, model_status, PairParameters),
    ("Login", "GET", str | None, login, TokenParameters),
    (
        "StoreTranslation",
        "POST",
        type(None),
        store,
        StoreParameters,
    ),  # no GET, because pages of other sites can make a browser send one
    ("BatchStoreTranslation", "POST", list[int], store_batch, StoreBatchParameters),
):
    _add(_name, _method, _answers, _route, _shape)
