"""Documents over HTTP: sent, asked for by whoever knows their id, and taken once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fastapi.testclient import TestClient

from knnmt.service.access import new_key
from knnmt.service.config import Limits
from knnmt.service.http.answer_shapes import DocumentAnswer, UnitsAnswer
from knnmt.translator.assembly import Part
from knnmt.translator.segments import Job
from knnmt.translator.session import Lane
from knnmt.translator.stages import OnPartialTexts, OnSegment
from support.services import StartService

CATALOG = b'msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "Satz 3 ja ja ja"\nmsgstr ""\n\nmsgid "Satz"\nmsgstr "done"\n'
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


def done(client: TestClient, answer: Any, **headers: str) -> dict[str, Any]:
    assert answer.status_code == 202, answer.text
    place, ends = answer.headers["location"], time.monotonic() + 60
    while time.monotonic() < ends:
        told: dict[str, Any] = client.get(place, headers=headers).json()
        DocumentAnswer.model_validate(told)
        if told["state"] in ("done", "failed"):
            return told
        time.sleep(0.05)
    raise AssertionError(told)


def test_a_document_is_translated_and_taken_once(client: TestClient) -> None:
    sent = client.post("/v1/documents", params={"name": "app ü.po", "review": True}, content=CATALOG)
    told = done(client, sent)
    assert {name: told[name] for name in ("state", "done", "of", "domain", "download_name")} == {
        "download_name": "app ü.en.po",
        "state": "done",
        "done": 1,
        "of": 1,
        "domain": "small",
    }
    taken = client.get(f"{sent.headers['location']}/content")
    assert b'msgstr "line 3 yes yes yes"' in taken.content
    assert b'msgstr "done"' in taken.content
    assert b"# knnmt: exact match; certainty 100%" in taken.content
    assert taken.headers["content-type"] == "application/octet-stream"
    assert taken.headers["content-disposition"] == "attachment; filename*=UTF-8''app%20%C3%BC.en.po"
    assert client.get(f"{sent.headers['location']}/content").status_code == 404


def test_stated_languages_are_ignored_on_request(client: TestClient) -> None:
    catalog = CATALOG.replace(b"Language: en", b"Language: fr")
    told = done(client, client.post("/v1/documents", params={"name": "a.po"}, content=catalog))
    assert told["state"] == "failed"
    assert "goes from another language to fr" in told["message"]
    params: dict[str, Any] = {"name": "a.po", "ignore_stated_languages": True}
    sent = client.post("/v1/documents", params=params, content=catalog)
    assert done(client, sent)["state"] == "done"
    assert b"Language: fr" in client.get(f"{sent.headers['location']}/content").content


def test_a_name_with_a_language_is_downloaded_with_the_other(client: TestClient) -> None:
    film = b"1\n00:00:01,000 --> 00:00:02,000\nSatz 3 ja ja ja\n"
    sent = client.post("/v1/documents", params={"name": "film.de.srt"}, content=film)
    assert done(client, sent)["download_name"] == "film.en.srt"
    taken = client.get(f"{sent.headers['location']}/content")
    assert taken.headers["content-disposition"] == "attachment; filename*=UTF-8''film.en.srt"


def test_the_units_of_a_document_come_in_the_order_of_review(client: TestClient) -> None:
    texts = {"a": "100", "b": "Satz 3 ja ja ja", "c": "Satz 3 ja ja nein"}
    sent = client.post("/v1/documents", params={"name": "a.json"}, content=json.dumps(texts).encode())
    place = f"{sent.headers['location']}/units"
    done(client, sent)
    answer = client.get(place).json()
    UnitsAnswer.model_validate(answer)
    assert (answer["of"], answer["source_language"], answer["target_language"]) == (3, "de", "en")
    rows = answer["units"]
    assert [(row["unit"], row["state"], row["kind"]) for row in rows] == [
        ("c", "new", "with memory"),
        ("b", "new", "exact match"),
        ("a", "new", None),
    ]
    assert (rows[1]["source"], rows[1]["text"], rows[1]["certainty"]) == ("Satz 3 ja ja ja", "line 3 yes yes yes", 100)
    assert [row["match"]["score"] for row in rows[:2]] == [80, 100]
    assert client.get(place, params={"first": 1, "limit": 1}).json() == {**answer, "units": rows[1:2]}
    client.get(f"{sent.headers['location']}/content")
    assert client.get(place).status_code == 404


def test_half_a_surrogate_pair_stays_as_it_is_and_is_said(client: TestClient) -> None:
    content = b'{"a": "Satz \\ud800", "\\udfff": "Satz 3"}'
    sent = client.post("/v1/documents", params={"name": "a.json", "source_language": "de"}, content=content)
    assert done(client, sent)["state"] == "done"
    units = {each["unit"]: each for each in client.get(f"{sent.headers['location']}/units").json()["units"]}
    assert units["a"]["source"] == "Satz \\ud800"
    assert "half of a surrogate pair" in units["a"]["error"]
    assert "\\udfff" in units


def test_the_domain_and_the_glossary_of_a_request_count(client: TestClient) -> None:
    text = "Satz 3 ja ja ja"
    alone = client.post("/v1/translate", json={"texts": [text], "domain": "base"}).json()["translations"][0]["text"]
    sent = client.post("/d/base/v1/documents", params={"name": "a.json"}, content=f'{{"a": "{text}"}}'.encode())
    assert done(client, sent)["domain"] == "base"
    assert client.get(f"{sent.headers['location']}/content").json() == {"a": alone}
    asked = {"texts": ["Wort"], "glossary": [{"source": "Wort", "target": "word = w"}]}
    with_terms = client.post("/v1/translate", json=asked).json()["translations"][0]["text"]
    params: dict[str, Any] = {"name": "a.json", "term": ["Wort=word = w"]}
    sent = client.post("/v1/documents", params=params, content=b'{"a": "Wort"}')
    done(client, sent)
    assert client.get(f"{sent.headers['location']}/content").json() == {"a": with_terms}


def test_requests_name_a_glossary_that_was_sent(client: TestClient) -> None:
    languages = {"source_language": "de", "target_language": "en"}
    sent = client.post("/v1/glossaries", params={"name": "a.tsv", **languages}, content=b"Wort\tword = w\nzwei\txy\n")
    assert sent.status_code == 201, sent.text
    number = sent.json()["id"]
    assert client.get("/v1/glossaries").json() == {"glossaries": [client.get(f"/v1/glossaries/{number}").json()]}
    assert sent.json()["dictionaries"] == [{**languages, "terms": 2}]
    terms = [{"source": "Wort", "target": "word = w"}, {"source": "zwei", "target": "ab"}]
    for given, same in ((None, [terms[0], {"source": "zwei", "target": "xy"}]), (terms[1:], terms)):
        text = "Wort zwei"
        by_terms = client.post("/v1/translate", json={"texts": [text], "glossary": same}).json()["translations"]
        asked = {"texts": [text], "glossary_id": number, **({"glossary": given} if given else {})}
        assert client.post("/v1/translate", json=asked).json()["translations"] == by_terms
        params = {"name": "a.json", "glossary_id": number, "term": ["zwei=ab"] if given else []}
        document = client.post("/v1/documents", params=params, content=f'{{"a": "{text}"}}'.encode())
        done(client, document)
        assert client.get(f"{document.headers['location']}/content").json() == {"a": by_terms[0]["text"]}
    for asked, problem in (
        ({"glossary_id": "nothing"}, "there is no glossary 'nothing'"),
        ({"glossary_id": number, "domain": "base", "source_language": "en"}, "glossary has de to en"),
        ({"glossary_id": number, "domain": "base", "source_language": "en", "target_language": "de"}, "not en to de"),
    ):
        answer = client.post("/v1/translate", json={"texts": ["a"], **asked})
        assert problem in answer.json()["message"]
    # Nothing but the glossary says what to translate between.
    stated = {"texts": ["Wort zwei"], "domain": "base", "glossary_id": number}
    by_glossary = client.post("/v1/translate", json=stated).json()["translations"]
    assert by_glossary == client.post("/v1/translate", json={**stated, **languages}).json()["translations"]
    params = {"name": "a.json", "domain": "base", "glossary_id": number}
    document = client.post("/v1/documents", params=params, content=b'{"a": "Wort zwei"}')
    done(client, document)
    assert client.get(f"{document.headers['location']}/content").json() == {"a": by_glossary[0]["text"]}
    assert client.delete(f"/v1/glossaries/{number}").status_code == 204
    assert client.get("/v1/glossaries").json() == {"glossaries": []}


def test_a_glossary_that_cannot_be_read_is_refused_with_its_line(client: TestClient) -> None:
    params = {"name": "terms.csv", "source_language": "de", "target_language": "en"}
    answer = client.post("/v1/glossaries", params=params, content=b"Datei,file\nOrdner\n")
    assert answer.status_code == 422
    assert answer.json()["message"].startswith("terms.csv, line 2: expected at least 2 columns, found 1")
    answer = client.post("/v1/glossaries", params={"name": "terms.csv"}, content=b"Datei,file\n")
    assert (answer.status_code, "needs source_language" in answer.json()["message"]) == (422, True)


@pytest.mark.parametrize(
    ("params", "content", "status"),
    [
        ({}, b"", 422),
        ({"domain": "other"}, b"x", 404),
        ({"term": "no sign"}, b"x", 422),
        ({"name": "n" * 201}, b"x", 422),
    ],
)
def test_what_cannot_be_translated_is_refused(
    client: TestClient, params: dict[str, str], content: bytes, status: int
) -> None:
    answer = client.post("/v1/documents", params=params, content=content)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) >= {"code", "message"}


def test_what_is_no_document_fails_and_says_why_without_a_place_on_disk(client: TestClient, tmp_path: Path) -> None:
    told = done(client, client.post("/v1/documents", params={"name": "../../a.po"}, content=b'msgid "x'))
    assert told["state"] == "failed"
    assert "a.po" in told["message"]
    assert "/tmp" not in told["message"]
    assert str(tmp_path) not in told["message"]
    taken = client.get(f"/v1/documents/{told['id']}/content")
    assert (taken.status_code, taken.json()["code"]) == (422, "failed")
    assert client.get(f"/v1/documents/{told['id']}/units").json() == taken.json()


def test_what_nobody_wants_any_more_is_not_translated(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, asked = Event(), Event(), []

    def waiting(
        lane: Lane, batches: Sequence[Sequence[Job]], found: OnSegment, growing: OnPartialTexts | None
    ) -> Iterator[list[list[Part]]]:
        [jobs] = batches
        asked.append(len(jobs))
        begun.set()
        assert go.wait(60)
        return iter(list(decode(lane, batches, found, growing)))

    decode = Lane.decode
    monkeypatch.setattr(Lane, "decode", waiting)
    texts = {str(number): f"etwas {number} anderes" for number in range(200)}
    sent = client.post("/v1/documents", params={"name": "a.json"}, content=json.dumps(texts).encode())
    assert begun.wait(60)
    assert client.delete(sent.headers["location"]).status_code == 204
    assert client.get(sent.headers["location"]).status_code == 404
    assert client.delete(sent.headers["location"]).status_code == 404
    go.set()
    while client.get("/ready").json()["waiting"]:
        time.sleep(0.01)
    assert sum(asked) <= 64  # the batch that was begun, and perhaps one more
    assert done(client, client.post("/v1/documents", params={"name": "app.po"}, content=CATALOG))["state"] == "done"


def test_only_who_knows_the_id_and_may_use_the_domain(
    start_service: StartService, served_store: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    mine, other = (new_key(keys, name, "translate", [domain]) for name, domain in (("a", "small"), ("b", "base")))
    client = start_service(stores={"small": served_store}, keys=keys, limits=Limits(document_bytes=1_000))
    by = {"Authorization": f"Bearer {mine}"}
    assert client.post("/v1/documents", content=CATALOG).status_code == 401
    assert client.post("/v1/documents", content=b"x" * 1_001, headers=by).status_code == 413
    sent = client.post("/v1/documents", params={"name": "a.po"}, content=CATALOG, headers=by)
    done(client, sent, **by)
    place = sent.headers["location"]
    assert client.get(place, headers={"Authorization": f"Bearer {other}"}).status_code == 404
    assert client.get(place[:-1] + ("0" if place[-1] != "0" else "1"), headers=by).status_code == 404
    assert client.get("/v1/documents/x", headers=by).status_code == 404
    assert client.get(f"{place}/content", headers=by).status_code == 200


def test_no_way_in_takes_more_than_a_document_may_have(start_service: StartService, served_store: Path) -> None:
    client = start_service(stores={"small": served_store}, limits=Limits(document_bytes=100))
    large = b"x" * 101
    by_languages = {"target_lang": "EN", "source_lang": "DE"}
    for answer in (
        client.post("/v1/documents", content=large),
        client.post("/v2/document", data=by_languages, files={"file": ("a.txt", large)}),
        client.post("/translate_file", data={"source": "de", "target": "en"}, files={"file": ("a.txt", large)}),
    ):
        assert answer.status_code == 413, answer.text
        assert "at most 100 bytes: split it" in answer.json()["message"]
