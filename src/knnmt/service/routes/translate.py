"""`POST /v1/translate`: texts in, translations out, at once or each when it is done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from knnmt.errors import KnnmtError
from knnmt.service.asking import TheCaller, TheService, domain_asked, require_retrieval, text_requests, while_connected
from knnmt.service.problems import Problem, problem_of
from knnmt.service.service import Service
from knnmt.service.shapes import TranslateAnswer, TranslateAsked
from knnmt.translator.as_json import as_json
from knnmt.translator.explanation import words_of
from knnmt.translator.memories import Request as TextRequest
from knnmt.translator.translation import Translation

router = APIRouter(tags=["translating"])
_NDJSON = "application/x-ndjson"


@router.post(
    "/v1/translate",
    response_model=TranslateAnswer,
    response_model_exclude_none=True,
    responses={200: {"content": {_NDJSON: {"schema": {"type": "string"}}}}},
)
async def translate(asked: TranslateAsked, request: Request, service: TheService, caller: TheCaller) -> Response:
    """Translate texts. With `stream`, the answer has a line for each text as soon as it is done, with its `index`."""
    domain = domain_asked(request, service, asked.domain)
    caller.require("translate", domain.name)
    requests = text_requests(asked, domain, service.config.limits)
    await require_retrieval(service, requests)
    if asked.stream:
        service.batcher.require_room(len(requests))  # while the answer can still say so
        return StreamingResponse(_lines(service, requests, asked), media_type=_NDJSON)
    made = await while_connected(request, service.translate(requests, asked.settings(), asked.timeout_seconds))
    return JSONResponse(
        {"domain": domain.name, "translations": [shown(service, each, asked.evidence) for each in made]}
    )


def shown(service: Service, translation: Translation, evidence: bool) -> dict[str, Any]:
    """A translation as the answer has it."""
    told = as_json(translation)
    del told["source"]
    if translation.error is not None:
        told["error"] = service.domains.named_in(translation.error)
    if not evidence:
        del told["tokens"]
    elif "evidence" in told:
        told["words"] = _words(translation)
    told["alternatives"] = [{"text": each.text, "score": each.score} for each in translation.alternatives]
    return told if translation.alternatives else {name: value for name, value in told.items() if name != "alternatives"}


def _words(translation: Translation) -> list[dict[str, Any]]:
    numbers = {id(token): number for number, token in enumerate(translation.tokens)}
    return [
        {
            "text": word.text,
            "span": word.span,
            "share": round(word.share, 4),
            "tokens": [numbers[id(token)] for token in word.tokens],
        }
        for word in words_of(translation)
    ]


async def _lines(service: Service, requests: Sequence[TextRequest], asked: TranslateAsked) -> AsyncIterator[str]:
    """A line for each text, and at last one that says what went wrong, if something did."""
    futures = service.batcher.submit(requests, asked.settings())
    numbered = {asyncio.wrap_future(future): number for number, future in enumerate(futures)}
    waiting = set(numbered)
    try:
        async with asyncio.timeout(min(asked.timeout_seconds or float("inf"), service.config.limits.wait_seconds)):
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                service.metrics.translated(each.result() for each in done)
                for each in sorted(done, key=numbered.__getitem__):
                    yield _line({"index": numbered[each], **shown(service, each.result(), asked.evidence)})
    except TimeoutError:
        yield _line({"code": "deadline", "message": "it was not done in time; nothing more is done for it"})
    except KnnmtError as error:
        problem = service.domains.deleted_in(error) or problem_of(error)
        yield _line({"code": problem.code, "message": service.domains.named_in(problem.message)})
    except Problem as problem:
        yield _line({"code": problem.code, "message": problem.message})
    finally:
        for future in futures:
            future.cancel()


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"
