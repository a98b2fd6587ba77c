"""`POST /v1/explain`: where each word of a translation came from. `POST /v1/match`: similar segments of the memory."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from knnmt.service.http.answer_shapes import ExplainAnswer, MatchesAnswer
from knnmt.service.http.request_shapes import ExplainBody, MatchBody
from knnmt.service.http.requests import (
    CallerFirst,
    TheCaller,
    TheService,
    requested_domain,
    require_texts,
    text_requests,
    while_connected,
)
from knnmt.service.service import Service
from knnmt.translator.explanation import Explanation, passages_of, words_of
from knnmt.translator.memories import Request as TextRequest
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.translation import Translation

router = APIRouter(tags=["translating"], route_class=CallerFirst)


@router.post("/v1/explain", response_model=ExplainAnswer, response_model_exclude_none=True)
async def explain(body: ExplainBody, request: Request, service: TheService, caller: TheCaller) -> Response:
    """Translate texts with and without the memory, and show where each word came from."""
    languages = body.source_language, body.target_language
    domain = requested_domain(request, service, caller, body.domain, languages=languages)
    domain.required_store()
    settings = TranslationSettings(exact_matches="ignore").over(body.settings())
    evident = TranslationSettings(evidence=True, match=True).over(settings)
    requests = await text_requests(body, evident, domain, service, caller)
    alone = [
        TextRequest(each.text, None, glossary=each.glossary, source_lang=each.source_lang, target_lang=each.target_lang)
        for each in requests
    ]

    async def both() -> tuple[list[Translation], list[Translation]]:
        client, seconds = caller.client, body.timeout_seconds
        with_memory = service.translate(requests, evident, client, seconds)
        without = service.translate(alone, settings, client, seconds)
        return await asyncio.gather(with_memory, without)

    made, bare = await while_connected(request, both())
    explained = await service.text_threads.each(
        caller.client,
        list(zip(made, bare, strict=True)),
        lambda both: _as_json(service, *both),
        lambda both: len(both[0].text),
    )
    return JSONResponse({"domain": domain.name, "explanations": explained})


def _as_json(service: Service, made: Translation, alone: Translation) -> dict[str, Any]:
    if made.error is not None:
        answer: dict[str, Any] = {"text": "", "share": 0.0, "alone": alone.text, "words": [], "passages": []}
        return {**answer, "error": service.domains.named_in(made.error)}
    explanation = Explanation(made, tuple(words_of(made)), alone.text)
    return {
        "text": made.text,
        "share": round(explanation.share, 4),
        "alone": alone.text,
        "words": [
            {"text": word.text, "span": word.span, "share": round(word.share, 4)}
            for word in explanation.words
            if word.text
        ],
        "passages": [
            {
                "text": each.text,
                "share": round(each.share, 4),
                "source": each.pair.source,
                "target": each.pair.target,
                "origin": each.pair.origin,
                "spans": each.spans,
            }
            for each in passages_of(explanation)
        ],
        **({"match": asdict(made.match)} if made.match else {}),
    }


@router.post("/v1/match", response_model=MatchesAnswer)
async def match(body: MatchBody, request: Request, service: TheService, caller: TheCaller) -> Response:
    """The segments of the memory whose sources are most similar to the texts, scored as translators' tools do."""
    domain = requested_domain(request, service, caller, body.domain)
    domain.required_store()
    require_texts(body.texts, service.config.limits)

    def found(text: str) -> list[dict[str, Any]]:
        store = domain.required_store()
        with service.translator.for_store(store).memories.using(store) as memory:
            return [asdict(each) for each in memory.matcher.matches(text, body.at_least, body.limit)]

    looking = service.matches.each(caller.client, body.texts, found, len)
    matches = await while_connected(request, service.until(looking, body.timeout_seconds))
    return JSONResponse({"domain": domain.name, "matches": matches})
