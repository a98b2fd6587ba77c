"""Translating over HTTP finds what the translator finds, whoever else asks at the same time."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from knnmt.retrieval.settings import RetrievalSettings
from knnmt.service.http.answer_shapes import ExplainAnswer, MatchesAnswer, TranslateAnswer, TranslationAnswer
from knnmt.service.http.request_shapes import RetrievalBody
from knnmt.service.http.requests import while_connected
from knnmt.service.http.setting_shapes import given_settings
from knnmt.service.problems import Problem
from knnmt.service.scheduling import batching
from knnmt.service.scheduling.waiting_texts import growing
from knnmt.settings import described
from knnmt.translator.translator import Translator

TEXTS = ["abc def", "Satz", "eine Zeile. noch eine Zeile.", "  ", "Satz 3 ja ja ja", "x" * 30]
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


def texts_of(client: TestClient, **asked: object) -> list[str]:
    answer = client.post("/v1/translate", json=asked)
    assert answer.status_code == 200, answer.text
    return [each["text"] for each in TranslateAnswer.model_validate(answer.json()).model_dump()["translations"]]


def expected(tiny_translator: Translator, texts: list[str], served_store: Path | None, **settings: object) -> list[str]:
    like_the_command = {"split_sentences": True, "protect": True, "exact_matches": "use"}
    made = tiny_translator.stream(texts, datastore=served_store, **{**like_the_command, **settings})  # type: ignore[arg-type]
    return [each.text for each in made]


def test_translations_are_the_translators(client: TestClient, tiny_translator: Translator, served_store: Path) -> None:
    assert texts_of(client, texts=TEXTS) == expected(tiny_translator, TEXTS, served_store)
    assert texts_of(client, texts=TEXTS, domain="base") == expected(tiny_translator, TEXTS, None)
    greedy = expected(tiny_translator, TEXTS, served_store, beam=1, exact_matches="ignore", k=2)
    assert texts_of(client, texts=TEXTS, beam=1, exact_matches="ignore", retrieval={"k": 2}) == greedy


def test_clients_that_ask_together(client: TestClient, tiny_translator: Translator, served_store: Path) -> None:
    stores = [served_store, None] * 4
    asked = [([f"Satz {letter}", "Wort"], store) for letter, store in zip("abcdefgh", stores, strict=True)]

    def ask(texts: list[str], memory: Path | None) -> list[str]:
        return texts_of(client, texts=texts, domain="small" if memory else "base")

    with ThreadPoolExecutor(8) as clients:
        found = list(clients.map(lambda each: ask(*each), asked))
    assert found == [expected(tiny_translator, *each) for each in asked]


def test_what_a_translation_is_and_why(client: TestClient) -> None:
    asked = {"texts": ["Satz 3 ja ja ja", "etwas"], "evidence": True, "match": True, "n_best": 2, "protect": False}
    answer = client.post("/v1/translate", json=asked).json()
    TranslateAnswer.model_validate(answer)
    taken, made = answer["translations"]
    assert taken["kind"] == "exact match"
    assert taken["match"]["origin"] == "own.tsv#3"
    assert made["kind"] == "with memory"
    assert len(made["evidence"]) == len(made["tokens"])
    assert len(made["alternatives"]) == 1
    assert made["evidence"][0]["neighbours"]


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/explain"])
def test_evidence_has_a_limit_that_memory_can_hold(client: TestClient, path: str) -> None:
    """With 256 neighbours and 16 translations, the evidence of one long text took gigabytes."""
    asked: dict[str, Any] = {"texts": ["Satz 3 ja ja ja. " * 1_000], "beam": 16, "retrieval": {"k": 256}}
    if path == "/v1/translate":
        asked |= {"evidence": True, "n_best": 16}
    answer = client.post(path, json=asked)
    assert answer.status_code == 413
    assert "neighbours; the service takes at most 200,000" in answer.json()["message"]


def test_results_come_as_they_are_done(client: TestClient, tiny_translator: Translator, served_store: Path) -> None:
    with client.stream("POST", "/v1/translate", json={"texts": TEXTS, "stream": True}) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.iter_lines()]
    for line in lines:
        TranslationAnswer.model_validate(line)
    found = {line["index"]: line["text"] for line in lines}
    assert [found[number] for number in range(len(TEXTS))] == expected(tiny_translator, TEXTS, served_store)


@pytest.mark.parametrize("settings", [{}, {"beam": 1, "protect": False}, {"evidence": True}])
def test_how_far_a_text_is_comes_before_it_is_done(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    monkeypatch.setattr(batching, "growing", partial(growing, seconds=-1.0))  # at every step
    texts = [TEXTS[4], "Satz 4 ja ja ja ja. Satz 5 ja"]
    settings = {"exact_matches": "ignore", **settings}
    asked = {"texts": texts, "stream": True, "so_far": True, **settings}
    lines = [json.loads(line) for line in client.post("/v1/translate", json=asked).text.splitlines()]
    without = client.post("/v1/translate", json={"texts": texts, **settings}).json()["translations"]
    for number, made in enumerate(without):
        mine = [line for line in lines if line["index"] == number]
        assert mine[-1]["text"] == made["text"]
        grown = [line["so_far"] for line in mine[:-1]]
        assert grown
        if "beam" in settings and number == 0:  # one segment, and one hypothesis
            assert all(made["text"].startswith(each) for each in grown)
    assert client.post("/v1/translate", json={**asked, "stream": False}).status_code == 422


def test_a_domain_by_prefix_by_name_or_by_default(client: TestClient) -> None:
    known = {"texts": ["Satz 3 ja ja ja"]}
    kinds = {"small": "exact match", "base": "model alone"}
    for domain, kind in kinds.items():
        by_prefix = client.post(f"/d/{domain}/v1/translate", json=known).json()
        by_name = client.post("/v1/translate", json={**known, "domain": domain}).json()
        assert by_prefix == by_name
        assert (by_name["domain"], by_name["translations"][0]["kind"]) == (domain, kind)
    assert client.post("/v1/translate", json=known).json()["domain"] == "small"  # the only store
    both = client.post("/d/small/v1/translate", json={**known, "domain": "base"})
    assert (both.status_code, both.json()["code"]) == (422, "two_domains")
    other = client.post("/d/nothing/v1/translate", json=known)
    assert (other.status_code, other.json()["code"]) == (404, "unknown_domain")


def test_words_say_where_they_came_from(client: TestClient, tiny_translator: Translator) -> None:
    answer = client.post("/v1/explain", json={"texts": ["Satz 3 ja ja ja"], "domain": "small"}).json()
    ExplainAnswer.model_validate(answer)
    [explained] = answer["explanations"]
    assert explained["share"] > 0
    assert explained["match"]["exact"]
    assert explained["alone"] == expected(tiny_translator, ["Satz 3 ja ja ja"], None)[0]
    assert "".join(word["text"] for word in explained["words"]) == explained["text"].replace(" ", "")
    alone = client.post("/v1/explain", json={"texts": ["a"], "domain": "base"})
    assert (alone.status_code, alone.json()["code"]) == (409, "no_memory")


def test_matches_are_scored(client: TestClient) -> None:
    answer = client.post("/v1/match", json={"texts": ["Satz 3 ja ja nein", "ganz anders"], "limit": 2}).json()
    MatchesAnswer.model_validate(answer)
    near, none = answer["matches"]
    assert [each["score"] for each in near] == [80, 60]
    assert near[0]["source"].startswith("Satz")
    assert none == []


def test_every_setting_of_retrieval_can_be_asked_for_but_code() -> None:
    assert set(RetrievalBody.model_fields) == set(described(RetrievalSettings)) - {"combiner"}
    with pytest.raises(ValueError, match="gate"):
        RetrievalBody.model_validate({"gate": "os:system"})
    assert given_settings(RetrievalBody.model_validate({"cache": None, "k": 3})).given() == {"cache": None, "k": 3}


class HungUp:
    """A request whose client is gone."""

    async def receive(self) -> dict[str, str]:
        return {"type": "http.disconnect"}


def test_work_for_a_client_that_hung_up_ends() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def ask() -> None:
        with pytest.raises(Problem, match="disconnected"):
            await while_connected(HungUp(), work())  # type: ignore[arg-type]
        await asyncio.sleep(0)

    asyncio.run(ask())
    assert ended


def test_what_is_not_done_in_time_is_refused(client: TestClient) -> None:
    asked = {"texts": ["noch nie gefragt", "und das"], "timeout_seconds": 0.001}
    late = client.post("/v1/translate", json=asked)
    assert (late.status_code, late.json()["code"]) == (504, "deadline")
    streamed = client.post("/v1/translate", json={**asked, "stream": True})
    assert json.loads(streamed.text.splitlines()[-1])["code"] == "deadline"


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({}, 422, "texts"),
        ({"texts": []}, 422, "texts"),
        ({"texts": ["a"], "bream": 3}, 422, "bream"),
        ({"texts": ["a"], "beam": 17}, 422, "16"),
        ({"texts": ["a"], "n_best": 9}, 422, "n_best"),
        ({"texts": ["a"], "retrieval": {"k": 1000}}, 422, "256"),
        ({"texts": ["a"], "retrieval": {"profile": "no"}}, 422, "small: has no profile 'no'"),
        ({"texts": ["a"], "contexts": []}, 422, "contexts"),
        ({"texts": ["a"] * 1001}, 413, "1,000"),
        ({"texts": ["a" * 20_001]}, 413, "20,000"),
    ],
)
def test_what_cannot_be_had_is_said(client: TestClient, asked: dict[str, object], status: int, words: str) -> None:
    answer = client.post("/v1/translate", json=asked)
    assert answer.status_code == status
    assert words in answer.text
    assert "/tmp" not in answer.text
    assert set(answer.json()) >= {"code", "message"}


def test_placeholders_of_ones_own(client: TestClient) -> None:
    text = "Satz ~~name~~ ja"
    (found,) = texts_of(client, texts=[text], placeholders=["~~*~~"])
    assert found.count("~~name~~") == 1
    refused = client.post("/v1/translate", json={"texts": [text], "placeholders": ["(a+)+ "]})
    assert refused.status_code == 422
    assert "a pattern of a placeholder without white space" in refused.json()["message"]
    assert client.post("/v1/translate", json={"texts": [text], "placeholders": ["a"] * 21}).status_code == 422
    assert client.post("/v1/documents?placeholder=%20", content=b"{}").status_code == 422
