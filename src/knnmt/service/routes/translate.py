"""`POST /v1/translate`: translate texts; the results come together, or each when it is done.

`POST /v1/sentences`: cut a text into sentences, as for translation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from knnmt.corpus.language_guess import recognise
from knnmt.corpus.sentences import split_lines, split_sentences
from knnmt.errors import KnnmtError
from knnmt.service.access import Caller
from knnmt.service.http.answer_shapes import SentencesAnswer, TranslateAnswer
from knnmt.service.http.request_shapes import SentencesBody, TranslateBody
from knnmt.service.http.requests import (
    CallerFirst,
    TheCaller,
    TheService,
    requested_domain,
    text_requests,
    while_connected,
)
from knnmt.service.problems import Problem, problem_of
from knnmt.service.service import Service
from knnmt.translator.explanation import words_of
from knnmt.translator.memories import Request as TextRequest
from knnmt.translator.settings import TranslationSettings
from knnmt.translator.translation import Translation, as_json

router = APIRouter(tags=["translating"], route_class=CallerFirst)
_NDJSON = "application/x-ndjson"


@router.post(
    "/v1/translate",
    response_model=TranslateAnswer,
    response_model_exclude_none=True,
    responses={200: {"content": {_NDJSON: {"schema": {"type": "string"}}}}},
)
async def translate(body: TranslateBody, request: Request, service: TheService, caller: TheCaller) -> Response:
    """Translate texts. With `stream`, the answer has a line for each text as soon as it is done, with its `index`.

    With `so_far` as well, earlier lines have the translation so far. It may still change.
    """
    languages = body.source_language, body.target_language
    domain = requested_domain(request, service, caller, body.domain, languages=languages)
    settings = body.settings()
    requests = await text_requests(body, settings, domain, service, caller)
    if body.stream:
        service.batcher.require_open()  # while the answer can still have another status
        return StreamingResponse(_lines(service, caller, requests, body, settings), media_type=_NDJSON)
    work = service.translate(requests, settings, caller.client, body.timeout_seconds)
    made = await while_connected(request, work)
    translations = await service.text_threads.each(
        caller.client,
        list(zip(requests, made, strict=True)),
        lambda both: _as_json(service, *both, bool(settings.evidence)),
        lambda both: len(both[1].source) + len(both[1].text),
    )
    return JSONResponse({"domain": domain.name, "translations": translations})


def _as_json(service: Service, request: TextRequest, translation: Translation, evidence: bool) -> dict[str, Any]:
    """A translation, as in the answer."""
    answer = as_json(translation)
    known = service.translator.between(request.languages).engine.languages
    for name, tag in (("source", request.source_lang or known.source), ("target", request.target_lang or known.target)):
        if tag is not None:
            answer[f"{name}_language"] = tag
    del answer["source"]
    if translation.error is not None:
        answer["error"] = service.domains.named_in(translation.error)
    if not evidence:
        del answer["tokens"]
    elif "evidence" in answer:
        answer["words"] = _words(translation)
    answer["alternatives"] = [{"text": each.text, "score": each.score} for each in translation.alternatives]
    return (
        answer
        if translation.alternatives
        else {name: value for name, value in answer.items() if name != "alternatives"}
    )


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


async def _lines(
    service: Service,
    caller: Caller,
    requests: Sequence[TextRequest],
    body: TranslateBody,
    settings: TranslationSettings,
) -> AsyncIterator[str]:
    """A line for each text, and a last one with the error, if there was one."""
    news = _News()
    left = len(requests)
    watches = [partial(news.grown, number) for number in range(left)] if body.so_far else None
    futures: Sequence[Future[Translation]] = ()
    seconds = min(body.timeout_seconds or float("inf"), service.config.limits.wait_seconds)
    try:
        async with asyncio.timeout(seconds), service.texts.hold(caller.client, left):
            futures = service.batcher.submit(requests, settings, watches, caller.client)
            for number, future in enumerate(futures):
                future.add_done_callback(partial(news.done, number))
            while left:
                number, come = await news.next()
                if isinstance(come, str):
                    yield _line({"index": number, "so_far": come})
                    continue
                left -= 1
                made = come.result()
                service.metrics.translated([made])
                line = partial(_as_json, service, requests[number], made, bool(settings.evidence))
                answer = await service.text_threads.run(caller.client, len(made.text), line)
                yield _line({"index": number, **answer})
    except TimeoutError:
        yield _line({"code": "deadline", "message": "the request was not done in time and was cancelled"})
    except KnnmtError as error:
        problem = service.domains.deleted_in(error) or problem_of(error)
        yield _line({"code": problem.code, "message": service.domains.named_in(problem.message)})
    except Problem as problem:
        yield _line({"code": problem.code, "message": problem.message})
    finally:
        for future in futures:
            future.cancel()


class _News:
    """Passes events of texts from decoding threads to the thread that answers."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._come: asyncio.Queue[tuple[int, Future[Translation] | None]] = asyncio.Queue()
        self._grown: dict[int, str] = {}

    def done(self, number: int, future: Future[Translation]) -> None:
        """A text is translated."""
        self._tell(self._come.put_nowait, (number, future))

    def grown(self, number: int, so_far: str) -> None:
        """A text is translated so far."""
        self._tell(self._grow, number, so_far)

    async def next(self) -> tuple[int, Future[Translation] | str]:
        """The next event; of several partial translations of a text, only the newest."""
        number, future = await self._come.get()
        return number, self._grown.pop(number) if future is None else future

    def _grow(self, number: int, so_far: str) -> None:
        if number not in self._grown:
            self._come.put_nowait((number, None))
        self._grown[number] = so_far

    def _tell(self, call: Callable[..., None], *answer: object) -> None:
        with suppress(RuntimeError):  # the event loop has ended, and the requests with it
            self._loop.call_soon_threadsafe(call, *answer)


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"


@router.post("/v1/sentences", response_model=SentencesAnswer)
async def sentences(body: SentencesBody, service: TheService, caller: TheCaller) -> Response:
    """Cut a text into sentences, each with the white space that follows it. Joined, they are the text again."""
    caller.require("translate")
    most = service.config.limits.characters
    if len(body.text) > most:
        raise Problem(413, "too_large", f"the text has {len(body.text):,} characters; send at most {most:,}")
    lines = await service.text_threads.run(caller.client, len(body.text), partial(split_lines, body.text))
    found = await service.text_threads.each(caller.client, lines, split_sentences, len)
    return JSONResponse({"sentences": [each for line in found for each in line], "language": recognise(body.text)})
