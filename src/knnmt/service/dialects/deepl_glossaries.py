"""DeepL's glossaries: version 2, of one pair of languages each, and version 3, of several."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from knnmt.corpus.languages import is_tag
from knnmt.service.access import Caller
from knnmt.service.dialects import directions
from knnmt.service.dialects.deepl import ERRORS, TheDeepLCaller
from knnmt.service.dialects.directions import is_language, short
from knnmt.service.dialects.speaking import (
    BAD_REQUEST,
    FORM,
    JSON,
    InPath,
    Parameters,
    read,
    route_with_errors,
    with_body,
)
from knnmt.service.glossaries import Dictionary, StoredGlossary, require_terms
from knnmt.service.http.requests import TheService
from knnmt.service.problems import Problem
from knnmt.service.service import Service

router = APIRouter(tags=["DeepL"], route_class=route_with_errors(ERRORS), responses=BAD_REQUEST)
_TSV = "text/tab-separated-values"
_MAX_ENTRIES = 10 << 20  # characters
_Tag = Annotated[str, Field(max_length=35, examples=["DE"])]
_TagAsked = Annotated[str, Query(max_length=35)]


class DictionaryParameters(Parameters):
    """Terms of one pair of languages."""

    source_lang: _Tag
    target_lang: _Tag
    entries: str = Field(max_length=_MAX_ENTRIES, examples=["Datei\tfile"])
    entries_format: Literal["tsv", "csv"] = "tsv"

    def dictionary(self) -> Dictionary:
        """The dictionary as the service keeps it."""
        return Dictionary(*_pair(self.source_lang, self.target_lang), require_terms(list(_terms(self))))


class GlossaryParameters(DictionaryParameters):
    """A new glossary of version 2."""

    name: str = Field(min_length=1, max_length=1_024)


class ManyParameters(Parameters):
    """A new glossary of version 3."""

    name: str = Field(min_length=1, max_length=1_024)
    dictionaries: list[DictionaryParameters] = Field(min_length=1, max_length=100)


class ChangeParameters(Parameters):
    """Changes to a glossary."""

    name: str | None = Field(default=None, min_length=1, max_length=1_024)
    dictionaries: list[DictionaryParameters] = Field(default=[], max_length=100)


class PairAnswer(BaseModel):
    """Languages that a glossary may have."""

    source_lang: str
    target_lang: str


class PairsAnswer(BaseModel):
    """Pairs of languages that a glossary may have."""

    supported_languages: list[PairAnswer]


class GlossaryAnswer(BaseModel):
    """A glossary of version 2."""

    glossary_id: str
    name: str
    ready: bool
    source_lang: str
    target_lang: str
    creation_time: str
    entry_count: int


class GlossariesAnswer(BaseModel):
    """Glossaries of version 2."""

    glossaries: list[GlossaryAnswer]


class DictionaryAnswer(PairAnswer):
    """A dictionary, without its terms."""

    entry_count: int


class ManyAnswer(BaseModel):
    """A glossary of version 3."""

    glossary_id: str
    name: str
    creation_time: str
    dictionaries: list[DictionaryAnswer]


class ManyListAnswer(BaseModel):
    """Glossaries of version 3."""

    glossaries: list[ManyAnswer]


class EntriesAnswer(PairAnswer):
    """The terms of a dictionary."""

    entries: str
    entries_format: str


class EntriesListAnswer(BaseModel):
    """Dictionaries with their terms."""

    dictionaries: list[EntriesAnswer]


@router.get("/v2/glossary-language-pairs", response_model=PairsAnswer)
async def language_pairs(service: TheService, caller: TheDeepLCaller) -> Response:
    """The language pairs that a glossary may have: those of the domains. There are none if the key cannot make
    glossaries.

    Weblate sends its terms for every pair that is listed, and stops using a service for a while if it fails.
    """
    caller.require("translate")
    found: set[tuple[str, str]] = set()
    if service.glossaries.can_keep and caller.may("write"):
        for domain in service.domains:
            if caller.sees(domain.name):
                found.update(directions.pairs(service, domain))
    return JSONResponse(
        {"supported_languages": [{"source_lang": one, "target_lang": other} for one, other in sorted(found)]}
    )


# Version 2 ------------------------------------------------------------------------------------------------------------


@router.post(
    "/v2/glossaries",
    response_model=GlossaryAnswer,
    status_code=201,
    openapi_extra=with_body(GlossaryParameters, JSON, FORM),
)
async def make(request: Request, service: TheService, caller: TheDeepLCaller) -> Response:
    """Make a glossary. The key needs the role write."""
    caller.require("write")
    form = await read(request, GlossaryParameters)
    dictionary = await _dictionary(service, caller, form)
    made = await asyncio.to_thread(service.glossaries.make, form.name, (dictionary,), caller)
    return JSONResponse(_as_json(made), status_code=201)


@router.get("/v2/glossaries", response_model=GlossariesAnswer)
async def glossaries(service: TheService, caller: TheDeepLCaller) -> Response:
    """The glossaries of the key that have one pair of languages."""
    caller.require("translate")
    visible = service.glossaries.seen_by(caller)
    return JSONResponse({"glossaries": [_as_json(each) for each in visible if len(each.dictionaries) == 1]})


@router.get("/v2/glossaries/{glossary_id}", response_model=GlossaryAnswer)
async def glossary(glossary_id: InPath, service: TheService, caller: TheDeepLCaller) -> Response:
    """One glossary."""
    return JSONResponse(_as_json(_single(service, caller, glossary_id)))


@router.get(
    "/v2/glossaries/{glossary_id}/entries",
    response_class=Response,
    responses={200: {"content": {_TSV: {"schema": {"type": "string"}}}}},
)
async def entries(glossary_id: InPath, service: TheService, caller: TheDeepLCaller) -> Response:
    """The terms of a glossary, separated by tabs."""
    found = _single(service, caller, glossary_id)
    return Response(_table(found.dictionaries[0]), media_type=_TSV)


@router.delete("/v2/glossaries/{glossary_id}", status_code=204)
async def delete(glossary_id: InPath, service: TheService, caller: TheDeepLCaller) -> Response:
    """Delete a glossary."""
    return await _deleted(service, caller, glossary_id)


# Version 3 ------------------------------------------------------------------------------------------------------------


@router.post(
    "/v3/glossaries", response_model=ManyAnswer, status_code=201, openapi_extra=with_body(ManyParameters, JSON)
)
async def make_many(request: Request, service: TheService, caller: TheDeepLCaller) -> Response:
    """Make a glossary of several language pairs. The key needs the role write.

    Some clients send a form, with fields such as dictionaries[0].entries.
    """
    caller.require("write")
    form = await read(request, ManyParameters)
    found = tuple([await _dictionary(service, caller, each) for each in form.dictionaries])
    if len({each.pair for each in found}) < len(found):
        raise Problem(422, "invalid_request", "two dictionaries have the same languages")
    made = await asyncio.to_thread(service.glossaries.make, form.name, found, caller)
    return JSONResponse(_all_shown(made), status_code=201)


@router.get("/v3/glossaries", response_model=ManyListAnswer)
async def all_glossaries(service: TheService, caller: TheDeepLCaller) -> Response:
    """All glossaries of the key."""
    caller.require("translate")
    return JSONResponse({"glossaries": [_all_shown(each) for each in service.glossaries.seen_by(caller)]})


@router.get("/v3/glossaries/{glossary_id}", response_model=ManyAnswer)
async def one_of_many(glossary_id: InPath, service: TheService, caller: TheDeepLCaller) -> Response:
    """One glossary."""
    return JSONResponse(_all_shown(_visible(service, caller, glossary_id)))


@router.patch(
    "/v3/glossaries/{glossary_id}", response_model=ManyAnswer, openapi_extra=with_body(ChangeParameters, JSON)
)
async def change(glossary_id: InPath, request: Request, service: TheService, caller: TheDeepLCaller) -> Response:
    """Rename a glossary, and add terms to its dictionaries."""
    found = _written_by(service, caller, glossary_id)
    form = await read(request, ChangeParameters)
    if form.name is not None:
        found = replace(found, name=form.name)
    for each in form.dictionaries:
        new = await _dictionary(service, caller, each)
        held = found.of(*new.pair)
        merged = new if held is None else new.over(held)
        require_terms(list(merged.terms))
        found = found.with_dictionary(merged)
    return JSONResponse(_all_shown(await asyncio.to_thread(service.glossaries.put, found)))


@router.get("/v3/glossaries/{glossary_id}/entries", response_model=EntriesListAnswer)
async def entries_of_many(
    glossary_id: InPath, source_lang: _TagAsked, target_lang: _TagAsked, service: TheService, caller: TheDeepLCaller
) -> Response:
    """The terms of a dictionary."""
    found = _required(_visible(service, caller, glossary_id), source_lang, target_lang)
    told = {**_languages(found), "entries": _table(found), "entries_format": "tsv"}
    return JSONResponse({"dictionaries": [told]})


@router.put(
    "/v3/glossaries/{glossary_id}/dictionaries",
    response_model=DictionaryAnswer,
    openapi_extra=with_body(DictionaryParameters, JSON, FORM),
)
async def replace_dictionary(
    glossary_id: InPath, request: Request, service: TheService, caller: TheDeepLCaller
) -> Response:
    """Replace the dictionary of a language pair."""
    found = _written_by(service, caller, glossary_id)
    new = await _dictionary(service, caller, await read(request, DictionaryParameters))
    found = found.with_dictionary(new)
    await asyncio.to_thread(service.glossaries.put, found)
    return JSONResponse({**_languages(new), "entry_count": len(new.terms)})


@router.delete("/v3/glossaries/{glossary_id}/dictionaries", status_code=204)
async def delete_dictionary(
    glossary_id: InPath, source_lang: _TagAsked, target_lang: _TagAsked, service: TheService, caller: TheDeepLCaller
) -> Response:
    """Delete a dictionary; if it is the last one, delete the glossary."""
    found = _written_by(service, caller, glossary_id)
    gone = _required(found, source_lang, target_lang)
    left = tuple(each for each in found.dictionaries if each is not gone)
    if not left:
        return await _deleted(service, caller, glossary_id)
    await asyncio.to_thread(service.glossaries.put, replace(found, dictionaries=left))
    return Response(status_code=204)


@router.delete("/v3/glossaries/{glossary_id}", status_code=204)
async def delete_many(glossary_id: InPath, service: TheService, caller: TheDeepLCaller) -> Response:
    """Delete a glossary."""
    return await _deleted(service, caller, glossary_id)


# ----------------------------------------------------------------------------------------------------------------------


def _visible(service: Service, caller: Caller, number: str) -> StoredGlossary:
    caller.require("translate")
    return service.glossaries.of(number, caller)


async def _dictionary(service: Service, caller: Caller, form: DictionaryParameters) -> Dictionary:
    return await service.text_threads.run(caller.client, len(form.entries), form.dictionary)


def _written_by(service: Service, caller: Caller, number: str) -> StoredGlossary:
    caller.require("write")
    return service.glossaries.of(number, caller)


def _single(service: Service, caller: Caller, number: str) -> StoredGlossary:
    found = _visible(service, caller, number)
    if len(found.dictionaries) != 1:
        raise Problem(422, "invalid_request", "the glossary has several language pairs: request it at /v3/glossaries")
    return found


def _required(glossary: StoredGlossary, source: str, target: str) -> Dictionary:
    found = glossary.of(*_pair(source, target))
    if found is None:
        raise Problem(404, "unknown_dictionary", "the glossary has no dictionary for these languages")
    return found


async def _deleted(service: Service, caller: Caller, number: str) -> Response:
    await asyncio.to_thread(service.glossaries.delete, _written_by(service, caller, number))
    return Response(status_code=204)


def _pair(source: str, target: str) -> tuple[str, str]:
    for tag in (source, target):
        if not is_tag(tag) or not is_language(tag):
            raise Problem(422, "invalid_request", f"expected a language tag, such as de, found {tag[:40]!r}")
    return short(source), short(target)


def _terms(form: DictionaryParameters) -> Iterator[tuple[str, str]]:
    """Read the terms of a request. CSV may name the languages of each term in further columns."""
    if form.entries_format == "csv":
        try:
            rows = list(csv.reader(io.StringIO(form.entries, newline="")))
        except csv.Error as error:
            raise Problem(422, "invalid_request", f"entries: expected CSV: {error}") from error
    else:
        rows = [line.removesuffix("\r").split("\t") for line in form.entries.split("\n")]
    for number, row in enumerate(rows, 1):
        if not any(map(str.strip, row)):
            continue
        if len(row) not in ((2,) if form.entries_format == "tsv" else (2, 3, 4)):
            raise Problem(
                422, "invalid_request", f"entry {number}: expected a term and its translation, found {len(row)} columns"
            )
        yield row[0].strip(), row[1].strip()


def _table(dictionary: Dictionary) -> str:
    return "\n".join(f"{source}\t{target}" for source, target in dictionary.terms)


def _languages(dictionary: Dictionary) -> dict[str, str]:
    return {"source_lang": dictionary.source, "target_lang": dictionary.target}


def _as_json(glossary: StoredGlossary) -> dict[str, Any]:
    [only] = glossary.dictionaries
    told = {"glossary_id": glossary.id, "name": glossary.name, "ready": True, **_languages(only)}
    return {**told, "creation_time": _time(glossary), "entry_count": len(only.terms)}


def _all_shown(glossary: StoredGlossary) -> dict[str, Any]:
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "creation_time": _time(glossary),
        "dictionaries": [{**_languages(each), "entry_count": len(each.terms)} for each in glossary.dictionaries],
    }


def _time(glossary: StoredGlossary) -> str:
    return datetime.fromtimestamp(glossary.created, UTC).isoformat(timespec="microseconds")
