"""`POST /v1/sentences`: cut a text into sentences, as for translation."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from knnmt.corpus.language_guess import recognise
from knnmt.corpus.sentences import split_lines, split_sentences
from knnmt.service.answer_shapes import SentencesAnswer
from knnmt.service.asking import CallerFirst, TheCaller, TheService
from knnmt.service.problems import Problem
from knnmt.service.request_shapes import SentencesBody

router = APIRouter(tags=["translating"], route_class=CallerFirst)


@router.post("/v1/sentences", response_model=SentencesAnswer)
async def sentences(asked: SentencesBody, service: TheService, caller: TheCaller) -> Response:
    """Cut a text into sentences, each with the white space that follows it. Joined, they are the text again."""
    caller.require("translate")
    most = service.config.limits.characters
    if len(asked.text) > most:
        raise Problem(413, "too_large", f"the text has {len(asked.text):,} characters; send at most {most:,}")
    lines = await service.text_threads.run(caller.client, len(asked.text), partial(split_lines, asked.text))
    found = await service.text_threads.each(caller.client, lines, split_sentences, len)
    return JSONResponse({"sentences": [each for line in found for each in line], "language": recognise(asked.text)})
